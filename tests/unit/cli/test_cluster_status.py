"""The lines of `odradek local status`, from what brokers and the supervisor answered."""

import json

from odradek.cli.broker_reach import Reach
from odradek.cli.cluster_facts import ClusterStatus, LocalProcess
from odradek.cli.cluster_status import process_lines, shown_bytes, status_json, status_lines
from odradek.cli.explanations import explain
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
        reach={2: Reach.REFUSED},
    )


def partition(index: int, leader: int, isr: tuple[int, ...]) -> PartitionDescription:
    return PartitionDescription(index, leader, 1, (1, 2, 3), isr)


def test_a_cluster_in_order_is_a_table_and_one_line() -> None:
    lines = status_lines(status(partition(0, 1, (1, 2, 3)), partition(1, 3, (1, 2, 3))), ())
    assert lines[0] == (
        "cluster an-id, active controller 3 (epoch 7, voters 1, 3, metadata offset 900)"
    )
    assert [line.split() for line in lines[3:6]] == [
        ["1", "broker,controller", "up", "127.0.0.1:9092", "b", "1", "2", "0", "5", "2.0", "KiB"],
        ["2", "broker", "fenced", "127.0.0.1:9093", "a", "0", "2", "0", "505", "-"],
        ["3", "broker,controller", "up", "127.0.0.1:9094", "b", "1", "2", "0", "0", "0", "B"],
    ]
    assert lines[7:] == ["2 partitions of 1 topic: all replicas in sync"]


def test_what_is_wrong_is_said_below_the_counts() -> None:
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
    findings = explain(found, processes)
    lines = status_lines(found, findings, processes)
    assert lines[7:10] == [
        "3 partitions of 1 topic: 3 under-replicated, 2 under min.insync.replicas,"
        " 1 without a leader",
        "1 partition moving: t-2",
        "",
    ]
    assert lines[10:] == [each.sentence for each in findings]
    assert [line.split()[2] for line in lines[3:6]] == ["running", "died", "paused"]


def test_json_has_the_table_and_the_findings() -> None:
    found = status(partition(0, -1, (2,)), partition(1, 1, (1, 2, 3)))
    findings = explain(found)
    shown = json.loads(json.dumps(status_json(found, findings)))
    assert shown["nodes"][1] == {
        "node": 2,
        "roles": "broker",
        "state": "fenced",
        "listener": "127.0.0.1:9093",
        "rack": "a",
        "leads": 0,
        "replicas": 2,
        "notInSync": 0,
        "metadataLag": 505,
        "diskBytes": None,
    }
    assert shown["nodes"][0]["diskBytes"] == 2048
    assert (shown["clusterId"], shown["controllerId"], shown["partitions"]) == ("an-id", 3, 2)
    assert shown["withoutLeader"] == shown["underMinIsr"] == [{"topic": "t", "partition": 0}]
    assert shown["findings"] == [
        {
            "state": "noLeader",
            "sentence": findings[0].sentence,
            "partitions": [{"topic": "t", "partition": 0}],
            "nodes": [2],
        },
        {"state": "nodeDown", "sentence": findings[1].sentence, "partitions": [], "nodes": [2]},
    ]


def test_without_a_quorum_or_topics_the_rest_is_shown() -> None:
    lines = status_lines(status()._replace(quorum=None), ())
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
