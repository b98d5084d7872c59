"""The lines of `odradek local status`, from what brokers and the supervisor answered."""

from odradek.cli.cluster_status import (
    ClusterStatus,
    LocalProcess,
    process_lines,
    shown_bytes,
    status_lines,
)
from odradek.client.admin.brokers import BrokerDescription, QuorumInfo, QuorumReplica
from odradek.client.admin.partitions import Reassignment
from odradek.client.admin.topics import PartitionDescription
from odradek.core.ids import ZERO_UUID, TopicPartition


def replica(node_id: int, end: int) -> QuorumReplica:
    return QuorumReplica(node_id, ZERO_UUID, end, -1, -1)


def status(
    *partitions: PartitionDescription, moves: dict[TopicPartition, Reassignment] | None = None
) -> ClusterStatus:
    brokers = tuple(
        BrokerDescription(n, "127.0.0.1", 9091 + n, "ab"[n % 2], is_fenced=n == 2)
        for n in (1, 2, 3)
    )
    quorum = QuorumInfo(3, 7, 900, (replica(1, 900), replica(3, 905)), (replica(2, 400),))
    return ClusterStatus(
        "an-id",
        brokers,
        quorum,
        {TopicPartition("t", each.partition): each for each in partitions},
        {"t": 2},
        moves or {},
        {1: 2048, 3: 0},
    )


def partition(index: int, leader: int, isr: tuple[int, ...]) -> PartitionDescription:
    return PartitionDescription(index, leader, 1, (1, 2, 3), isr)


def test_a_cluster_in_order_is_a_table_and_one_line() -> None:
    lines = status_lines(status(partition(0, 1, (1, 2, 3)), partition(1, 3, (1, 2, 3))))
    assert lines[0] == (
        "cluster an-id, active controller 3 (epoch 7, voters 1, 3, metadata offset 900)"
    )
    assert [line.split() for line in lines[3:6]] == [
        ["1", "broker,controller", "up", "127.0.0.1:9092", "b", "1", "2", "0", "5", "2.0", "KiB"],
        ["2", "broker", "fenced", "127.0.0.1:9093", "a", "0", "2", "0", "505", "-"],
        ["3", "broker,controller", "up", "127.0.0.1:9094", "b", "1", "2", "0", "0", "0", "B"],
    ]
    assert lines[7:] == ["2 partitions of 1 topic: all replicas in sync"]


def test_what_is_wrong_is_said_with_what_to_do() -> None:
    move = Reassignment((1, 2, 3), (3,), ())
    found = status(
        partition(0, -1, (2,)),
        partition(1, 1, (1,)),
        partition(2, 1, (1, 3)),
        moves={TopicPartition("t", 2): move},
    )
    processes = [
        LocalProcess(1, "broker", "running", 11, "127.0.0.1:9092", None),
        LocalProcess(2, "broker", "died", None, "127.0.0.1:9093", None),
        LocalProcess(3, "broker", "paused", 13, "127.0.0.1:9094", None),
    ]
    lines = status_lines(found, processes)
    assert lines[7:] == [
        "3 partitions of 1 topic: 3 under-replicated, 2 under min.insync.replicas,"
        " 1 without a leader",
        "1 partition moving: t-2",
        "",
        "t-0 cannot be read or written: the last replicas in sync are on node 2, which must come"
        " back",
        "t-1 takes no records with acks=all: 2 replicas must be in sync (min.insync.replicas)",
        "node 2 does not run: `odradek local restart 2` starts it",
        "node 3 is paused: `odradek local resume 3`",
    ]
    assert [line.split()[2] for line in lines[3:6]] == ["running", "died", "paused"]


def test_many_partitions_are_counted_and_the_first_are_named() -> None:
    lines = status_lines(status(*(partition(index, -1, (2,)) for index in range(5))))
    assert lines[-1].startswith("t-0, t-1, t-2 and 2 more cannot be read or written")


def test_without_a_quorum_or_topics_the_rest_is_shown() -> None:
    lines = status_lines(status()._replace(quorum=None))
    assert lines[0] == "cluster an-id, its quorum does not answer"
    assert lines[-1] == "no topics yet"


def test_processes_are_shown_while_no_broker_answers() -> None:
    lines = process_lines([LocalProcess(1, "broker", "died", None, "127.0.0.1:9092", "a")])
    assert lines[1].split() == ["1", "broker", "died", "-", "127.0.0.1:9092", "a"]


def test_bytes_are_short() -> None:
    assert [shown_bytes(each) for each in (0, 1023, 1024, 5 * 2**20, 3 * 2**50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3072.0 TiB",
    ]
