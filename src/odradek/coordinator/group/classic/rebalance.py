"""How a classic group gets from one generation to the next.

Two phases. *Join*: members are told by their heartbeats to come, and the replies to their JoinGroup
wait until all are there or the rebalance timeout is over. Dynamic members that did not come are
dropped; static ones stay until their session ends. *Sync*: everybody learned the generation and
the leader; the replies to SyncGroup wait for the leader's assignment. Who does not sync within the
rebalance timeout is dropped, and it all begins again.

A group that was empty waits ``group.initial.rebalance.delay.ms`` before its first generation, and
as long again while members keep coming, but no longer than the rebalance timeout.

All here but the outcome is soft: a generation is written when it is stable or empty. The record is
a picture of the whole group, so it is not replayed into the group that wrote it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.coordinator.deadlines import Deadlines
from odradek.coordinator.group.classic.config import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    PENDING_MEMBERS_MAX,
    GroupConfig,
)
from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.records import (
    CONSUMER_PROTOCOL_TYPE,
    metadata_record,
    new_group_value,
    recorded_member,
    subscribed_topics,
)
from odradek.coordinator.group.classic.replies import join_refused, sync_refused
from odradek.coordinator.group.classic.roster import Roster
from odradek.coordinator.group.classic.state import GroupState, check_transition
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.generated.offset_records import GroupMetadataValue
from odradek.protocol.generated.sync_group import SyncGroupResponse

JOIN_RETRY_MS_MIN: Final = 100
"""Between two looks whether a static member came back, whatever timeout it asked for."""


@dataclass(slots=True)
class _InitialDelay:
    delay_ms: int
    remaining_ms: int
    has_grown: bool = False


class Rebalance:
    def __init__(self, group_id: str, config: GroupConfig, state_timestamp_ms: int) -> None:
        self.group_id = group_id
        self.config = config

        # Durable: what a record of the group holds.
        self.roster = Roster()
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed_topics: frozenset[str] | None = None

        # Soft.
        self.is_written = False
        self._sessions = Deadlines()
        self._join_due_ms: int | None = None
        self._sync_due_ms: int | None = None
        self._initial: _InitialDelay | None = None
        self._records: list[CoordinatorRecord] = []
        self._replies: list[Reply] = []

    # What goes out.

    def reply(self, reply: Reply) -> None:
        self._replies.append(reply)

    def write(self) -> None:
        """Write the group as it is."""
        self._records.append(metadata_record(self.group_id, self.value()))
        self.is_written = True

    def write_if_new(self) -> None:
        """Make sure that the log knows of the group before anybody is told that it exists."""
        if not self.is_written and self.state is not GroupState.DEAD:
            value = new_group_value(self.state_timestamp_ms)
            self._records.append(metadata_record(self.group_id, value))
            self.is_written = True

    def take_result(self) -> Result:
        result = Result(tuple(self._records), tuple(self._replies))
        self._records.clear()
        self._replies.clear()
        return result

    def value(self) -> GroupMetadataValue:
        members = self.roster.members.values()
        assert self.state is GroupState.STABLE if members else self.state is GroupState.EMPTY
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.roster.leader,
            current_state_timestamp=self.state_timestamp_ms,
            members=[recorded_member(member, self.protocol_name or "") for member in members],
        )

    def join_reply(
        self,
        caller: Caller,
        member: Member,
        members: list[JoinGroupResponseMember] | None = None,
        *,
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> Reply:
        response = JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader or self.roster.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        )
        return Reply(caller.waiter, response)

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Return what the leader is told of everybody, to make an assignment of."""
        assert self.protocol_name is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.roster.members.values()
        ]

    def sync_reply(self, caller: Caller, member: Member) -> Reply:
        response = SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )
        return Reply(caller.waiter, response)

    # Members come and go.

    def add(self, member: Member, now: Instant) -> None:
        if not self.roster.members:
            self.protocol_type = member.protocol_type
        if self._initial is not None:
            self._initial.has_grown = True
        self.roster.add(member)
        self._set_session(member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, now)

    def add_pending(self, member_id: str, session_timeout_ms: int, now: Instant) -> None:
        pending = self.roster.pending_join
        if len(pending) >= PENDING_MEMBERS_MAX:
            self.remove(next(iter(pending)))
        pending[member_id] = None
        self._set_session(member_id, session_timeout_ms, now)

    def remove(self, member_id: str) -> None:
        """Drop a member or a pending id. Who still waits under it is to come again as new."""
        member = self.roster.members.get(member_id)
        if member is not None:
            self.answer(member, ErrorCode.UNKNOWN_MEMBER_ID, "")
        self.roster.remove(member_id)
        self._sessions.cancel(member_id)

    def rename(self, member: Member, member_id: str) -> None:
        """Let a static member's new incarnation take its place; the old one is fenced."""
        self.answer(member, ErrorCode.FENCED_INSTANCE_ID, member.member_id, protocol_name=None)
        self._sessions.cancel(member.member_id)
        self.roster.rename(member, member_id)
        member.is_new = False

    def answer(
        self, member: Member, code: ErrorCode, member_id: str, protocol_name: str | None = ""
    ) -> None:
        """Refuse whatever a member waits for."""
        caller = self.roster.take_join_waiter(member)
        if caller is not None:
            self.reply(join_refused(caller, member_id, code, protocol_name))
        self._refuse_sync(member, code)

    def touch(self, member: Member, now: Instant) -> None:
        """Begin a new session: the member is alive."""
        self._set_session(member.member_id, member.session_timeout_ms, now)

    def _refuse_sync(self, member: Member, code: ErrorCode) -> bool:
        caller, member.awaiting_sync = member.awaiting_sync, None
        if caller is not None:
            self.reply(sync_refused(caller, code))
        return caller is not None

    def _set_session(self, member_id: str, timeout_ms: int, now: Instant) -> None:
        self._sessions.set(member_id, _after(now, timeout_ms))

    # The join phase.

    def prepare_or_complete(self, now: Instant) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_all_joined(now)
        else:
            self.prepare(now)

    def prepare(self, now: Instant) -> None:
        """Begin the join phase."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._call_off_sync(now)
        self.roster.pending_sync.clear()
        self._sync_due_ms = None
        was_empty = self.state is GroupState.EMPTY
        self._move_to(GroupState.PREPARING_REBALANCE, now)
        timeout_ms = self.roster.rebalance_timeout_ms
        if was_empty:
            delay_ms = self.config.group_initial_rebalance_delay_ms
            self._initial = _InitialDelay(delay_ms, max(timeout_ms - delay_ms, 0))
            self._join_due_ms = _after(now, delay_ms)
        elif self.roster.have_all_joined:
            self._complete_join(now)
        else:
            self._join_due_ms = _after(now, timeout_ms)

    def complete_if_all_joined(self, now: Instant) -> None:
        """End the join phase, unless more may come: an initial one always takes its time."""
        if self._initial is None and self.roster.have_all_joined:
            self._complete_join(now)

    def _on_initial_delay(self, initial: _InitialDelay, now: Instant) -> None:
        if not initial.has_grown or initial.remaining_ms == 0:
            self._complete_join(now)
            return
        delay_ms = min(self.config.group_initial_rebalance_delay_ms, initial.remaining_ms)
        remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
        self._initial = _InitialDelay(delay_ms, remaining_ms)
        self._join_due_ms = _after(now, delay_ms)

    def _complete_join(self, now: Instant) -> None:
        self._join_due_ms = self._initial = None
        roster = self.roster
        for member in list(roster.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                self.remove(member.member_id)
        if roster.members and not roster.elect_joined_leader():
            # Only static members are left and none came. Their sessions will end this.
            retry_ms = max(roster.rebalance_timeout_ms, JOIN_RETRY_MS_MIN)
            self._join_due_ms = _after(now, retry_ms)
            return
        self.generation_id += 1
        self.choose_protocol()
        if roster.members:
            self._move_to(GroupState.COMPLETING_REBALANCE, now)
            self._announce(now)
        else:
            self._move_to(GroupState.EMPTY, now)
            self.write()

    def choose_protocol(self) -> None:
        """Let the members vote, and see what they are subscribed to."""
        self.protocol_name = self.roster.select_protocol() if self.roster.members else None
        self.read_subscriptions()

    def read_subscriptions(self) -> None:
        members = self.roster.members.values()
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            self.subscribed_topics = None
        else:
            self.subscribed_topics = subscribed_topics(members, self.protocol_name or "")

    def _announce(self, now: Instant) -> None:
        """Tell everybody who waits of the new generation, and await their SyncGroup."""
        roster = self.roster
        members = self.joined_members()
        for member in roster.members.values():
            caller = roster.take_join_waiter(member)
            if caller is not None:
                told = members if member.member_id == roster.leader else None
                self.reply(self.join_reply(caller, member, told))
            self.touch(member, now)
            member.is_new = False
        roster.pending_sync = set(roster.members)
        self._sync_due_ms = _after(now, roster.rebalance_timeout_ms)

    # The sync phase.

    def _call_off_sync(self, now: Instant) -> None:
        for member in self.roster.members.values():
            member.assignment = b""
            if self._refuse_sync(member, ErrorCode.REBALANCE_IN_PROGRESS):
                self.touch(member, now)

    def on_synced(self, member: Member) -> None:
        """Note that a member knows of the generation."""
        self.roster.pending_sync.discard(member.member_id)
        if not self.roster.pending_sync:
            self._sync_due_ms = None

    def stabilize(self, assignments: Mapping[str, bytes], now: Instant) -> None:
        """Keep, write and hand out what the leader assigned; who was forgotten gets nothing."""
        for member in self.roster.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._move_to(GroupState.STABLE, now)
        self.write()
        for member in self.roster.members.values():
            caller, member.awaiting_sync = member.awaiting_sync, None
            if caller is not None:
                self.reply(self.sync_reply(caller, member))
                self.touch(member, now)

    # Time.

    def next_deadline_ms(self) -> int | None:
        timers = (self._sessions.next_ms(), self._join_due_ms, self._sync_due_ms)
        return min((due_ms for due_ms in timers if due_ms is not None), default=None)

    def tick(self, now: Instant) -> None:
        """Let all happen that is due, in its order. What it schedules is later than now."""
        while (due_ms := self.next_deadline_ms()) is not None and due_ms <= now.monotonic_ms:
            if due_ms == self._join_due_ms:
                self._on_join_timeout(now)
            elif due_ms == self._sync_due_ms:
                self._on_sync_timeout(now)
            else:
                self._on_session_end(self._sessions.take_next(), now)

    def _on_join_timeout(self, now: Instant) -> None:
        if self._initial is not None:
            self._on_initial_delay(self._initial, now)
        else:
            self._complete_join(now)

    def _on_sync_timeout(self, now: Instant) -> None:
        for member_id in list(self.roster.pending_sync):
            self.remove(member_id)
        self.prepare(now)

    def _on_session_end(self, member_id: str, now: Instant) -> None:
        member = self.roster.members.get(member_id)
        if member is not None and member.is_excused:
            return
        self.remove(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            if self.roster.have_all_joined:
                self._complete_join(now)
        elif member is not None:
            self.prepare(now)

    # Beginning and end.

    def restore(self, members: list[Member], generation_id: int, protocol_type: str) -> None:
        """Begin with the members of a record, or of a group of the other kind."""
        for member in members:
            self.roster.add(member)
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.generation_id = generation_id
        self.protocol_type = protocol_type or None

    def retire(self, code: ErrorCode, now: Instant) -> None:
        """Refuse all who wait; nothing happens here any more."""
        for member in self.roster.members.values():
            self.answer(member, code, member.member_id)
        self._sessions.clear()
        self.roster.pending_sync.clear()
        self._join_due_ms = self._sync_due_ms = self._initial = None
        if self.state is not GroupState.DEAD:
            self._move_to(GroupState.DEAD, now)

    def _move_to(self, state: GroupState, now: Instant) -> None:
        check_transition(self.state, state)
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    def check_invariants(self) -> None:
        roster, state = self.roster, self.state
        roster.check_invariants()
        assert not self._records
        assert not self._replies
        assert (self._join_due_ms is not None) == (state is GroupState.PREPARING_REBALANCE)
        assert (self._sync_due_ms is not None) == bool(roster.pending_sync)
        if state is not GroupState.PREPARING_REBALANCE:
            assert roster.awaiting_join_count == 0
            assert self._initial is None
        if state is GroupState.COMPLETING_REBALANCE:
            assert roster.leader in roster.pending_sync
        else:
            assert all(member.awaiting_sync is None for member in roster.members.values())
        if state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE):
            assert not roster.pending_sync
        if state is GroupState.EMPTY:
            assert not roster.members
        if state is not GroupState.DEAD:
            self._check_sessions()

    def _check_sessions(self) -> None:
        """Assert that whoever falls silent is noticed: by its session, or by a phase's end."""
        assert all(member_id in self._sessions for member_id in self.roster.pending_join)
        for member in self.roster.members.values():
            assert member.member_id in self._sessions or member.is_excused, member.member_id


def _after(now: Instant, timeout_ms: int) -> int:
    return now.monotonic_ms + max(timeout_ms, 1)
