"""Who is in a consumer group, and what requests of both protocols do about it.

Holds the group's state, durable and soft. Planning methods return records; durable state changes
by replay alone.
"""

from collections.abc import Sequence
from random import Random

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer import records
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.conversion import downgrade, may_downgrade
from odradek.coordinator.group.consumer.group_state import GroupState
from odradek.coordinator.group.consumer.member import Member, Partitions
from odradek.coordinator.group.consumer.planning import MemberPlan
from odradek.coordinator.group.consumer.timers import Timers
from odradek.coordinator.group.topic_view import TopicView, metadata_hash
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode


class Membership:
    def __init__(self, group_id: str, config: ConsumerGroupConfig, random: Random) -> None:
        self.state = GroupState(group_id)
        self.config = config
        self.random = random

        # Soft.
        self.timers = Timers()
        self._seen: tuple[int, int] | None = None
        self._successor: ClassicGroup | None = None

    def find_member(self, member_id: str, instance_id: str | None) -> Member | None:
        """Return whoever has the instance id, or without one, the member id."""
        if instance_id is None:
            return self.state.members.get(member_id)
        return self.state.static_member(instance_id)

    def check_room(self, member_id: str, instance_id: str | None) -> None:
        """Raise GROUP_MAX_SIZE_REACHED for a member that would be one too many."""
        members = self.state.members
        if len(members) < self.config.group_size_max or member_id in members:
            return
        if instance_id not in self.state.static_members:  # else it replaces one
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{self.config.group_size_max} members.",
            )

    def bring_up_to_date(self, plan: MemberPlan, topics: TopicView) -> None:
        """Raise the group epoch in ``plan`` if its subscriptions or the topics changed."""
        is_forced = plan.refresh_regexes() or plan.subscription_changed
        if is_forced or not self._has_seen(topics.version):
            plan.bump(is_forced=is_forced)
            self._seen = (topics.version, plan.group_epoch)

    def _has_seen(self, version: int) -> bool:
        if self._seen is None:
            return False
        # If the epoch is lower than when we looked, what we planned then was lost.
        seen_version, planned_epoch = self._seen
        return seen_version == version and planned_epoch <= self.state.group_epoch

    def fence(
        self,
        leaving: list[Member],
        now: Instant,
        topics: TopicView,
        replies: tuple[Reply, ...] = (),
    ) -> Result:
        """Remove members, whether they leave or are found dead."""
        if not leaving:
            return Result((), replies)
        gone = dict.fromkeys(member.member_id for member in leaving)
        if may_downgrade(self.state, leaving, self.config):
            staying = [each for each in self.state.members.values() if each.member_id not in gone]
            held = [(each, each.held()) for each in staying]
            return self.hand_over(held, now, topics, replies, is_rebalance=True)
        state = self.state
        planned = [
            record
            for member_id in gone
            for record in records.member_tombstones(state.group_id, member_id)
        ]
        subscriptions = state.subscriptions.copy()
        for member in leaving:
            subscriptions.change(member, None)
        for regex in sorted(state.subscriptions.regexes.keys() - subscriptions.regexes.keys()):
            subscriptions.resolved.pop(regex, None)
            planned.append(records.regex_tombstone(state.group_id, regex))
        hashed = metadata_hash(topics, subscriptions.topic_names())
        planned.append(records.group_epoch(state.group_id, state.group_epoch + 1, hashed))
        return Result(tuple(planned), replies)

    def hand_over(
        self,
        staying: Sequence[tuple[Member, Partitions]],
        now: Instant,
        topics: TopicView,
        replies: tuple[Reply, ...],
        *,
        is_rebalance: bool,
    ) -> Result:
        """End this group and begin a classic one of the members that stay."""
        made = downgrade(
            self.state, staying, topics, self.config, self.random, now, is_rebalance=is_rebalance
        )
        self._successor = made.successor
        return Result((*self.tombstones(), *made.records), (*replies, *made.replies))

    def take_successor(self) -> ClassicGroup | None:
        """Return the classic group that the last result made of this one, if it did."""
        successor, self._successor = self._successor, None
        return successor

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group."""
        state = self.state
        resolved = sorted(state.subscriptions.resolved)
        return records.group_tombstones(state.group_id, state.members, resolved)
