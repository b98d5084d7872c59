"""What ``odradek local status`` knows of a cluster, of any Kafka: asked of its brokers.

Brokers are asked with Metadata, DescribeCluster, DescribeQuorum, DescribeLogDirs and
ListPartitionReassignments. Where something is wrong they are asked for more: where the logs of
replicas end (ListOffsets), what moves wait for, and whether brokers that the cluster misses answer
at their addresses. What is not answered (by an older Kafka, or a node that is down) is left out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from odradek.cli.broker_reach import Reach
from odradek.cli.reassignment_progress import explanations
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import BrokerDescription, ClusterDescription, QuorumInfo
from odradek.client.admin.configs import ConfigResource
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.partitions import Reassignment
from odradek.client.admin.topics import PartitionDescription
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.replication.isr_flaps import Flapping

NO_LEADER: Final = -1
MIN_ISR: Final = "min.insync.replicas"
ANSWER_MS_MAX: Final = 3_000
"""For what a part of a cluster may not answer: without a controller, for example."""
LOG_ENDS_MAX: Final = 2_000
"""Replicas whose logs are asked for their ends; and below, moves and brokers that are looked at."""
MOVES_MAX: Final = 3
REACHES_MAX: Final = 20

T = TypeVar("T")
Partitions = Mapping[TopicPartition, PartitionDescription]
AskReach = Callable[[BrokerDescription], Awaitable[Reach]]


class ClusterStatus(NamedTuple):
    cluster_id: str
    brokers: tuple[BrokerDescription, ...]
    quorum: QuorumInfo | None
    partitions: Partitions
    min_isr: Mapping[str, int]
    """Of topics with a replica that is not in sync."""
    moves: Mapping[TopicPartition, Reassignment]
    disk_bytes: Mapping[int, int]
    """Of brokers that answer."""
    log_ends: Mapping[TopicPartitionReplica, int] = {}
    """Of replicas that answer, where one is not in sync."""
    reach: Mapping[int, Reach] = {}
    """Of brokers that are fenced, or did not answer."""
    move_reasons: Mapping[TopicPartition, Sequence[str]] = {}
    """What the first few moves wait for."""
    flapping: Sequence[Flapping] = ()

    @property
    def leaderless(self) -> list[TopicPartition]:
        return sorted(key for key, each in self.partitions.items() if each.leader == NO_LEADER)

    @property
    def under_min_isr(self) -> list[TopicPartition]:
        return sorted(
            key for key, each in self.partitions.items() if len(each.isr) < self.needed_isr(key)
        )

    def needed_isr(self, key: TopicPartition) -> int:
        """Return how many replicas must be in sync for acks=all."""
        return min(self.min_isr.get(key.topic, 1), len(self.partitions[key].replicas))


NOTHING_KNOWN: Final = ClusterStatus("", (), None, {}, {}, {}, {})
"""Of a cluster no broker of which answers."""


class LocalProcess(NamedTuple):
    """A node that the supervisor knows."""

    id: int
    roles: str
    state: str
    pid: int | None
    listener: str
    rack: str | None


async def ask_status(
    admin: Admin, ask_reach: AskReach, flapping: Sequence[Flapping] = ()
) -> ClusterStatus:
    """Ask for all of it; ``ask_reach`` tries the address of a broker that the cluster misses."""
    described = await _describe_cluster(admin)
    partitions = await ask_partitions(admin)
    lagging = {key: each for key, each in partitions.items() if is_lagging(each)}
    unfenced = [each for each in described.brokers if not each.is_fenced]
    quorum, moves, min_isr, disk_bytes, log_ends = await asyncio.gather(
        _or_none(admin.describe_quorum(timeout_ms=ANSWER_MS_MAX)),
        _or_none(admin.list_partition_reassignments(timeout_ms=ANSWER_MS_MAX)),
        _min_isr(admin, sorted({key.topic for key in lagging})),
        _disk_bytes(admin, [each.node_id for each in unfenced]),
        _log_ends(admin, lagging, {each.node_id for each in unfenced}),
    )
    silent = [each for each in described.brokers if each.node_id not in disk_bytes]
    explained = dict(sorted((moves or {}).items())[:MOVES_MAX])
    reach, reasons = await asyncio.gather(
        _reaches(silent, ask_reach),
        _or_none(explanations(admin, explained)) if explained else _nothing(),
    )
    return ClusterStatus(
        described.cluster_id,
        described.brokers,
        quorum,
        partitions,
        min_isr,
        moves or {},
        disk_bytes,
        log_ends,
        reach,
        reasons or {},
        flapping,
    )


async def _describe_cluster(admin: Admin) -> ClusterDescription:
    described = await _or_none(admin.describe_cluster(include_fenced_brokers=True))
    return described or await admin.describe_cluster()  # before KIP-1073


async def ask_partitions(admin: Admin) -> dict[TopicPartition, PartitionDescription]:
    names = [each.name for each in await admin.list_topics(include_internal=True)]
    topics = await admin.describe_topics(names) if names else {}
    return {
        TopicPartition(topic.value.name, each.partition): each
        for topic in topics.values()
        if topic.value is not None
        for each in topic.value.partitions
    }


def is_lagging(partition: PartitionDescription) -> bool:
    return set(partition.replicas) != set(partition.isr)


async def _min_isr(admin: Admin, topics: Sequence[str]) -> dict[str, int]:
    if not topics:
        return {}
    resources = [ConfigResource.topic(name) for name in topics]
    answers = await admin.describe_configs(resources, names=[MIN_ISR])
    return {
        resource.name: int(answer.value[MIN_ISR].value or 1)
        for resource, answer in answers.items()
        if answer.value is not None and MIN_ISR in answer.value
    }


async def _disk_bytes(admin: Admin, brokers: Sequence[int]) -> dict[int, int]:
    if not brokers:
        return {}
    answers = await admin.describe_log_dirs(brokers, timeout_ms=ANSWER_MS_MAX)
    return {
        node_id: sum(
            replica.size_bytes
            for directory in answer.value.values()
            for replica in directory.replicas.values()
        )
        for node_id, answer in answers.items()
        if answer.value is not None
    }


async def _log_ends(
    admin: Admin, partitions: Partitions, brokers: Iterable[int]
) -> dict[TopicPartitionReplica, int]:
    known = set(brokers)
    replicas = [
        TopicPartitionReplica(*key, node_id)
        for key, each in sorted(partitions.items())
        for node_id in each.replicas
        if node_id in known and node_id not in each.offline_replicas
    ][:LOG_ENDS_MAX]
    if not replicas:
        return {}
    answers = await _or_none(admin.list_log_ends(replicas, timeout_ms=ANSWER_MS_MAX))
    return {key: each.value for key, each in (answers or {}).items() if each.value is not None}


async def _reaches(brokers: Sequence[BrokerDescription], ask_reach: AskReach) -> dict[int, Reach]:
    asked = brokers[:REACHES_MAX]
    found = await asyncio.gather(*(ask_reach(each) for each in asked))
    return {each.node_id: reach for each, reach in zip(asked, found, strict=True)}


async def _nothing() -> None:
    return None


async def _or_none(work: Awaitable[T]) -> T | None:
    try:
        return await work
    except KafkaError:
        return None
