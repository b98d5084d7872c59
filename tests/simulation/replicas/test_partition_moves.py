"""Partitions that move between three simulated nodes: records, coordinators and logs go along."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

from odradek.client import Admin, Producer
from odradek.client.admin.partitions import Reassignment
from odradek.core.ids import TopicPartition
from tests.simulation.replicas.test_group_coordinators import commit, committed
from tests.simulation.replicas.three_nodes import IDS, ThreeNodes, three_nodes

T: Final = TopicPartition("t", 0)
GROUPS: Final = "__consumer_offsets"


@contextmanager
def admin_of(nodes: ThreeNodes) -> Iterator[Admin]:
    yield Admin(
        bootstrap_servers=nodes.layout.bootstrap_servers,
        random=nodes.world.random(f"moving {nodes.world.now}"),
    )


async def ask(nodes: ThreeNodes, target: Sequence[int] | None, at: TopicPartition = T) -> None:
    """Begin a move, or with None stop it."""
    with admin_of(nodes) as admin:
        async with admin:
            (await admin.alter_partition_reassignments({at: target})).unwrap()


async def moves(nodes: ThreeNodes) -> dict[TopicPartition, Reassignment]:
    with admin_of(nodes) as admin:
        async with admin:
            return await admin.list_partition_reassignments()


def move(nodes: ThreeNodes, *target: int, at: TopicPartition = T) -> None:
    """Move a partition, and wait until it is there and nowhere else."""
    nodes.run(ask(nodes, target, at))
    wait_for(nodes, target, at)


def wait_for(nodes: ThreeNodes, target: Sequence[int], at: TopicPartition = T) -> None:
    def is_there() -> bool:
        found = nodes.partition(at.topic, at.partition)
        return (
            found is not None
            and found.replicas == tuple(target)
            and set(found.isr) == set(target)
            and with_log(nodes, at) == set(target)
        )

    nodes.wait_until(is_there)


def with_log(nodes: ThreeNodes, at: TopicPartition = T) -> set[int]:
    """Return the nodes that have a replica and its log."""
    found = set()
    for node_id in IDS:
        if nodes.machines[node_id].is_serving:
            broker = nodes.node(node_id).broker
            has_replica = broker.replicas.find(at) is not None
            assert has_replica == (broker.store.get(at) is not None)
            if has_replica:
                found.add(node_id)
    return found


@contextmanager
def a_topic(nodes_of_t: Sequence[int] = (1,), **configs: str) -> Iterator[ThreeNodes]:
    with three_nodes(**configs) as nodes:
        nodes.run(nodes.create("t", nodes_of_t))
        nodes.wait_until(lambda: with_log(nodes) == set(nodes_of_t))
        yield nodes


def values_in(nodes: ThreeNodes, node_id: int) -> int:
    return nodes.replica(node_id, "t").log.high_watermark


def test_a_partition_moves_with_its_records_and_leaves_nothing_behind() -> None:
    with a_topic() as nodes:
        nodes.run(nodes.send(b"1", b"2", topic="t"))
        epoch = nodes.replica(1, "t").leader_epoch
        for target in ((2,), (3, 1), (1, 2, 3), (2,)):
            move(nodes, *target)
            nodes.run(nodes.send(b"more", topic="t"))
        nodes.wait_until(lambda: values_in(nodes, 2) == 6)
        assert nodes.leader("t") == 2
        assert nodes.replica(2, "t").leader_epoch > epoch
        assert nodes.run(moves(nodes)) == {}


def test_a_producer_and_a_group_follow_a_partition_around() -> None:
    """Each send is acknowledged by all in sync, while the partition goes from node to node."""
    with a_topic((1, 2), min_insync_replicas="2", offsets_topic_num_partitions="1") as nodes:
        sent: list[bytes] = []

        async def produce() -> None:
            async with Producer(
                bootstrap_servers=nodes.layout.bootstrap_servers,
                random=nodes.world.random("producer"),
                now_ms=nodes.client.clock.now_ms,
            ) as producer:
                while not is_over:
                    value = b"%d" % len(sent)
                    await (await producer.send("t", value, partition=0))
                    sent.append(value)

        is_over = False
        task = nodes.client.spawn(produce())
        for target in ((2, 3), (3, 1), (1, 2), (2, 3, 1), (1, 3)):
            count = len(sent)
            move(nodes, *target)
            nodes.wait_until(lambda count=count: len(sent) > count + 3)  # type: ignore[misc]
        is_over = True
        nodes.world.run_until_done(task, 60)
        nodes.wait_until(lambda: values_in(nodes, 1) == values_in(nodes, 3) == len(sent))
        assert nodes.run(nodes.read_all("t")) == sent


@pytest.mark.seed_row("0.14")
def test_offsets_of_groups_get_more_replicas_and_outlive_their_first_broker() -> None:
    """Row 0.14: a topic of offsets with one replica is widened to three."""
    configs = {"offsets_topic_num_partitions": "2", "offsets_topic_replication_factor": "1"}
    with three_nodes(**configs) as nodes:
        nodes.run(commit(nodes, 1))
        for number in (0, 1):
            found = nodes.partition(GROUPS, number)
            assert found is not None
            first = found.replicas[0]
            others = [each for each in IDS if each != first]
            move(nodes, first, *others, at=TopicPartition(GROUPS, number))
        nodes.run(commit(nodes, 2))
        coordinator = next(
            each for each in IDS if any(nodes.node(each).broker.groups.loaded_shards())
        )
        nodes.machines[coordinator].kill()
        assert nodes.run(committed(nodes)) == 2
        nodes.run(commit(nodes, 3))
        nodes.machines[coordinator].start()


def test_a_coordinator_moves_with_its_partition() -> None:
    configs = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "1"}
    with three_nodes(**configs) as nodes:
        at = TopicPartition(GROUPS, 0)
        nodes.run(commit(nodes, 1))
        for offset, node_id in enumerate((2, 3, 1, 3), 2):
            move(nodes, node_id, at=at)
            assert nodes.run(committed(nodes)) == offset - 1
            nodes.run(commit(nodes, offset))
            others = [each for each in IDS if each != node_id]
            assert not any(any(nodes.node(each).broker.groups.loaded_shards()) for each in others)


def test_a_transaction_goes_on_while_its_coordinator_moves() -> None:
    configs = {
        "transaction_state_log_num_partitions": "1",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
    }
    with a_topic((1, 2), **configs) as nodes:
        state = TopicPartition("__transaction_state", 0)

        async def transact() -> None:
            async with Producer(
                bootstrap_servers=nodes.layout.bootstrap_servers,
                random=nodes.world.random("producer"),
                now_ms=nodes.client.clock.now_ms,
                transactional_id="mover",
            ) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                await (await producer.send("t", b"1", partition=0))
                first = nodes.partition(state.topic)
                assert first is not None
                target = [each for each in IDS if each not in first.replicas]
                await ask(nodes, target[:1], state)
                await ask(nodes, (3,))
                await (await producer.send("t", b"2", partition=0))
                await producer.commit_transaction()

        nodes.run(transact())
        wait_for(nodes, (3,))
        assert nodes.run(nodes.read_all("t", isolation_level="read_committed")) == [b"1", b"2"]


def test_a_move_that_cannot_go_on_can_be_stopped() -> None:
    with a_topic() as nodes:
        nodes.run(nodes.send(b"1", topic="t"))
        away = 3 if nodes.node(1).metadata.leader_id != 3 else 2
        nodes.machines[away].kill()
        nodes.wait_until(lambda: away not in nodes.isr())
        nodes.run(ask(nodes, (away,)))
        assert nodes.run(moves(nodes)) == {T: Reassignment((away, 1), (away,), (1,))}
        nodes.run(nodes.send(b"2", topic="t"))
        nodes.machines[away].start()
        nodes.machines[away].kill()  # before or after it knows that it is to have a replica
        nodes.run(ask(nodes, None))
        wait_for(nodes, (1,))
        nodes.machines[away].start()
        nodes.wait_until(lambda: nodes.isr() == set(IDS))
        wait_for(nodes, (1,))
        nodes.run(nodes.send(b"3", topic="t"))
        assert values_in(nodes, 1) == 3


def test_a_topic_is_deleted_and_made_again_while_it_moves() -> None:
    with a_topic() as nodes:
        nodes.run(nodes.send(b"old", topic="t"))

        async def delete() -> None:
            with admin_of(nodes) as admin:
                async with admin:
                    (await admin.delete_topics(["t"])).unwrap()

        nodes.run(ask(nodes, (2,)))
        nodes.run(delete())
        nodes.run(nodes.create("t", (2,)))
        wait_for(nodes, (2,))
        nodes.run(nodes.send(b"new", topic="t"))
        assert nodes.run(nodes.read_all("t")) == [b"new"]
        assert nodes.run(moves(nodes)) == {}
