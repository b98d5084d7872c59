"""What an unclean election loses, as far as it can be known before and after it.

The new leader's log is what counts from then on. Records that others have after its end are dropped
when these are back. How many that are is known of replicas that run; those that were in sync last
cannot be asked, or the election would not be needed.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.client.admin.admin import Admin
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.topics import PartitionDescription
from odradek.core.ids import TopicPartition

NO_LEADER: Final = -1
LOOKS_MAX: Final = 50
LOOK_SECONDS: Final = 0.1
"""The broker that is asked may be a moment behind the controller that has elected."""


class Leaderless(NamedTuple):
    """A partition before the election."""

    partition: PartitionDescription
    ends: Mapping[int, int]
    """Where the logs end, of the replicas that answer."""


async def find_leaderless(
    admin: Admin, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, Leaderless]:
    """Return the partitions without a leader, of these or of all, and what their replicas have."""
    found = {
        key: each
        for key, each in (await _describe(admin, partitions)).items()
        if each.leader == NO_LEADER
    }
    replicas = [
        TopicPartitionReplica(*key, node_id)
        for key, each in found.items()
        for node_id in each.replicas
        if node_id not in each.offline_replicas
    ]
    answers = (await admin.list_log_ends(replicas)).items() if replicas else ()
    ends = {replica: each.value for replica, each in answers if each.error is None}
    return {
        key: Leaderless(
            each,
            {
                node_id: end
                for node_id in each.replicas
                if (end := ends.get(TopicPartitionReplica(*key, node_id))) is not None
            },
        )
        for key, each in found.items()
    }


async def losses(
    admin: Admin, before: Mapping[TopicPartition, Leaderless], elected: Iterable[TopicPartition]
) -> list[str]:
    """Return a line for each partition that has a leader now."""
    wanted = sorted(each for each in elected if each in before)
    after: dict[TopicPartition, PartitionDescription] = {}
    for _ in range(LOOKS_MAX):
        after = await _describe(admin, wanted)
        if all(key in after and after[key].leader != NO_LEADER for key in wanted):
            break
        await asyncio.sleep(LOOK_SECONDS)
    return [describe_loss(key, before[key], after[key].leader) for key in wanted if key in after]


def describe_loss(key: TopicPartition, before: Leaderless, leader: int) -> str:
    """Say what is lost with a leader that was not in sync; -1 if it is not known who leads."""
    if leader == NO_LEADER:
        return f"{key}: a leader was elected, but brokers do not report yet which one"
    end = before.ends.get(leader)
    if end is None:
        return f"{key}: broker {leader} leads; it did not report where its log ends"
    parts = [f"{key}: broker {leader} leads; its log ends at offset {end}"]
    longest = max(before.ends, key=lambda node_id: before.ends[node_id])
    if before.ends[longest] > end:
        count = before.ends[longest] - end
        parts.append(f"{count} records or more are lost, which broker {longest} has")
    absent = [each for each in last_in_sync(before.partition) if each not in before.ends]
    if absent:
        is_one = len(absent) == 1
        names = ", ".join(map(str, absent))
        has = (
            f"broker {names}, last in sync, has"
            if is_one
            else f"brokers {names}, last in sync, have"
        )
        logs = "its log" if is_one else "their logs"
        parts.append(f"records that {has} after that are lost, too: {logs} will show how many")
    return "; ".join(parts)


def expected_loss(
    ends: Mapping[TopicPartition, Mapping[int, int]],
    last: Mapping[TopicPartition, Collection[int]],
    leader: int,
) -> str:
    """Say what would be lost if a replica led that is not known to have all.

    Args:
        ends: Where the logs end, of the replicas that answer.
        last: The replicas that were in sync last.
        leader: The one that would lead.
    """
    known = [each for each in ends.values() if leader in each]
    if len(known) < len(ends):
        return f"loses what node {leader} lacks: it did not report where its log ends"
    lost = sum(max(each.values()) - each[leader] for each in known)
    absent = sorted(
        {node for key, nodes in last.items() for node in nodes if node not in ends[key]}
    )
    parts = [f"{lost:,} records that another replica has"] if lost else []
    if absent:
        names = f"{'node' if len(absent) == 1 else 'nodes'} {', '.join(map(str, absent))}"
        has = "has" if len(absent) == 1 else "have"
        behind = f"from offset {max(known[0].values())} on" if len(known) == 1 else "alone"
        parts.append(f"what {names} {has} {behind}")
    return f"loses {' and '.join(parts) or 'nothing that another replica has'}"


def last_in_sync(partition: PartitionDescription) -> list[int]:
    """Return the replicas that had all committed records, or may have had."""
    known = (
        *partition.isr,
        *(partition.eligible_leader_replicas or ()),
        *(partition.last_known_elr or ()),
    )
    return sorted(set(known))


async def _describe(
    admin: Admin, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, PartitionDescription]:
    if partitions is None:
        names = {each.name for each in await admin.list_topics(include_internal=True)}
    else:
        names = {each.topic for each in partitions}
    described = await admin.describe_topics(names) if names else {}
    found = {
        TopicPartition(topic.name, each.partition): each
        for topic in (result.value for result in described.values())
        if topic is not None
        for each in topic.partitions
    }
    if partitions is None:
        return found
    return {key: found[key] for key in partitions if key in found}
