"""Log directories of brokers in a cluster: the controller must know what is in which."""

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from odradek.broker.directory_assignments import DirectoryAssignments
from odradek.client import Admin, NewTopic
from odradek.client.admin.configs import ConfigResource
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.storage.log import Log
from tests.simulation.replicas.three_nodes import ThreeNodes, three_nodes

T = TypeVar("T")

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


# Cordoned directories (KIP-1066).


def cordon(nodes: ThreeNodes, directories: str) -> None:
    """Cordon directories of node 1, and wait until the controller knows."""
    nodes.run(nodes.configure({"cordoned.log.dirs": directories}, ConfigResource.broker(1)))
    count = {"*": 2, "": 0}.get(directories, 1)

    def is_known() -> bool:
        cordoned = nodes.node(2).metadata.image.brokers[1].cordoned_log_dirs
        return cordoned is not None and len(cordoned) == count

    nodes.wait_until(is_known)


async def ask(nodes: ThreeNodes, work: Callable[[Admin], Awaitable[T]]) -> T:
    servers, random = nodes.layout.bootstrap_servers, nodes.world.random("asking")
    async with Admin(bootstrap_servers=servers, random=random) as admin:
        return await work(admin)


def test_new_replicas_go_to_directories_that_are_not_cordoned() -> None:
    with three_nodes(log_dirs=DIRECTORIES) as nodes:
        cordon(nodes, "/more")
        for name in "abc":
            nodes.run(nodes.create(name, [1, 2]))
            nodes.wait_until(lambda name=name: nodes.isr(name) == {1, 2})  # type: ignore[misc]
        assert [folder_of(nodes, 1, name) for name in "abc"] == ["/data"] * 3
        at = TopicPartitionReplica("a", 0, 1)
        moved = nodes.run(ask(nodes, lambda admin: admin.alter_replica_log_dirs({at: "/more"})))
        assert "INVALID_REPLICA_ASSIGNMENT" in str(moved[at].error)
        described = nodes.run(ask(nodes, lambda admin: admin.describe_log_dirs([1])))[1].unwrap()
        assert {path: each.is_cordoned for path, each in described.items()} == {
            "/data": False,
            "/more": True,
        }
        with pytest.raises(KafkaError, match="only have directories from"):
            cordon(nodes, "/elsewhere")


def test_a_broker_with_all_its_directories_cordoned_gets_no_replicas() -> None:
    with three_nodes(log_dirs=DIRECTORIES) as nodes:
        cordon(nodes, "*")
        new = NewTopic("new", partitions=6, replication_factor=2)
        nodes.run(ask(nodes, lambda admin: admin.create_topics([new]))).unwrap()
        nodes.wait_until(lambda: nodes.partition("new") is not None)
        replicas = {each for n in range(6) for each in nodes.partition("new", n).replicas}  # type: ignore[union-attr]
        assert replicas == {2, 3}
        with pytest.raises(KafkaError, match="all its log directories are cordoned"):
            nodes.run(nodes.create("given", [1, 2]))
        nodes.run(nodes.send(b"goes on", acks="all"))
        cordon(nodes, "")
        nodes.run(nodes.create("given", [1, 2]))


# Moves between directories.


def other(directory: str) -> str:
    return {"/data": "/more", "/more": "/data"}[directory]


def known_folder(nodes: ThreeNodes, node_id: int, topic: str) -> str:
    """Return where the controller has a replica."""
    partition = nodes.partition(topic)
    assert partition is not None
    by_id = {
        each.directory_id: str(each.path) for each in nodes.node(node_id).broker.store.directories
    }
    return by_id.get(partition.directory_of(node_id), "unknown")


def test_the_controller_knows_where_a_replica_moves_before_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with three_nodes(log_dirs=DIRECTORIES) as nodes:
        at = TopicPartitionReplica("orders", 0, 1)
        nodes.wait_until(lambda: known_folder(nodes, 1, "orders") != "unknown")
        before = folder_of(nodes, 1, "orders")
        known_at_swap: list[str] = []
        replicas = nodes.node(1).broker.replicas
        swapped = replicas.on_log_moved

        def on_log_moved(at: TopicPartition, log: Log) -> None:
            known_at_swap.append(known_folder(nodes, 1, "orders"))
            swapped(at, log)

        monkeypatch.setattr(replicas, "on_log_moved", on_log_moved)
        with monkeypatch.context() as held:
            held.setattr(DirectoryAssignments, "_send_in", lambda _self, _seconds: None)
            moves = {at: other(before)}
            nodes.run(ask(nodes, lambda admin: admin.alter_replica_log_dirs(moves))).unwrap()
            nodes.world.run_for(10)
            nodes.run(nodes.send(b"meanwhile", acks="all"))
            assert folder_of(nodes, 1, "orders") == known_folder(nodes, 1, "orders") == before
        nodes.machines[1].sim.spawn(send_assignments(nodes))
        nodes.wait_until(lambda: folder_of(nodes, 1, "orders") == other(before))
        assert known_at_swap == [other(before)]
        nodes.world.run_for(5)
        assert known_folder(nodes, 1, "orders") == other(before)
        nodes.run(nodes.send(b"after", acks="all"))
        assert nodes.run(nodes.read_all()) == [b"meanwhile", b"after"]
        assert nodes.isr() == {1, 2, 3}


def test_a_move_that_is_called_off_is_so_for_the_controller_too() -> None:
    """It is called off when the controller has decided and the log has not swapped yet."""
    with three_nodes(log_dirs=DIRECTORIES) as nodes:
        at = TopicPartitionReplica("orders", 0, 1)
        nodes.wait_until(lambda: known_folder(nodes, 1, "orders") != "unknown")
        before = folder_of(nodes, 1, "orders")
        broker = nodes.node(1).broker
        with pytest.MonkeyPatch.context() as held:
            held.setattr(broker, "on_directory_known", lambda _at: None)
            there, back = {at: other(before)}, {at: before}
            nodes.run(ask(nodes, lambda admin: admin.alter_replica_log_dirs(there))).unwrap()
            nodes.wait_until(lambda: known_folder(nodes, 1, "orders") == other(before))
            nodes.run(ask(nodes, lambda admin: admin.alter_replica_log_dirs(back))).unwrap()
        nodes.wait_until(lambda: known_folder(nodes, 1, "orders") == before)
        assert folder_of(nodes, 1, "orders") == before
        nodes.run(nodes.send(b"after", acks="all"))
