"""Why a move of a partition is not over: which brokers it waits for, and how long that may take.

A move waits until what it adds is in sync; if it takes more replicas away than it adds, until all
that stay are. A replica that is not in sync is on a broker that does not run, or it catches up: how
fast is seen by looking twice.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import ConfigResource
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.partitions import Reassignment
from odradek.client.admin.topics import PartitionDescription
from odradek.core.ids import TopicPartition

NO_LEADER: Final = -1
LOOK_SECONDS: Final = 1.0
LOOK_MS_MAX: Final = 3_000
"""What is not known by then is left out: a broker may have died, or not begun with a replica."""
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_SECONDS_PER_MINUTE: Final = 60
_STEP: Final = 1000
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


class Copy(NamedTuple):
    """How much of a partition a replica has."""

    end: int
    size_bytes: int


class Cluster(NamedTuple):
    """What is known of the brokers and the partitions that move."""

    running: frozenset[int]
    partitions: Mapping[TopicPartition, PartitionDescription]
    before: Mapping[TopicPartitionReplica, Copy]
    after: Mapping[TopicPartitionReplica, Copy]
    seconds: float
    """Between the two."""
    rates: Mapping[int, int]
    """Bytes a second to which brokers throttle replication."""


def waits_for(move: Reassignment, isr: Collection[int]) -> list[int]:
    """Return the brokers whose replicas a move wants in sync first."""
    adding, removing = move.adding_replicas, move.removing_replicas
    remaining = [each for each in move.replicas if each not in removing]
    wanted = remaining if len(adding) < len(removing) else list(adding)
    missing = [each for each in wanted if each not in isr]
    if not missing and not set(remaining).intersection(isr):
        return remaining
    return missing


def explain(key: TopicPartition, move: Reassignment, seen: Cluster) -> list[str]:
    """Return a sentence for each thing that a move waits for."""
    partition = seen.partitions.get(key)
    if partition is None:
        return []
    if partition.leader == NO_LEADER:
        known = ", ".join(map(str, partition.isr or partition.eligible_leader_replicas or ()))
        start = f"start one of {known}" if known else "elect one with odradek leader-election"
        return [f"{key} has no leader, so no replica can catch up: {start}"]
    missing = waits_for(move, partition.isr)
    if not missing:
        return [f"{key} is about to be done"]
    return [_sentence(key, partition.leader, each, seen) for each in missing]


def _sentence(key: TopicPartition, leader: int, broker: int, seen: Cluster) -> str:
    waits = f"{key} waits for broker {broker}"
    if broker not in seen.running:
        return f"{waits}, which does not run: start it, or stop the move with --cancel"
    source, target = TopicPartitionReplica(*key, leader), TopicPartitionReplica(*key, broker)
    goal = seen.after.get(source)
    if goal is None:
        return f"{waits}, which is not in sync yet"
    has = seen.after.get(target, Copy(0, 0))
    records = goal.end - has.end
    if records <= 0:
        return f"{waits}, which has all records and is about to be in sync"
    behind = max(goal.size_bytes - has.size_bytes, 0)
    parts = [f"{waits}, which lacks {records} records ({in_bytes(behind)})", _pace(seen, target)]
    limits = [seen.rates[each] for each in (leader, broker) if each in seen.rates]
    if limits:
        parts.append(f"replication is throttled to {in_bytes(min(limits))}/s")
    lacked = _lacked(seen, source, target)
    if lacked is not None and lacked > records:
        minutes = records / (lacked - records) * seen.seconds / _SECONDS_PER_MINUTE
        parts.append(f"about {max(round(minutes), 1)} min left")
    elif lacked is not None and has.end > seen.before[target].end:
        parts.append("as fast as producers write, so this does not end")
    return "; ".join(parts)


def _pace(seen: Cluster, target: TopicPartitionReplica) -> str:
    before, after = seen.before.get(target), seen.after.get(target)
    if before is None or after is None or after.end <= before.end:
        return f"nothing arrived in {seen.seconds:.0f} s"
    gained = max(after.size_bytes - before.size_bytes, 0)
    return f"{in_bytes(gained / seen.seconds)}/s arrive"


def _lacked(
    seen: Cluster, source: TopicPartitionReplica, target: TopicPartitionReplica
) -> int | None:
    """Return how many records a replica lacked before."""
    if source not in seen.before or target not in seen.before:
        return None
    return seen.before[source].end - seen.before[target].end


def in_bytes(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < _STEP:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= _STEP
    return f"{count:.1f} {_UNITS[-1]}"


async def explanations(
    admin: Admin, moves: Mapping[TopicPartition, Reassignment]
) -> dict[TopicPartition, list[str]]:
    """Ask the cluster why these moves are not over."""
    topics = await admin.describe_topics({key.topic for key in moves})
    partitions = {
        key: each
        for topic in (result.value for result in topics.values())
        if topic is not None
        for each in topic.partitions
        if (key := TopicPartition(topic.name, each.partition)) in moves
    }
    running = frozenset(each.node_id for each in (await admin.describe_cluster()).brokers)
    replicas = [
        TopicPartitionReplica(*key, node_id)
        for key, partition in partitions.items()
        if partition.leader in running
        for node_id in {partition.leader, *waits_for(moves[key], partition.isr)}
        if node_id in running
    ]
    loop = asyncio.get_running_loop()
    begun, before = loop.time(), await _look(admin, replicas)
    if replicas:
        await asyncio.sleep(LOOK_SECONDS)
    seconds = loop.time() - begun
    after = await _look(admin, replicas)
    rates = await _rates(admin, {each.broker for each in replicas})
    seen = Cluster(running, partitions, before, after, seconds, rates)
    return {key: explain(key, move, seen) for key, move in moves.items()}


async def _look(
    admin: Admin, replicas: Sequence[TopicPartitionReplica]
) -> dict[TopicPartitionReplica, Copy]:
    if not replicas:
        return {}
    brokers = {each.broker for each in replicas}
    partitions = {TopicPartition(each.topic, each.partition) for each in replicas}
    ends, dirs = await asyncio.gather(
        admin.list_log_ends(replicas, timeout_ms=LOOK_MS_MAX),
        admin.describe_log_dirs(brokers, partitions=partitions, timeout_ms=LOOK_MS_MAX),
    )
    sizes = {
        TopicPartitionReplica(*key, node_id): replica.size_bytes
        for node_id, result in dirs.items()
        for directory in (result.value or {}).values()
        for key, replica in directory.replicas.items()
        if not replica.is_future
    }
    return {
        replica: Copy(result.value, sizes.get(replica, 0))
        for replica, result in ends.items()
        if result.error is None and result.value is not None
    }


async def _rates(admin: Admin, brokers: Iterable[int]) -> dict[int, int]:
    resources = [ConfigResource.broker(each) for each in sorted(brokers)]
    if not resources:
        return {}
    found = await admin.describe_configs(resources, names=_RATES, timeout_ms=LOOK_MS_MAX)
    return {
        int(resource.name): min(limits)
        for resource, result in found.items()
        if (
            limits := [
                int(entry.value)
                for entry in (result.value or {}).values()
                if entry.value is not None and not entry.is_default
            ]
        )
    }
