"""Coordinators of groups whose topic has three replicas, on three simulated nodes."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from odradek.broker.coordinator_outbox import CoordinatorOutbox
from odradek.broker.internal_topics import InternalTopics
from odradek.client import Consumer
from odradek.client.consumer.records import OffsetAndMetadata
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.testing.simulation import World
from tests.simulation.cluster.layout import CLIENT_PORT
from tests.simulation.replicas.three_nodes import IDS, ThreeNodes, three_nodes

AT = TopicPartition("orders", 0)
GROUP_TOPIC = "__consumer_offsets"
CONFIGS = {
    "offsets_topic_num_partitions": "1",
    "min_insync_replicas": "2",
    "group_initial_rebalance_delay_ms": "0",
}


@contextmanager
def replicated_groups(**configs: str) -> Iterator[ThreeNodes]:
    """Start with one offset that is committed everywhere: 1."""
    with three_nodes(**{**CONFIGS, **configs}) as nodes:
        nodes.run(commit(nodes, 1))
        nodes.wait_until(lambda: nodes.isr(GROUP_TOPIC) == set(IDS))
        yield nodes


async def with_consumer(
    nodes: ThreeNodes, node_id: int | None, use: Callable[[Consumer[Any, Any]], Awaitable[Any]]
) -> Any:
    servers = nodes.layout.bootstrap_servers if node_id is None else f"node-{node_id}:{CLIENT_PORT}"
    async with Consumer(
        bootstrap_servers=servers,
        group_id="g",
        enable_auto_commit=False,
        random=nodes.world.random(f"consumer {nodes.world.now}"),
        now_ms=nodes.client.clock.now_ms,
    ) as consumer:
        consumer.assign([AT])
        return await use(consumer)


async def commit(
    nodes: ThreeNodes, offset: int, node_id: int | None = None, timeout: float = 30
) -> None:
    offsets = {AT: OffsetAndMetadata(offset)}
    await with_consumer(nodes, node_id, lambda each: each.commit(offsets, timeout))


async def committed(nodes: ThreeNodes, node_id: int | None = None, timeout: float = 30) -> int:
    found = await with_consumer(nodes, node_id, lambda each: each.committed([AT], timeout))
    assert found[AT] is not None
    return int(found[AT].offset)


@contextmanager
def alone(nodes: ThreeNodes, node_id: int) -> Iterator[None]:
    """Cut a node off from the others; clients reach all."""
    others = [f"node-{each}" for each in IDS if each != node_id]
    for other in others:
        nodes.world.network.cut(f"node-{node_id}", other)
    yield
    for other in others:
        nodes.world.network.heal(f"node-{node_id}", other)


def offsets_shown(nodes: ThreeNodes) -> list[int]:
    """Commit where it reaches nobody else; return what clients see of that, and then elsewhere."""
    old = nodes.leader(GROUP_TOPIC)
    shown = []
    with alone(nodes, old):
        with suppress(KafkaError, TimeoutError):
            nodes.run(commit(nodes, 2, old, timeout=1))
        log = nodes.replica(old, GROUP_TOPIC).log
        assert log.log_end_offset > log.high_watermark, "it was written"
        with suppress(KafkaError, TimeoutError):
            shown.append(nodes.run(committed(nodes, old, timeout=1)))
        nodes.wait_until(lambda: new_leader(nodes, old) is not None)
        new = new_leader(nodes, old)
        shown.append(nodes.run(committed(nodes, new)))
    nodes.wait_until(lambda: nodes.isr(GROUP_TOPIC) == set(IDS))
    shown.append(nodes.run(committed(nodes)))
    return shown


def new_leader(nodes: ThreeNodes, old: int) -> int | None:
    """Return who leads, if a node that is not cut off leads and has loaded the groups."""
    for node_id in set(IDS) - {old}:
        if any(nodes.node(node_id).broker.groups.loaded_shards()):
            return node_id
    return None


def test_a_committed_offset_does_not_go_back_when_its_coordinator_is_cut_off() -> None:
    with replicated_groups() as nodes:
        assert offsets_shown(nodes) == [1, 1]


def test_a_coordinator_that_shows_what_is_not_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug 17: what clients saw goes back."""
    with replicated_groups() as nodes:
        monkeypatch.setattr(CoordinatorOutbox, "is_settled", property(lambda _: True))
        shown = offsets_shown(nodes)
        assert shown != sorted(shown)


def test_a_commit_that_too_few_replicas_can_take_leaves_no_trace() -> None:
    with replicated_groups(min_insync_replicas="3") as nodes:
        leader = nodes.leader(GROUP_TOPIC)
        stopped = next(each for each in IDS if each != leader)
        nodes.machines[stopped].kill()
        nodes.wait_until(lambda: len(nodes.isr(GROUP_TOPIC)) == 2)
        log = nodes.replica(leader, GROUP_TOPIC).log
        end_offset = log.log_end_offset
        with pytest.raises((KafkaError, TimeoutError)):
            nodes.run(commit(nodes, 2, timeout=2))
        assert log.log_end_offset == end_offset
        assert nodes.run(committed(nodes)) == 1
        nodes.machines[stopped].start()
        nodes.run(commit(nodes, 3))
        assert nodes.run(committed(nodes)) == 3


@pytest.mark.seed_row("4.12")
def test_a_group_goes_on_where_its_coordinator_was_killed() -> None:
    """Killed right after its answer: others have the record, but do not know it to be committed."""
    with replicated_groups() as nodes:
        for offset in (2, 3, 4):
            nodes.run(commit(nodes, offset))
            kill_coordinator(nodes)
            assert nodes.run(committed(nodes)) == offset


def kill_coordinator(nodes: ThreeNodes) -> None:
    """Kill it, wait for another, and start it again."""
    killed = nodes.leader(GROUP_TOPIC)
    nodes.machines[killed].kill()
    nodes.wait_until(lambda: new_leader(nodes, killed) is not None)
    nodes.machines[killed].start()
    nodes.wait_until(lambda: nodes.isr(GROUP_TOPIC) == set(IDS))


@pytest.mark.seed_row("0.13")
def test_groups_wait_for_enough_brokers_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    ensure = InternalTopics.ensure

    def count(self: InternalTopics, name: str, then: Any) -> None:
        asked.append(name)
        ensure(self, name, then)

    monkeypatch.setattr(InternalTopics, "ensure", count)
    with World(1) as world:
        configs = {key.replace("_", "."): value for key, value in CONFIGS.items()}
        nodes = ThreeNodes(world, configs, started=(1, 2))
        nodes.run(nodes.create(replicas=(1, 2)))
        with pytest.raises((KafkaError, TimeoutError)):
            nodes.run(commit(nodes, 1, timeout=20))
        assert len(asked) > 10
        brokers = [each for each in caplog.records if each.name == "odradek.topics"]
        said = [each.getMessage() for each in brokers if GROUP_TOPIC in each.getMessage()]
        assert 1 <= len(said) <= 2, "each broker that was asked says it once"
        assert "lower offsets.topic.replication.factor" in said[0]
        nodes.machines[3].start()
        nodes.run(commit(nodes, 1))
        found = nodes.partition(GROUP_TOPIC)
        assert found is not None
        assert set(found.replicas) == set(IDS)
