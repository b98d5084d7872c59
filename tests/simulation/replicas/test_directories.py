"""Log directories of brokers in a cluster: the controller must know what is in which."""

import errno
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.broker.directory_assignments import DirectoryAssignments
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from tests.simulation.replicas.three_nodes import ThreeNodes, three_nodes

DIRECTORIES = "/data,/more"
SHORT: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 1_000}


def folder_of(nodes: ThreeNodes, node_id: int, topic: str) -> str:
    store = nodes.node(node_id).broker.store
    return str(store.directory_of(TopicPartition(topic, 0)).path)


def create_in_each_directory(nodes: ThreeNodes, names: str, replicas: Sequence[int]) -> str:
    """Create topics; return one of which node 1 has the replica in the second directory."""
    for name in names:
        nodes.run(nodes.create(name, replicas))
        nodes.wait_until(lambda name=name: nodes.isr(name) == set(replicas))  # type: ignore[misc]
        nodes.run(nodes.send(b"before", topic=name, acks="all"))
    return next(name for name in names if folder_of(nodes, 1, name) == "/more")


def fail_disk(nodes: ThreeNodes, node_id: int) -> None:
    disk = nodes.machines[node_id].disk
    for path in ("/more/*", "/more/*/*"):
        disk.fail("*", errno.EIO, path=path, times=None)


async def send_assignments(nodes: ThreeNodes) -> None:
    nodes.node(1).broker.directory_assignments._send_in(0)


def test_a_disk_that_fails_before_its_assignments_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The controller learns of them all the same, and has another broker lead (KIP-858)."""
    with three_nodes(log_dirs=DIRECTORIES) as nodes:
        with monkeypatch.context() as held:
            held.setattr(DirectoryAssignments, "_send_in", lambda _self, _seconds: None)
            topic = create_in_each_directory(nodes, "ab", [1, 2])
            fail_disk(nodes, 1)
            with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
                nodes.run(nodes.send(b"refused", topic=topic, acks=1, **SHORT))
            nodes.world.run_for(10)
            assert nodes.leader(topic) == 1, "nobody has told the controller"
        nodes.machines[1].sim.spawn(send_assignments(nodes))
        nodes.wait_until(lambda: nodes.leader(topic) == 2)
        nodes.run(nodes.send(b"after", topic=topic, acks="all"))
        assert nodes.isr(topic) == {2}
        assert nodes.machines[1].is_serving


def test_an_idle_follower_whose_disk_fails_leaves_the_isr_and_stays_out() -> None:
    """It has nothing to write, so nothing of its own fails; fetches would keep it in sync."""
    with three_nodes(log_dirs=DIRECTORIES) as nodes:
        led = create_in_each_directory(nodes, "ab", [1, 2])
        followed = create_in_each_directory(nodes, "cd", [2, 1])
        fail_disk(nodes, 1)
        nodes.run(nodes.send(b"after", topic=led, acks=1))
        assert nodes.leader(led) == 2
        nodes.wait_until(lambda: nodes.isr(followed) == {2})
        nodes.world.run_for(10)
        assert nodes.isr(followed) == nodes.isr(led) == {2}
        nodes.run(nodes.send(b"after", topic=followed, acks="all", **SHORT))
