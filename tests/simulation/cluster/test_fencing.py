"""Brokers that the cluster gives up for a while: paused past their session, or down."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.broker_server import BrokerServer
from odradek.client import NewTopic, Producer
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata import ClusterImage, PartitionImage
from odradek.node.node import Node
from odradek.testing.simulation import World
from tests.simulation.cluster.cluster import START_SECONDS_MAX
from tests.simulation.cluster.data_cluster import DataCluster
from tests.simulation.cluster.layout import Layout
from tests.simulation.cluster.workload import make_admin

SECONDS_MAX = 60
SESSION_MS = 3_000
REBALANCE_SECONDS = 4
CONFIGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "500",
    "leader.imbalance.check.interval.seconds": str(REBALANCE_SECONDS),
}
PAUSED = 5
OTHERS = (4, 6)


class Quiet(DataCluster):
    """Three controllers and three brokers, without storms."""

    def draw_layout(self, shape: str | None) -> Layout:
        layout = super().draw_layout(shape or "3 controllers, 3 brokers")
        return replace(layout, configs={**layout.configs, **CONFIGS}, features=())

    def draw_schedule(self, *_: Any) -> list[Any]:
        return []

    def until(self, condition: Callable[[], bool]) -> None:
        self.world.run_until(condition, SECONDS_MAX)

    def until_well(self) -> None:
        self._wait_until_well(START_SECONDS_MAX)

    def run_client(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.world.run_until_done(self.clients[0].spawn(story()), 120)

    @property
    def image(self) -> ClusterImage:
        leader = self.leader()
        assert leader is not None
        assert leader.quorum is not None
        return leader.quorum.image

    def partitions(self) -> list[PartitionImage]:
        return [each for topic in self.image.topics.values() for each in topic.partitions.values()]

    def broker(self, node_id: int) -> BrokerServer:
        node = self.machine_of(node_id).node
        assert isinstance(node, Node)
        return node.broker

    def create(self, name: str) -> None:
        async def create() -> None:
            async with make_admin(self, self.clients[0], f"create {name}") as admin:
                await admin.create_topics([NewTopic(name, partitions=3, replication_factor=3)])

        self.run_client(create)

    def delete(self, name: str) -> None:
        async def delete() -> None:
            async with make_admin(self, self.clients[0], f"delete {name}") as admin:
                await admin.delete_topics([name])

        self.run_client(delete)

    def write(self, topic: str, *values: bytes) -> None:
        async def write() -> None:
            node = self.clients[0]
            async with Producer(
                bootstrap_servers=self.layout.bootstrap_servers,
                random=self.world.random("producer"),
                now_ms=node.clock.now_ms,
            ) as producer:
                receipts = [await producer.send(topic, value, partition=0) for value in values]
                await asyncio.gather(*receipts)

        self.run_client(write)


@pytest.fixture
def cluster() -> Iterator[Quiet]:
    with World(3) as world:
        cluster = Quiet(world)
        cluster.start()
        cluster.until_well()
        yield cluster


def test_a_broker_that_was_paused_past_its_session_returns_to_its_isrs(cluster: Quiet) -> None:
    machine, epoch = cluster.machine_of(PAUSED), cluster.image.brokers[PAUSED].epoch
    led = [each.leader for each in cluster.partitions()].count(PAUSED)
    assert led > 0
    cluster.nemesis.hurt[machine.name].append((cluster.world.now, float("inf")))
    machine.pause()
    cluster.until(lambda: cluster.image.brokers[PAUSED].fenced)
    for partition in cluster.partitions():
        assert partition.leader != PAUSED
        if set(partition.replicas) != {PAUSED}:
            assert PAUSED not in partition.isr
    cluster.write("in", b"while it was away")
    machine.resume()
    cluster.until_well()
    assert cluster.image.brokers[PAUSED].epoch == epoch, "the same life goes on"
    assert (machine.lives, cluster.exits) == (1, [])
    # And it gets back what it is the preferred leader of (auto.leader.rebalance.enable).
    cluster.until(lambda: [each.leader for each in cluster.partitions()].count(PAUSED) == led)


def test_a_topic_recreated_while_a_broker_was_down_is_another_topic_there(cluster: Quiet) -> None:
    cluster.create("again")
    cluster.write("again", b"old 1", b"old 2")
    cluster.until_well()
    machine = cluster.machine_of(PAUSED)
    machine.kill()
    cluster.until(lambda: cluster.image.brokers[PAUSED].fenced)
    old_id = cluster.image.topics["again"].topic_id
    cluster.delete("again")
    cluster.until(lambda: "again" not in cluster.image.topics)
    cluster.create("again")
    cluster.write("again", b"new")
    machine.start()
    cluster.until_well()
    new_id = cluster.image.topics["again"].topic_id
    assert new_id != old_id
    at = TopicPartition("again", 0)

    def state(node_id: int) -> tuple[Uuid | None, int]:
        store = cluster.broker(node_id).store
        log = store.get(at)
        assert log is not None
        return store.topic_id(at), log.log_end_offset

    assert [state(node_id) for node_id in (PAUSED, *OTHERS)] == [(new_id, 1)] * 3
