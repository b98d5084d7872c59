"""Mistakes a coordinator of classic groups could make, to be planted and to be noticed."""

from collections.abc import Callable

import pytest

from odradek.coordinator.group.classic import classic_group
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.rebalance import Rebalance
from odradek.coordinator.group.classic.records import loaded_member
from odradek.coordinator.group.classic.roster import Roster
from odradek.coordinator.group.classic.state import GroupState
from odradek.core.clock import Instant
from odradek.protocol.generated.offset_records import GroupMetadataValue, MemberMetadata
from odradek.protocol.generated.sync_group import SyncGroupRequest

Plant = Callable[[pytest.MonkeyPatch], None]


def accept_any_generation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicGroup, "_check_generation", lambda *_: None)


def sessions_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rebalance, "_on_session_end", lambda *_: None)


def wait_for_all_forever(patch: pytest.MonkeyPatch) -> None:
    complete = Rebalance._complete_join

    def complete_if_all(self: Rebalance, now: Instant) -> None:
        if self.roster.have_all_joined:
            complete(self, now)
        else:
            self._join_due_ms = now.monotonic_ms + 1_000

    patch.setattr(Rebalance, "_complete_join", complete_if_all)


def reuse_the_generation(patch: pytest.MonkeyPatch) -> None:
    complete = Rebalance._complete_join

    def complete_without_counting(self: Rebalance, now: Instant) -> None:
        before = self.generation_id
        complete(self, now)
        self.generation_id = max(before, 1)

    patch.setattr(Rebalance, "_complete_join", complete_without_counting)


def forget_followers_that_wait(patch: pytest.MonkeyPatch) -> None:
    """Answer the leader's SyncGroup only, as if the others would ask again."""
    stabilize = Rebalance.stabilize

    def answer_leader(self: Rebalance, assignments: dict[str, bytes], now: Instant) -> None:
        for member in self.roster.members.values():
            if member.member_id != self.roster.leader:
                member.awaiting_sync = None
        stabilize(self, assignments, now)

    patch.setattr(Rebalance, "stabilize", answer_leader)


def do_not_write_assignments(patch: pytest.MonkeyPatch) -> None:
    write = Rebalance.write

    def write_empty_only(self: Rebalance) -> None:
        if self.state is GroupState.EMPTY:
            write(self)

    patch.setattr(Rebalance, "write", write_empty_only)


def lose_assignments_on_loading(patch: pytest.MonkeyPatch) -> None:
    def without(recorded: MemberMetadata, value: GroupMetadataValue) -> Member:
        member = loaded_member(recorded, value)
        member.assignment = b""
        return member

    patch.setattr(classic_group, "loaded_member", without)


def hand_out_old_assignments(patch: pytest.MonkeyPatch) -> None:
    """Let every SyncGroup through, whatever its generation and the state of the group."""

    def unchecked(self: ClassicGroup, request: SyncGroupRequest) -> Member:
        return self._check_identity(request.member_id, request.group_instance_id)

    patch.setattr(ClassicGroup, "_check_sync", unchecked)


def wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Begin a generation with the first member that comes."""
    patch.setattr(Roster, "have_all_joined", property(lambda self: not self.pending_join))


def leave_sync_waiters_behind(patch: pytest.MonkeyPatch) -> None:
    """Do not send back those who wait for the assignment of a generation that is called off."""
    patch.setattr(Rebalance, "_call_off_sync", lambda *_: None)
