"""A member of a consumer group, as a value: planning makes new ones, replay installs them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from odradek.core.ids import Uuid

Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id; no topic without partitions. Never changed in place."""
AssignedPartitions: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which its member got it (KIP-1251)."""

NOTHING: Final[Partitions] = {}

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that will be back: it keeps its assignment while its session lasts."""


class MemberState(IntEnum):
    """What a member still has to do; numbers are those of the record."""

    STABLE = 0  # nothing: it has its target, as far as it knows
    UNREVOKED_PARTITIONS = 1  # give up partitions before it may advance
    UNRELEASED_PARTITIONS = 2  # wait for partitions that others have not given up yet
    UNKNOWN = 127  # written by a newer coordinator; the member has to start again

    @classmethod
    def of(cls, value: int) -> "MemberState":
        return cls(value) if value in _STATES else cls.UNKNOWN


_STATES: Final = frozenset(int(state) for state in MemberState)


class ClassicMetadata(NamedTuple):
    """What is kept of a member that speaks the classic protocol inside a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names with their embedded subscriptions, in the member's order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    """Empty when there is none: librdkafka sends "" for that, others null."""
    server_assignor: str | None = None
    assigned: AssignedPartitions = field(default_factory=dict)
    pending_revocation: AssignedPartitions = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def assignment_epoch_of(self, topic_id: Uuid, partition: int) -> int | None:
        """Return since which epoch the member holds a partition; None if it does not."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def held(self) -> Partitions:
        """Return what the member answers for: assigned, or not yet given up."""
        topics = {**self.assigned, **self.pending_revocation}
        return {
            topic_id: frozenset(self.assigned.get(topic_id, {})).union(
                self.pending_revocation.get(topic_id, {})
            )
            for topic_id in topics
        }

    def at_epoch(self, member_epoch: int) -> "Member":
        """Return the member advanced to an epoch, which it may be in already."""
        return replace(self, member_epoch=member_epoch, previous_member_epoch=self.member_epoch)


class _TopicPartitions(Protocol):
    topic_id: Uuid
    partitions: list[int]


def partitions_of(topics: Iterable[_TopicPartitions]) -> Partitions:
    """Return the partitions of a request or a record."""
    found: dict[Uuid, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()).union(topic.partitions)
    return found


def with_epoch(partitions: Partitions, epoch: int) -> AssignedPartitions:
    return {topic_id: dict.fromkeys(sorted(held), epoch) for topic_id, held in partitions.items()}


def contains_all(assigned: AssignedPartitions, partitions: Partitions) -> bool:
    return all(held <= assigned.get(topic_id, {}).keys() for topic_id, held in partitions.items())
