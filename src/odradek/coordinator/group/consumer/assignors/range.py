"""``range``: consecutive partitions of each topic to consecutive members.

Members that subscribe to the same topics get the same numbers of all topics that are equally
large, which is what joins of co-partitioned topics need. Static members come first, ordered by
instance id, so that their ranges survive restarts under new member ids.
"""

from odradek.coordinator.group.consumer.assignors import AssignorInput, AssignorMember
from odradek.coordinator.group.consumer.member import Partitions
from odradek.core.ids import Uuid


def assign(group: AssignorInput) -> dict[str, Partitions]:
    subscribers: dict[Uuid, list[str]] = {}
    for member in sorted(group.members, key=_rank):
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    target: dict[str, dict[Uuid, frozenset[int]]] = {
        member.member_id: {} for member in group.members
    }
    for topic_id, member_ids in sorted(subscribers.items()):
        share, extra = divmod(group.partition_counts[topic_id], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + share + (position < extra)
            if start < end:
                target[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(target)


def _rank(member: AssignorMember) -> tuple[bool, str]:
    return member.instance_id is None, member.instance_id or member.member_id
