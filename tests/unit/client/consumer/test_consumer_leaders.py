"""A leader that moves, a replica to fetch from, a log that was cut: with scripted brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client.consumer import Consumer, ConsumerRecord, LogTruncationError, TopicPartition
from tests.scripted_cluster import TOPIC, ScriptedCluster

PARTITION = TopicPartition(TOPIC, 0)
SECONDS_MAX = 120

Scenario = Callable[[ScriptedCluster, Consumer], Awaitable[None]]


def run(scenario: Scenario, cluster: ScriptedCluster | None = None, **settings: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(SECONDS_MAX), cluster or ScriptedCluster() as brokers:
            settings.setdefault("auto_offset_reset", "earliest")
            settings.setdefault("retry_backoff_ms", 5)
            async with Consumer(
                bootstrap_servers=brokers.bootstrap_servers, **settings
            ) as consumer:
                consumer.assign([PARTITION])
                await scenario(brokers, consumer)

    asyncio.run(main())


async def read(consumer: Consumer, number: int) -> list[bytes | None]:
    records: list[ConsumerRecord] = []
    while len(records) < number:
        for share in (await consumer.poll(5)).values():
            records += share
    return [each.value for each in records]


def fetches(cluster: ScriptedCluster) -> list[int]:
    return [node_id for node_id, api in cluster.asked if api == "Fetch"]


@pytest.mark.seed_row("2.4")
@pytest.mark.parametrize("tells", [False, True])
def test_a_leader_that_moves_is_followed(tells: bool) -> None:
    async def scenario(cluster: ScriptedCluster, consumer: Consumer) -> None:
        cluster.tells_new_leader = tells
        cluster.write(b"1", b"2")
        assert await read(consumer, 2) == [b"1", b"2"]
        for turn in range(4):
            cluster.elect((cluster.leader + 1) % 3)
            cluster.write(b"after %d" % turn)
            assert await read(consumer, 1) == [b"after %d" % turn]
        assert {0, 1, 2} <= set(fetches(cluster))

    run(scenario)


def test_an_old_leader_in_metadata_is_not_believed() -> None:
    async def scenario(cluster: ScriptedCluster, consumer: Consumer) -> None:
        cluster.write(b"1")
        cluster.elect(1)
        assert await read(consumer, 1) == [b"1"]
        cluster.metadata_leader = (0, 0)
        await consumer._running().cluster.refresh()
        cluster.asked.clear()
        cluster.write(b"2")
        assert await read(consumer, 1) == [b"2"]
        assert set(fetches(cluster)) == {1}

    run(scenario)


def test_a_new_leader_is_asked_whether_it_has_what_was_read() -> None:
    async def scenario(cluster: ScriptedCluster, consumer: Consumer) -> None:
        cluster.write(b"1", b"2")
        await read(consumer, 2)
        cluster.elect(1)
        cluster.write(b"3")
        cluster.asked.clear()
        assert await read(consumer, 1) == [b"3"]
        apis = [api for node_id, api in cluster.asked if node_id == 1]
        assert apis.index("OffsetForLeaderEpoch") < apis.index("Fetch")

    run(scenario)


def cut(cluster: ScriptedCluster) -> None:
    """The new leader lacks the last record, and has another in its place."""
    cluster.elect(1)
    del cluster.log[-1]
    cluster.write(b"another")


def test_a_cut_log_is_read_on_from_where_it_was_cut() -> None:
    async def scenario(cluster: ScriptedCluster, consumer: Consumer) -> None:
        cluster.write(b"1", b"2", b"3")
        assert await read(consumer, 3) == [b"1", b"2", b"3"]
        cut(cluster)
        assert await read(consumer, 1) == [b"another"]
        assert await consumer.position(PARTITION) == 3

    run(scenario)


def test_a_cut_log_is_told_where_nothing_says_what_to_do() -> None:
    async def scenario(cluster: ScriptedCluster, consumer: Consumer) -> None:
        cluster.write(b"1", b"2", b"3")
        consumer.seek(PARTITION, 0)
        assert await read(consumer, 3) == [b"1", b"2", b"3"]
        cut(cluster)
        with pytest.raises(LogTruncationError) as caught:
            await read(consumer, 1)
        assert caught.value.partitions == {PARTITION: (3, 2)}
        consumer.seek(PARTITION, 2)
        assert await read(consumer, 1) == [b"another"]

    run(scenario, auto_offset_reset="none")


def test_records_come_from_the_replica_that_the_leader_named() -> None:
    async def scenario(cluster: ScriptedCluster, consumer: Consumer) -> None:
        cluster.preferred_replica = 2
        cluster.write(b"1", b"2")
        assert await read(consumer, 2) == [b"1", b"2"]
        cluster.asked.clear()
        cluster.write(b"3")
        assert await read(consumer, 1) == [b"3"]
        assert set(fetches(cluster)) == {2}

    run(scenario, client_rack="here")


def test_a_replica_that_refuses_is_left_for_the_leader() -> None:
    async def scenario(cluster: ScriptedCluster, consumer: Consumer) -> None:
        cluster.preferred_replica = 2
        cluster.write(b"1")
        assert await read(consumer, 1) == [b"1"]
        cluster.preferred_replica = -1
        cluster.write(b"2")
        assert await read(consumer, 1) == [b"2"]
        assert fetches(cluster)[-1] == 0

    run(scenario, client_rack="here")


@pytest.mark.seed_row("2.4")
def test_a_broker_that_dies_is_survived_by_its_partition() -> None:
    async def scenario(cluster: ScriptedCluster, consumer: Consumer) -> None:
        cluster.elect(2)
        cluster.write(b"1")
        assert await read(consumer, 1) == [b"1"]
        cluster.stop(2)
        connections = consumer._running().cluster._connections
        for (address, _), connection in list(connections.items()):
            if address.node_id == 2:
                connection.close()
        cluster.elect(1)
        cluster.write(b"2")
        assert await read(consumer, 1) == [b"2"]

    run(scenario)
