"""One member's way through its group, from what it asks for to the records that grant it.

The steps come in Kafka's order, each building on the ones before as if their records had been
replayed: the subscription, the topics that regular expressions stand for, the group epoch, the
target assignment, the member's own assignment.
"""

from collections.abc import Callable
from dataclasses import replace

from odradek.coordinator.group.consumer import records
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.group_state import GroupState
from odradek.coordinator.group.consumer.member import NOTHING, Member, Partitions
from odradek.coordinator.group.consumer.reconciliation import Reconciliation
from odradek.coordinator.group.consumer.records import ResolvedRegex
from odradek.coordinator.group.consumer.subscriptions import resolve
from odradek.coordinator.group.consumer.target_assignment import (
    ASSIGNORS,
    compute_target,
    target_records,
)
from odradek.coordinator.group.topic_view import TopicView, metadata_hash
from odradek.coordinator.record import CoordinatorRecord
from odradek.core.ids import Uuid


class MemberPlan:
    """Changes nothing but itself. ``member`` is what the member will be."""

    def __init__(
        self, state: GroupState, config: ConsumerGroupConfig, topics: TopicView, now_ms: int
    ) -> None:
        self.records: list[CoordinatorRecord] = []
        self.group_epoch = state.group_epoch
        self.assignment_epoch = state.assignment_epoch
        self.subscription_changed = False
        self._state = state
        self._config = config
        self._topics = topics
        self._now_ms = now_ms
        self._subscriptions = state.subscriptions
        self._replaced: Member | None = None
        self._target: Partitions | None = None

    def take_over(self, old: Member, member_id: str) -> Member:
        """Let a static member go on under a new member id, and return it as it then is."""
        state = self._state
        member = replace(old, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self._replaced = old
        if old.member_id != member_id:  # it may come back under the id that it had
            self.records += records.member_tombstones(state.group_id, old.member_id)
        self.records += [
            records.member_subscription(state.group_id, member),
            records.target_assignment(
                state.group_id, member_id, state.target.get(old.member_id, NOTHING)
            ),
            records.current_assignment(state.group_id, member),
        ]
        return member

    def subscribe(self, before: Member, after: Member) -> None:
        if after is before:
            return
        if after != before:
            self.records.append(records.member_subscription(self._state.group_id, after))
        names_changed = after.subscribed_topic_names != before.subscribed_topic_names
        regex_changed = after.subscribed_topic_regex != before.subscribed_topic_regex
        if names_changed or regex_changed:
            self.subscription_changed = True
            self._subscriptions = self._subscriptions.copy()
            self._subscriptions.change(before, after)
        if regex_changed:
            self._change_regex(before.subscribed_topic_regex, after.subscribed_topic_regex)

    def _change_regex(self, old: str, new: str) -> None:
        subscriptions = self._subscriptions
        if old and old not in subscriptions.regexes:
            subscriptions.resolved.pop(old, None)
            self.records.append(records.regex_tombstone(self._state.group_id, old))
        if new and new not in subscriptions.resolved:
            resolved = resolve(new, self._topics, self._now_ms)
            self._put_regex(new, resolved)

    def refresh_regexes(self) -> bool:
        """Resolve regular expressions again if that is due; tell whether one has changed."""
        if not self._subscriptions.resolved:
            return False
        due = self._subscriptions.due_regexes(
            self._topics, self._now_ms, self._config.regex_refresh_interval_ms
        )
        if not due:
            return False
        old = self._subscriptions.resolved
        self._subscriptions = self._subscriptions.copy()
        for regex in due:
            self._put_regex(regex, resolve(regex, self._topics, self._now_ms))
        return any(old[each].topics != self._subscriptions.resolved[each].topics for each in due)

    def _put_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        self._subscriptions.resolved[regex] = resolved
        self.records.append(records.resolved_regex(self._state.group_id, regex, resolved))

    def bump(self, *, is_forced: bool) -> None:
        """Raise the group epoch if the topics it depends on have changed, or in any case."""
        state = self._state
        hashed = metadata_hash(self._topics, self._subscriptions.topic_names())
        if is_forced or hashed != state.metadata_hash:
            self.group_epoch += 1
            self.records.append(records.group_epoch(state.group_id, self.group_epoch, hashed))
        if state.has_partition_metadata:
            self.records.append(records.partition_metadata_tombstone(state.group_id))

    def assign(self, before: Member, after: Member) -> None:
        """Compute the target assignment if it is behind the group and may be replaced already."""
        state = self._state
        if state.assignment_epoch >= self.group_epoch or not self._may_assign():
            return
        last_target = dict(state.target)
        if self._replaced is not None:
            last_target[after.member_id] = last_target.pop(self._replaced.member_id, NOTHING)
        assignor = state.preferred_assignor(before, after) or self._config.assignors[0]
        if assignor not in ASSIGNORS:  # recorded by a coordinator that knows more of them
            assignor = self._config.assignors[0]
        target = compute_target(
            self._members_with(after), last_target, self._subscriptions, self._topics, assignor
        )
        self.assignment_epoch = self.group_epoch
        self._target = target.get(after.member_id, NOTHING)
        self.records += target_records(
            state.group_id, target, last_target, self.group_epoch, self._now_ms
        )

    def _may_assign(self) -> bool:
        interval_ms = self._config.assignment_interval_ms
        computed_ms = self._state.assignment_timestamp_ms
        # No interval is also the way out after the wall clock was set back by far.
        return not computed_ms or not interval_ms or self._now_ms >= computed_ms + interval_ms

    def _members_with(self, after: Member) -> list[Member]:
        members = dict(self._state.members)
        if self._replaced is not None:
            del members[self._replaced.member_id]
        members[after.member_id] = after
        return list(members.values())

    def reconcile(self, member: Member, owned: Callable[[], Partitions | None]) -> Member:
        """Take the member one step on; return it as it then is."""
        if not self.subscription_changed and member.is_reconciled_to(self.assignment_epoch):
            return member
        topic_names = self._subscriptions.topics_of(member)

        def is_subscribed(topic_id: Uuid) -> bool:
            topic = self._topics.find_by_id(topic_id)
            return topic is not None and topic.name in topic_names

        reconciled = Reconciliation(
            assignment_epoch=self.assignment_epoch,
            target=self._target_of(member),
            owned=owned(),
            is_subscribed=is_subscribed,
            subscription_changed=self.subscription_changed,
            is_held=self._state.is_held,
        ).step(member)
        if reconciled == member:
            return member
        self.records.append(records.current_assignment(self._state.group_id, reconciled))
        return reconciled

    def _target_of(self, member: Member) -> Partitions:
        if self._target is not None:
            return self._target
        known = member if self._replaced is None else self._replaced
        return self._state.target.get(known.member_id, NOTHING)
