"""A consumer without a group may subscribe: it reads every partition and commits nothing."""

import asyncio
import re
from collections.abc import Collection, Coroutine, Iterator
from typing import Any

import pytest

from odradek.client import (
    Admin,
    BlockingConsumer,
    ConfigurationError,
    Consumer,
    NewPartitions,
    NewTopic,
    Producer,
    RebalanceListener,
    SubscriptionPattern,
    TopicPartition,
)
from odradek.testing.broker import Broker

SECONDS_MAX = 120


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(memory=True, topics={"t": 3}) as started:
        yield started


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, SECONDS_MAX))


async def produce(broker: Broker, topic: str, partition: int, value: bytes) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        await (await producer.send(topic, value, partition=partition))


async def read(consumer: Consumer, count: int) -> set[bytes | None]:
    values: set[bytes | None] = set()
    while len(values) < count:
        for records in (await consumer.poll(1)).values():
            values |= {record.value for record in records}
    return values


def make(broker: Broker, *topics: str, **settings: Any) -> Consumer:
    return Consumer(
        *topics,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        metadata_max_age_ms=50,
        **settings,
    )


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.assigned: list[TopicPartition] = []
        self.revoked: list[TopicPartition] = []

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.assigned += partitions

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.revoked += partitions


def test_each_of_two_reads_every_partition_and_no_group_comes_to_be(broker: Broker) -> None:
    async def work() -> None:
        for partition in range(3):
            await produce(broker, "t", partition, b"%d" % partition)
        async with make(broker, "t") as one, make(broker, "t", group_protocol="consumer") as two:
            assert await read(one, 3) == await read(two, 3) == {b"0", b"1", b"2"}
            assert one.assignment() == {TopicPartition("t", each) for each in range(3)}
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert not await admin.list_groups()
            assert [each.name for each in await admin.list_topics(include_internal=True)] == ["t"]

    run(work())


def test_partitions_and_topics_that_come_later_are_read_too(broker: Broker) -> None:
    async def work() -> None:
        admins = Admin(bootstrap_servers=broker.bootstrap_servers)
        async with admins as admin, make(broker) as named, make(broker) as matched:
            named.subscribe("t")
            matched.subscribe(re.compile("t|later.*"))
            await produce(broker, "t", 0, b"first")
            assert await read(named, 1) == await read(matched, 1) == {b"first"}
            (await admin.create_partitions({"t": NewPartitions(4)})).unwrap()
            (await admin.create_topics([NewTopic("later-on")])).unwrap()
            await produce(broker, "t", 3, b"grown")
            await produce(broker, "later-on", 0, b"new")
            assert await read(named, 1) == {b"grown"}
            assert await read(matched, 2) == {b"grown", b"new"}
            assert matched.subscription() == {"t", "later-on"}

    run(work())


def test_the_listener_is_told_before_records_come_and_in_the_end(broker: Broker) -> None:
    everything = [TopicPartition("t", each) for each in range(3)]

    async def work() -> None:
        await produce(broker, "t", 0, b"x")
        told = Told()
        async with make(broker) as consumer:
            consumer.subscribe(["t"], told)
            await read(consumer, 1)
            assert told.assigned == everything
            await consumer.unsubscribe()
            assert told.revoked == everything
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            assert await read(consumer, 1) == {b"x"}

    run(work())


def test_what_needs_a_group_is_refused_in_words(broker: Broker) -> None:
    async def work() -> None:
        async with make(broker, "t") as consumer:
            await produce(broker, "t", 0, b"x")
            await read(consumer, 1)
            with pytest.raises(ConfigurationError, match=r"commits need a group\.id"):
                await consumer.commit()
        async with make(broker, group_protocol="consumer") as consumer:
            with pytest.raises(ConfigurationError, match=r"SubscriptionPattern needs a group\.id"):
                consumer.subscribe(SubscriptionPattern("t.*"))

    run(work())


def test_the_blocking_twin_can_too(broker: Broker) -> None:
    run(produce(broker, "t", 1, b"x"))
    with BlockingConsumer(
        "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        assert next(iter(consumer)).value == b"x"
