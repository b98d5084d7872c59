"""What applications hang into a consumer: deserializers, interceptors, commits of a listener."""

import json
from collections.abc import Collection
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.blocking.consumer import BlockingConsumer
from odradek.client.consumer import (
    Consumer,
    ConsumerRecord,
    RebalanceListener,
    RecordDeserializationError,
    TopicPartition,
)
from odradek.client.consumer.extensions import RecordsByPartition
from odradek.client.consumer.records import Offsets
from odradek.client.errors import ClosedError
from odradek.testing.broker import Broker
from tests.interop.client.consumer_session import SECONDS_MAX, fresh, make_topic, produce, read, run


def reader(address: str, **settings: Any) -> Consumer[Any, Any]:
    return Consumer(bootstrap_servers=address, auto_offset_reset="earliest", **settings)


class Upper:
    """A deserializer that wants to know the topic."""

    def deserialize(self, topic: str, data: bytes) -> str:
        return f"{topic}: {data.decode().upper()}"


def test_deserializers_make_what_is_handed_out(cluster_address: str) -> None:
    topic = make_topic(cluster_address)
    produce(cluster_address, topic, [b'{"n": 1}', None, b'{"n": 2}'])

    async def scenario() -> None:
        async with reader(cluster_address, value_deserializer=json.loads) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert [each.value for each in await read(consumer, 3)] == [{"n": 1}, None, {"n": 2}]
            consumer.seek_to_beginning()
            table = await consumer.poll_arrow()
            assert table["value"].to_pylist()[0] == b'{"n": 1}'
        async with reader(cluster_address, value_deserializer=Upper()) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            records = await consumer.poll()
            assert records[TopicPartition(topic, 0)][0].value == f'{topic}: {{"N": 1}}'

    run(scenario)


@pytest.mark.parametrize("way", ["poll", "one by one"])
def test_a_record_that_cannot_be_read_is_told_with_its_place_and_can_be_passed(
    cluster_address: str, way: str
) -> None:
    topic = make_topic(cluster_address)
    partition = TopicPartition(topic, 0)
    produce(cluster_address, topic, [b"0", b"1", b"nonsense", b"3"])

    async def take(consumer: Consumer[Any, Any]) -> list[ConsumerRecord[Any, Any]]:
        if way == "one by one":
            return await read(consumer, 1)
        return (await consumer.poll()).get(partition, [])

    async def take_all(consumer: Consumer[Any, Any], values: list[int | None]) -> None:
        while True:
            values += [each.value for each in await take(consumer)]

    async def scenario() -> None:
        values: list[int | None] = []
        async with reader(cluster_address, value_deserializer=int) as consumer:
            consumer.assign([partition])
            for _ in range(2):
                with pytest.raises(RecordDeserializationError, match="seek past it") as told:
                    await take_all(consumer, values)
                assert (told.value.partition, told.value.offset) == (partition, 2)
                assert told.value.record.value == b"nonsense"
                assert await consumer.position(partition) == 2
            assert values == [0, 1]
            consumer.seek(partition, told.value.offset + 1)
            assert [each.value for each in await take(consumer)] == [3]

    run(scenario)


class Watching:
    """Leaves out every other record, and remembers what was committed."""

    def __init__(self) -> None:
        self.seen: list[bytes | None] = []
        self.committed: list[Offsets] = []

    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
        for share in records.values():
            self.seen += [each.value for each in share]
        return {p: [each for each in s if each.offset % 2] for p, s in records.items()}

    def on_commit(self, offsets: Offsets) -> None:
        self.committed.append(offsets)


class Failing:
    def on_consume(self, records: RecordsByPartition) -> RecordsByPartition:
        raise ValueError("not today")

    def on_commit(self, offsets: Offsets) -> None:
        raise ValueError("not today")


def test_interceptors_see_what_is_handed_out_and_committed(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")
    partition = TopicPartition(topic, 0)
    produce(cluster_address, topic, [b"0", b"1", b"2", b"3"])
    watching = Watching()

    async def scenario() -> None:
        given: dict[str, Any] = {"group_id": group, "enable_auto_commit": False}
        interceptors = [watching, Failing()]
        async with reader(cluster_address, interceptors=interceptors, **given) as consumer:
            consumer.assign([partition])
            first = await read(consumer, 1)
            rest = await consumer.poll()
            assert [each.value for each in [*first, *rest[partition]]] == [b"1", b"3"]
            assert watching.seen == [b"0", b"1", b"2", b"3"]
            await consumer.commit()
            assert [each[partition].offset for each in watching.committed] == [4]

    run(scenario)


class Committing(RebalanceListener):
    """Commits when partitions go, and polls in vain."""

    consumer: Consumer
    refused = False

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self.consumer.commit()
        try:
            await self.consumer.poll(0)
        except ClosedError:
            self.refused = True


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_listener_may_commit_while_the_consumer_closes(
    cluster_address: str, protocol: str
) -> None:
    topic, group = make_topic(cluster_address), fresh("group")
    produce(cluster_address, topic, [b"0", b"1", b"2"])
    listener = Committing()

    async def scenario() -> None:
        given: dict[str, Any] = {"group_protocol": protocol, "enable_auto_commit": False}
        async with reader(cluster_address, group_id=group, **given) as consumer:
            listener.consumer = consumer
            consumer.subscribe([topic], listener)
            await read(consumer, 2)
        assert listener.refused
        with pytest.raises(ClosedError):
            await consumer.commit()
        async with Admin(bootstrap_servers=cluster_address) as admin:
            committed = (await admin.list_group_offsets([group]))[group].unwrap()
            assert committed[TopicPartition(topic, 0)].offset == 2

    run(scenario)


def test_a_commit_without_waiting_is_made_before_the_consumer_is_closed() -> None:
    partition = TopicPartition("t", 0)

    async def scenario(broker: Broker) -> None:
        given: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
        async with reader(broker.bootstrap_servers, **given) as consumer:
            consumer.assign([partition])
            await read(consumer, 2)
            broker.delay("OffsetCommit", 0.5)  # long after all else is closed
            consumer.commit_soon()
        async with reader(broker.bootstrap_servers, **given) as consumer:
            committed = (await consumer.committed([partition]))[partition]
            assert committed is not None
            assert committed.offset == 2

    with Broker(topics=["t"], memory=True) as broker:
        produce(broker.bootstrap_servers, "t", [b"0", b"1"])
        run(lambda: scenario(broker))


def test_a_listener_may_commit_while_the_blocking_consumer_closes(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")
    partition = TopicPartition(topic, 0)
    produce(cluster_address, topic, [b"0", b"1"])

    class Blocked(RebalanceListener):
        def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            consumer.commit()

    given: dict[str, Any] = {"group_id": group, "enable_auto_commit": False}
    settings = {"bootstrap_servers": cluster_address, "auto_offset_reset": "earliest", **given}
    with BlockingConsumer(value_deserializer=int, **settings) as consumer:
        consumer.subscribe([topic], Blocked())
        assert next(consumer).value == 0
    with BlockingConsumer(**settings) as consumer:
        committed = consumer.committed([partition], SECONDS_MAX)[partition]
        assert committed is not None
        assert committed.offset == 1


def test_the_coordinator_uses_the_assignor_that_members_ask_for(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address, 2), fresh("group")
    produce(cluster_address, topic, [b"0"])

    async def scenario() -> None:
        given = {"group_protocol": "consumer", "group_remote_assignor": "range"}
        async with reader(cluster_address, group_id=group, **given) as consumer:
            consumer.subscribe([topic])
            await read(consumer, 1)
            async with Admin(bootstrap_servers=cluster_address) as admin:
                described = (await admin.describe_groups([group]))[group].unwrap()
                assert described.assignor == "range"

    run(scenario)
