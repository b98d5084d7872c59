"""The durable state of a consumer group: what its records say, and indexes over that.

``replay`` is the only mutator, live and when a coordinator loads the log. While loading it may see
less than was once written, because compaction has removed what was overwritten: a tombstone of
something unknown is nothing, and a member may first be heard of through its assignment. Records
that contradict each other are our bug or another coordinator's; the later one counts.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from odradek.coordinator.group.consumer import records
from odradek.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    AssignedPartitions,
    Member,
    Partitions,
    partitions_of,
)
from odradek.coordinator.group.consumer.records import ResolvedRegex
from odradek.coordinator.group.consumer.subscriptions import Subscriptions
from odradek.coordinator.record import CoordinatorRecord
from odradek.core.ids import Uuid
from odradek.protocol.generated import consumer_group_records as wire

INITIAL_EPOCH: Final = 1
"""A new group's: its first member may join in it with an expression that matches nothing."""
NO_EPOCH: Final = -1


@dataclass
class GroupState:
    group_id: str
    group_epoch: int = INITIAL_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = INITIAL_EPOCH
    assignment_timestamp_ms: int = 0
    """When the target was computed; 0 when that is not known."""
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    has_partition_metadata: bool = False
    """Whether a record of before Kafka 4.1 waits to be removed."""
    is_deleted: bool = False

    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    static_members: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    server_assignors: Counter[str] = field(default_factory=Counter)
    classic_protocols: Counter[str] = field(default_factory=Counter)
    classic_members: int = 0
    holders: dict[Uuid, dict[int, str]] = field(default_factory=dict)
    """Which member holds a partition, assigned or not yet given up."""

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record of this group."""
        key, value = record.key, record.value
        self.is_deleted = False
        match key, value:
            case wire.ConsumerGroupMetadataKey(), wire.ConsumerGroupMetadataValue():
                self.group_epoch = value.epoch
                self.metadata_hash = value.metadata_hash
            case wire.ConsumerGroupMetadataKey(), None:
                self.is_deleted = True
            case wire.ConsumerGroupPartitionMetadataKey(), _:
                self.has_partition_metadata = value is not None
            case wire.ConsumerGroupRegularExpressionKey(), _:
                self._replay_regex(key, value)
            case (
                wire.ConsumerGroupTargetAssignmentMetadataKey(),
                wire.ConsumerGroupTargetAssignmentMetadataValue(),
            ):
                self.assignment_epoch = value.assignment_epoch
                self.assignment_timestamp_ms = value.assignment_timestamp
            case wire.ConsumerGroupTargetAssignmentMetadataKey(), None:
                self.assignment_epoch = NO_EPOCH
                self.assignment_timestamp_ms = 0
            case wire.ConsumerGroupTargetAssignmentMemberKey(), _:
                self._replay_target(key, value)
            case wire.ConsumerGroupMemberMetadataKey(), _:
                self._replay_subscription(key, value)
            case wire.ConsumerGroupCurrentMemberAssignmentKey(), _:
                self._replay_assignment(key, value)
            case _:
                raise AssertionError(f"{type(key).__name__} is no record of a consumer group")

    def _replay_regex(self, key: wire.ConsumerGroupRegularExpressionKey, value: object) -> None:
        if isinstance(value, wire.ConsumerGroupRegularExpressionValue):
            self.subscriptions.resolved[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )
        else:
            self.subscriptions.resolved.pop(key.regular_expression, None)

    def _replay_target(
        self, key: wire.ConsumerGroupTargetAssignmentMemberKey, value: object
    ) -> None:
        if isinstance(value, wire.ConsumerGroupTargetAssignmentMemberValue):
            self.target[key.member_id] = partitions_of(value.topic_partitions)
        else:
            self.target.pop(key.member_id, None)

    def _replay_subscription(self, key: wire.ConsumerGroupMemberMetadataKey, value: object) -> None:
        old = self.members.get(key.member_id)
        if isinstance(value, wire.ConsumerGroupMemberMetadataValue):
            member = old or Member(member_id=key.member_id)
            self._install(old, records.subscribed(member, value))
        elif old is not None:
            self._install(old, None)

    def _replay_assignment(
        self, key: wire.ConsumerGroupCurrentMemberAssignmentKey, value: object
    ) -> None:
        old = self.members.get(key.member_id)
        if isinstance(value, wire.ConsumerGroupCurrentMemberAssignmentValue):
            member = old or Member(member_id=key.member_id)
            self._install(old, records.assigned(member, value))
        elif old is not None:
            gone = replace(
                old,
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                assigned={},
                pending_revocation={},
            )
            self._install(old, gone)

    def _install(self, old: Member | None, new: Member | None) -> None:
        self.subscriptions.change(old, new)
        if old is not None:
            self._forget(old)
        if new is not None:
            self.members[new.member_id] = new
            self._remember(new)

    def _forget(self, old: Member) -> None:
        del self.members[old.member_id]
        self._release(old.member_id, old.assigned)
        self._release(old.member_id, old.pending_revocation)
        # A static member that was replaced is not the one its instance id leads to any more.
        if old.instance_id and self.static_members.get(old.instance_id) == old.member_id:
            del self.static_members[old.instance_id]
        if old.server_assignor is not None:
            _take_one(self.server_assignors, old.server_assignor)
        if old.classic is not None:
            self.classic_members -= 1
            for name, _ in old.classic.protocols:
                _take_one(self.classic_protocols, name)

    def _remember(self, new: Member) -> None:
        self._hold(new.member_id, new.assigned)
        self._hold(new.member_id, new.pending_revocation)
        if new.instance_id:
            self.static_members[new.instance_id] = new.member_id
        if new.server_assignor is not None:
            self.server_assignors[new.server_assignor] += 1
        if new.classic is not None:
            self.classic_members += 1
            self.classic_protocols.update(name for name, _ in new.classic.protocols)

    def _hold(self, member_id: str, partitions: AssignedPartitions) -> None:
        for topic_id, epochs in partitions.items():
            self.holders.setdefault(topic_id, {}).update(dict.fromkeys(epochs, member_id))

    def _release(self, member_id: str, partitions: AssignedPartitions) -> None:
        for topic_id, epochs in partitions.items():
            holders = self.holders.get(topic_id, {})
            for partition in epochs:
                if holders.get(partition) == member_id:
                    del holders[partition]
            if not holders:
                self.holders.pop(topic_id, None)

    def is_held(self, topic_id: Uuid, partition: int) -> bool:
        return partition in self.holders.get(topic_id, NOTHING)

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def preferred_assignor(self, old: Member | None, new: Member | None) -> str | None:
        """Return what most members ask for, once ``new`` has taken the place of ``old``."""
        counts = self.server_assignors.copy()
        if old is not None and old.server_assignor is not None:
            _take_one(counts, old.server_assignor)
        if new is not None and new.server_assignor is not None:
            counts[new.server_assignor] += 1
        return max(counts, key=lambda name: (counts[name], name), default=None)

    def check_invariants(self) -> None:
        self._check_epochs()
        held = [
            (topic_id, partition, member.member_id)
            for member in self.members.values()
            for partitions in (member.assigned, member.pending_revocation)
            for topic_id, epochs in partitions.items()
            for partition in epochs
        ]
        assert len(held) == sum(map(len, self.holders.values())), "a partition is held twice"
        for topic_id, partition, member_id in held:
            assert self.holders[topic_id][partition] == member_id
        assert self._reindexed() == self

    def _check_epochs(self) -> None:
        assert self.assignment_epoch <= self.group_epoch
        assert self.target.keys() <= self.members.keys()
        for member_id, member in self.members.items():
            assert member.member_id == member_id
            assert STATIC_LEAVE_EPOCH <= member.member_epoch <= self.assignment_epoch
            assert all(member.assigned.values())
            assert all(member.pending_revocation.values())

    def _reindexed(self) -> "GroupState":
        """Return the same state with all indexes made anew."""
        fresh = replace(
            self,
            members={},
            subscriptions=Subscriptions(resolved=self.subscriptions.resolved),
            static_members={},
            server_assignors=Counter(),
            classic_protocols=Counter(),
            classic_members=0,
            holders={},
        )
        for member in self.members.values():
            fresh._install(None, member)
        return fresh


def _take_one(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
