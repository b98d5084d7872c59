"""What ``odradek local status`` shows of a cluster, of any Kafka: asked of its brokers, as lines.

Brokers are asked with Metadata, DescribeCluster, DescribeQuorum, DescribeLogDirs and
ListPartitionReassignments only. What one of them does not answer (an older Kafka, a node that is
down) is a dash.
"""

from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from odradek.cli.tables import MISSING, aligned
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import BrokerDescription, QuorumInfo
from odradek.client.admin.configs import ConfigResource
from odradek.client.admin.partitions import Reassignment
from odradek.client.admin.topics import PartitionDescription
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition

NO_LEADER: Final = -1
NAMED_MAX: Final = 3
"""Partitions that are named where there are more of a kind."""
_MIN_ISR: Final = "min.insync.replicas"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_UNIT: Final = 1024

T = TypeVar("T")


class ClusterStatus(NamedTuple):
    cluster_id: str
    brokers: tuple[BrokerDescription, ...]
    quorum: QuorumInfo | None
    partitions: Mapping[TopicPartition, PartitionDescription]
    min_isr: Mapping[str, int]
    """Of topics with a replica that is not in sync."""
    moves: Mapping[TopicPartition, Reassignment]
    disk_bytes: Mapping[int, int]


class LocalProcess(NamedTuple):
    """A node that the supervisor knows."""

    id: int
    roles: str
    state: str
    pid: int | None
    listener: str
    rack: str | None


async def ask_status(admin: Admin) -> ClusterStatus:
    described = await _or_none(admin.describe_cluster(include_fenced_brokers=True))
    if described is None:  # before KIP-1073
        described = await admin.describe_cluster()
    names = [each.name for each in await admin.list_topics(include_internal=True)]
    topics = await admin.describe_topics(names) if names else {}
    partitions = {
        TopicPartition(topic.value.name, each.partition): each
        for topic in topics.values()
        if topic.value is not None
        for each in topic.value.partitions
    }
    lagging = sorted({key.topic for key, each in partitions.items() if _is_lagging(each)})
    return ClusterStatus(
        described.cluster_id,
        described.brokers,
        await _or_none(admin.describe_quorum()),
        partitions,
        await _min_isr(admin, lagging),
        await _or_none(admin.list_partition_reassignments()) or {},
        await _disk_bytes(
            admin, [each.node_id for each in described.brokers if not each.is_fenced]
        ),
    )


def status_lines(status: ClusterStatus, processes: Sequence[LocalProcess] = ()) -> list[str]:
    """Return all of it: the quorum, a row for each node, partitions, and what is wrong."""
    return [
        *_quorum_lines(status),
        "",
        *aligned(_node_rows(status, processes)),
        "",
        *_partition_lines(status),
        *_move_lines(status),
        *_explanations(status, processes),
    ]


def process_lines(processes: Iterable[LocalProcess]) -> list[str]:
    """Return what is known of nodes while no broker answers."""
    rows: list[tuple[object, ...]] = [("node", "roles", "state", "pid", "listener", "rack")]
    rows += [
        (each.id, each.roles, each.state, each.pid, each.listener, each.rack) for each in processes
    ]
    return aligned(rows)


def _quorum_lines(status: ClusterStatus) -> list[str]:
    quorum = status.quorum
    if quorum is None:
        return [f"cluster {status.cluster_id}, its quorum does not answer"]
    voters = ", ".join(str(each.replica_id) for each in quorum.voters)
    return [
        f"cluster {status.cluster_id}, active controller {quorum.leader_id}"
        f" (epoch {quorum.leader_epoch}, voters {voters}, metadata offset {quorum.high_watermark})"
    ]


def _node_rows(
    status: ClusterStatus, processes: Sequence[LocalProcess]
) -> list[tuple[object, ...]]:
    known = {each.id: each for each in processes}
    brokers = {each.node_id: each for each in status.brokers}
    quorum = status.quorum
    voters = {each.replica_id for each in quorum.voters} if quorum else set()
    lags = _metadata_lags(quorum)
    leads = Counter(each.leader for each in status.partitions.values())
    has = Counter(node for each in status.partitions.values() for node in each.replicas)
    late = Counter(
        node for each in status.partitions.values() for node in set(each.replicas) - set(each.isr)
    )
    pid = ["pid"] if known else []
    header = ["node", "roles", "state", "listener", "rack", *pid, "leads", "replicas"]
    rows: list[tuple[object, ...]] = [(*header, "not in sync", "metadata lag", "disk")]
    for node_id in sorted({*known, *brokers, *voters}):
        process, broker = known.get(node_id), brokers.get(node_id)
        roles = process.roles if process else _roles(node_id in brokers, node_id in voters)
        listener = process.listener if process else MISSING
        rack = process.rack if process else None
        if broker is not None and process is None:
            listener, rack = f"{broker.host}:{broker.port}", broker.rack
        row: list[object] = [node_id, roles, _state(process, broker), listener, rack]
        if known:
            row.append(process.pid if process else None)
        counts = (leads[node_id], has[node_id], late[node_id]) if broker else (None, None, None)
        disk = status.disk_bytes.get(node_id)
        rows.append((*row, *counts, lags.get(node_id), None if disk is None else shown_bytes(disk)))
    return rows


def _roles(is_broker: bool, is_controller: bool) -> str:
    words = (("broker", is_broker), ("controller", is_controller))
    return ",".join(word for word, is_one in words if is_one)


def _state(process: LocalProcess | None, broker: BrokerDescription | None) -> str:
    state = process.state if process is not None else None
    if state is not None and state != "running":
        return state
    if broker is not None and broker.is_fenced:
        return "fenced" if state is None else f"{state}, fenced"
    return state or "up"


def _metadata_lags(quorum: QuorumInfo | None) -> dict[int, int]:
    if quorum is None:
        return {}
    replicas = (*quorum.voters, *quorum.observers)
    end = max((each.log_end_offset for each in replicas), default=0)
    return {each.replica_id: end - each.log_end_offset for each in replicas}


def _partition_lines(status: ClusterStatus) -> list[str]:
    found = list(status.partitions.values())
    if not found:
        return ["no topics yet"]
    topics = len({key.topic for key in status.partitions})
    offline = [each for each in found if each.leader == NO_LEADER]
    lagging = [each for each in found if _is_lagging(each)]
    short = _under_min_isr(status)
    line = f"{_count(len(found), 'partition')} of {_count(topics, 'topic')}"
    if not offline and not lagging:
        return [f"{line}: all replicas in sync"]
    return [
        f"{line}: {len(lagging)} under-replicated, {len(short)} under {_MIN_ISR},"
        f" {len(offline)} without a leader"
    ]


def _move_lines(status: ClusterStatus) -> list[str]:
    if not status.moves:
        return []
    return [f"{_count(len(status.moves), 'partition')} moving: {_named(status.moves)}"]


def _explanations(status: ClusterStatus, processes: Sequence[LocalProcess]) -> list[str]:
    lines = []
    leaderless = [key for key, each in status.partitions.items() if each.leader == NO_LEADER]
    if leaderless:
        wanted = sorted({node for key in leaderless for node in _may_lead(status.partitions[key])})
        nodes = " or ".join(map(str, wanted))
        lines.append(
            f"{_named(leaderless)} cannot be read or written: the last replicas in sync are on"
            f" node {nodes}, which must come back"
        )
    short = [key for key in _under_min_isr(status) if key not in leaderless]
    if short:
        needed = " or ".join(map(str, sorted({status.min_isr.get(key.topic, 1) for key in short})))
        lines.append(
            f"{_named(short)} takes no records with acks=all: {needed} replicas must be in sync"
            f" ({_MIN_ISR})"
        )
    ended = [each.id for each in processes if each.state in ("died", "stopped")]
    for node_id in ended:
        lines.append(f"node {node_id} does not run: `odradek local restart {node_id}` starts it")
    paused = [each.id for each in processes if each.state == "paused"]
    for node_id in paused:
        lines.append(f"node {node_id} is paused: `odradek local resume {node_id}`")
    return ["", *lines] if lines else []


def _may_lead(partition: PartitionDescription) -> set[int]:
    known = {
        *partition.isr,
        *(partition.eligible_leader_replicas or ()),
        *(partition.last_known_elr or ()),
    }
    return known or set(partition.replicas)


def _under_min_isr(status: ClusterStatus) -> list[TopicPartition]:
    return [
        key
        for key, each in status.partitions.items()
        if len(each.isr) < min(status.min_isr.get(key.topic, 1), len(each.replicas))
    ]


def _is_lagging(partition: PartitionDescription) -> bool:
    return set(partition.replicas) != set(partition.isr)


def _named(partitions: Iterable[TopicPartition]) -> str:
    names = [str(each) for each in sorted(partitions)]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown_bytes(count: float) -> str:
    for unit in _UNITS:
        if count < _UNIT or unit == _UNITS[-1]:
            break
        count /= _UNIT
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


async def _min_isr(admin: Admin, topics: Sequence[str]) -> dict[str, int]:
    if not topics:
        return {}
    resources = [ConfigResource.topic(name) for name in topics]
    answers = await admin.describe_configs(resources, names=[_MIN_ISR])
    return {
        resource.name: int(answer.value[_MIN_ISR].value or 1)
        for resource, answer in answers.items()
        if answer.value is not None and _MIN_ISR in answer.value
    }


async def _disk_bytes(admin: Admin, brokers: Sequence[int]) -> dict[int, int]:
    answers = await admin.describe_log_dirs(brokers) if brokers else {}
    return {
        node_id: sum(
            replica.size_bytes
            for directory in answer.value.values()
            for replica in directory.replicas.values()
        )
        for node_id, answer in answers.items()
        if answer.value is not None
    }


async def _or_none(work: Awaitable[T]) -> T | None:
    try:
        return await work
    except KafkaError:
        return None
