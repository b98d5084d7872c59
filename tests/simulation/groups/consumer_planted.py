"""Mistakes a coordinator of consumer groups could make, to be planted and to be noticed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from odradek.coordinator.group.consumer import conversion, records
from odradek.coordinator.group.consumer.classic_member import ClassicMembers
from odradek.coordinator.group.consumer.group_state import GroupState
from odradek.coordinator.group.consumer.member import AssignedPartitions, Member
from odradek.coordinator.group.consumer.membership import Membership
from odradek.coordinator.group.consumer.planning import MemberPlan
from odradek.coordinator.group.consumer.reconciliation import Reconciliation
from odradek.coordinator.group.consumer.subscriptions import Subscriptions
from odradek.coordinator.group.consumer.timers import Timers
from odradek.coordinator.record import CoordinatorRecord

Plant = Callable[[pytest.MonkeyPatch], None]


def give_before_it_is_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupState, "is_held", lambda *_: False)


def take_silence_for_consent(patch: pytest.MonkeyPatch) -> None:
    still_owns = Reconciliation._still_owns

    def owns_if_it_says_so(self: Reconciliation, partitions: AssignedPartitions) -> bool:
        return self.owned is not None and still_owns(self, partitions)

    patch.setattr(Reconciliation, "_still_owns", owns_if_it_says_so)


def never_wait_for_revocation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reconciliation, "_still_owns", lambda *_: False)


def sessions_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timers, "take_expired", lambda *_: [])
    patch.setattr(Timers, "next_ms", lambda *_: None)


def forget_what_is_to_be_given_up(patch: pytest.MonkeyPatch) -> None:
    write = records.current_assignment

    def without_pending(group_id: str, member: Member) -> CoordinatorRecord:
        return write(group_id, replace(member, pending_revocation={}))

    patch.setattr(records, "current_assignment", without_pending)


def plan_in_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subscriptions, "copy", lambda self: self)


def never_look_at_topics_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_has_seen", lambda self, _: self._seen is not None)


def leave_regexes_as_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemberPlan, "refresh_regexes", lambda *_: False)


def keep_whom_a_static_member_replaces(patch: pytest.MonkeyPatch) -> None:
    take_over = MemberPlan.take_over

    def keep_the_old_one(self: MemberPlan, old: Member, member_id: str) -> Member:
        member = take_over(self, old, member_id)
        del self.records[:3]
        return member

    patch.setattr(MemberPlan, "take_over", keep_the_old_one)


def count_unsynced_partitions_as_free(patch: pytest.MonkeyPatch) -> None:
    """What Kafka does when it upgrades a group."""
    patch.setattr(conversion, "_with_owned", lambda _classic, upgraded, _topics: upgraded)


def take_strangers_in_with_what_they_own(patch: pytest.MonkeyPatch) -> None:
    """What Kafka does with a classic member that was removed and does not know it."""
    patch.setattr(ClassicMembers, "_check_stranger", lambda *_: None)


def tell_classic_members_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicMembers, "_should_join_again", lambda *_: False)


def date_epochs_back(patch: pytest.MonkeyPatch) -> None:
    write = records.current_assignment

    def behind(group_id: str, member: Member) -> CoordinatorRecord:
        return write(group_id, replace(member, member_epoch=min(member.member_epoch, 3)))

    patch.setattr(records, "current_assignment", behind)
