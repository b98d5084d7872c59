"""Clusters in a described state, for tests of what is said about them."""

from collections.abc import Mapping, Sequence

from odradek.cli.broker_reach import Reach
from odradek.cli.cluster_facts import ClusterStatus, LocalProcess
from odradek.client.admin.brokers import BrokerDescription, QuorumInfo, QuorumReplica
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.topics import PartitionDescription
from odradek.core.ids import ZERO_UUID, TopicPartition

NODES = (1, 2, 3)
NOW_MS = 1_000_000
END = 900
T0 = TopicPartition("t", 0)


def partition(
    leader: int = 1,
    isr: Sequence[int] = NODES,
    *,
    number: int = 0,
    elr: Sequence[int] = (),
    last: Sequence[int] = (),
    offline: Sequence[int] = (),
) -> PartitionDescription:
    return PartitionDescription(
        number, leader, 1, NODES, tuple(isr), tuple(offline), tuple(elr), tuple(last)
    )


def replica(
    node: int, end: int = END, fetched_ms: int = NOW_MS, caught_up_ms: int = NOW_MS
) -> QuorumReplica:
    return QuorumReplica(node, ZERO_UUID, end, fetched_ms, caught_up_ms)


def cluster(
    *partitions: PartitionDescription,
    fenced: Sequence[int] = (),
    silent_s: Mapping[int, int] | None = None,
    reach: Mapping[int, Reach] | None = None,
    ends: Mapping[int, int] | None = None,
) -> ClusterStatus:
    """Return a cluster of three nodes.

    ``silent_s`` is how long ago nodes fetched metadata, ``ends`` where the logs of their replicas
    end.
    """
    fetched = {node: NOW_MS - 1_000 * (silent_s or {}).get(node, 0) for node in NODES}
    voters = tuple(replica(node, END, fetched[node], fetched[node]) for node in NODES)
    found = {TopicPartition("t", each.partition): each for each in partitions}
    return ClusterStatus(
        "an-id",
        tuple(BrokerDescription(n, "127.0.0.1", 9091 + n, None, n in fenced) for n in NODES),
        QuorumInfo(1, 7, END, voters, ()),
        found,
        {"t": 2},
        {},
        {node: 0 for node in NODES if node not in fenced},
        log_ends={
            TopicPartitionReplica(*key, node): end
            for key in found
            for node, end in (ends or {}).items()
        },
        reach=reach or {},
    )


def processes(**states: str) -> list[LocalProcess]:
    """Return the nodes of a local cluster; those that are not named run: ``n2="died"``."""
    return [
        LocalProcess(
            node,
            "broker,controller",
            states.get(f"n{node}", "running"),
            10 + node,
            f"127.0.0.1:{9091 + node}",
            None,
        )
        for node in NODES
    ]
