"""The target assignment of a group: who should have what, once everybody has reconciled."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from odradek.coordinator.group.consumer import records
from odradek.coordinator.group.consumer.assignors import Assignor, AssignorInput, AssignorMember
from odradek.coordinator.group.consumer.assignors.range import assign as assign_range
from odradek.coordinator.group.consumer.assignors.uniform import assign as assign_uniform
from odradek.coordinator.group.consumer.member import NOTHING, Member, Partitions
from odradek.coordinator.group.consumer.subscriptions import Subscriptions
from odradek.coordinator.group.topic_view import TopicView
from odradek.coordinator.record import CoordinatorRecord
from odradek.core.ids import Uuid

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def compute_target(
    members: Iterable[Member],
    last_target: Mapping[str, Partitions],
    subscriptions: Subscriptions,
    topics: TopicView,
    assignor: str,
) -> dict[str, Partitions]:
    """Return the part of every member; who kept everything keeps the very same object."""
    existing = _ExistingTopics(subscriptions, topics)
    specs = [
        AssignorMember(
            member.member_id,
            member.instance_id,
            existing.ids_of(member),
            last_target.get(member.member_id, NOTHING),
        )
        for member in members
    ]
    return ASSIGNORS[assignor](AssignorInput(specs, existing.partition_counts))


class _ExistingTopics:
    """The topics of members by id: equal subscriptions get the same set, found once."""

    def __init__(self, subscriptions: Subscriptions, topics: TopicView) -> None:
        self.partition_counts: dict[Uuid, int] = {}
        self._subscriptions = subscriptions
        self._topics = topics
        self._found: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}

    def ids_of(self, member: Member) -> frozenset[Uuid]:
        key = (member.subscribed_topic_names, member.subscribed_topic_regex)
        found = self._found.get(key)
        if found is None:
            found = frozenset(self._find(self._subscriptions.topics_of(member)))
            self._found[key] = found
        return found

    def _find(self, names: Iterable[str]) -> Iterator[Uuid]:
        for name in names:
            topic = self._topics.find(name)
            if topic is not None:
                self.partition_counts[topic.topic_id] = topic.partition_count
                yield topic.topic_id


def target_records(
    group_id: str,
    target: Mapping[str, Partitions],
    last_target: Mapping[str, Partitions],
    epoch: int,
    now_ms: int,
) -> list[CoordinatorRecord]:
    """Return records for the parts that changed, and for the epoch."""
    changed = [
        records.target_assignment(group_id, member_id, partitions)
        for member_id, partitions in target.items()
        if last_target.get(member_id) != partitions
    ]
    return [*changed, records.target_assignment_epoch(group_id, epoch, now_ms)]
