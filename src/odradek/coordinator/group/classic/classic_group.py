"""A group of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

JoinGroup is judged in ``joining.py``, phases are in ``rebalance.py``, members in ``roster.py``.
Errors are replies; only the ``check_…`` methods, which judge for others, raise.

The group changes when it is called, ahead of its records: append them, but do not replay them into
it. A reply may rest on a record of an earlier result, so replies leave in order, each when all
records before it are committed. If an append fails, refuse its replies, then ``on_append_failed``.

Where Kafka forgets a waiter (the same member joins or syncs again from another connection, or
leaves while its SyncGroup waits), this answers it: the earlier request gets REBALANCE_IN_PROGRESS,
after which a client that is still there comes again under its id.
"""

from collections.abc import Iterable, Mapping
from random import Random
from typing import Final, Self

from odradek.coordinator.group.classic.config import GroupConfig
from odradek.coordinator.group.classic.joining import UNKNOWN_MEMBER_ID, Joining
from odradek.coordinator.group.classic.member import Member
from odradek.coordinator.group.classic.rebalance import Rebalance
from odradek.coordinator.group.classic.records import (
    CONSUMER_PROTOCOL_TYPE,
    NO_TIMESTAMP,
    loaded_member,
    metadata_tombstone,
)
from odradek.coordinator.group.classic.replies import (
    heartbeat_reply,
    leave_refused,
    leave_reply,
    sync_refused,
)
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.protocol.generated.describe_groups import DescribedGroup
from odradek.protocol.generated.heartbeat import HeartbeatRequest
from odradek.protocol.generated.join_group import JoinGroupRequest
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
)
from odradek.protocol.generated.list_groups import ListedGroup
from odradek.protocol.generated.offset_records import GroupMetadataValue
from odradek.protocol.generated.sync_group import SyncGroupRequest

_LEAVE_BATCHES: Final = 3


class ClassicGroup:
    def __init__(self, group_id: str, config: GroupConfig, random: Random, now: Instant) -> None:
        self.group_id = group_id
        self._config = config
        self._rebalance = Rebalance(group_id, config, now.wall_ms)
        self._roster = self._rebalance.roster
        self._joining = Joining(self._rebalance, random)

    @classmethod
    def load(
        cls,
        group_id: str,
        value: GroupMetadataValue,
        config: GroupConfig,
        random: Random,
        now: Instant,
    ) -> Self:
        """Build the group that a record describes; ``on_loaded`` follows when the log is read.

        Raises:
            CorruptionError: The record holds a member twice.
        """
        members = [loaded_member(recorded, value) for recorded in value.members]
        names = [m.instance_id for m in members if m.instance_id is not None]
        ids = {m.member_id for m in members}
        if len(ids) < len(members) or len(set(names)) < len(names):
            raise CorruptionError(f"group {group_id}: a member is recorded twice")
        group = cls(group_id, config, random, now)
        rebalance = group._rebalance
        rebalance.restore(members, value.generation, value.protocol_type)
        rebalance.protocol_name = (value.protocol or "") if members else value.protocol
        rebalance.state_timestamp_ms = value.current_state_timestamp
        rebalance.is_written = True
        if value.leader in ids:
            group._roster.leader = value.leader
        rebalance.read_subscriptions()
        return group

    @classmethod
    def from_members(
        cls,
        group_id: str,
        members: Iterable[Member],
        generation_id: int,
        config: GroupConfig,
        random: Random,
        now: Instant,
    ) -> Self:
        """Build a stable group of the members of a consumer group, all of whom speak classic.

        Set their ``assignment`` after, in the version of each one's ``protocol_name`` metadata,
        then write ``metadata_record()`` and call ``on_loaded``; Kafka then calls ``rebalance``,
        unless a static member took the place of the one that left.
        """
        group = cls(group_id, config, random, now)
        group._rebalance.restore(list(members), generation_id, CONSUMER_PROTOCOL_TYPE)
        group._rebalance.choose_protocol()
        return group

    # What others may know.

    @property
    def state(self) -> GroupState:
        return self._rebalance.state

    @property
    def state_timestamp_ms(self) -> int:
        """When the state was entered, by the wall clock; -1 where an old record did not say."""
        return self._rebalance.state_timestamp_ms

    @property
    def generation_id(self) -> int:
        return self._rebalance.generation_id

    @property
    def protocol_type(self) -> str | None:
        return self._rebalance.protocol_type

    @property
    def protocol_name(self) -> str | None:
        return self._rebalance.protocol_name

    @property
    def leader(self) -> str | None:
        return self._roster.leader

    @property
    def members(self) -> Mapping[str, Member]:
        return self._roster.members

    @property
    def static_member_ids(self) -> Mapping[str, str]:
        return self._roster.static_member_ids

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_simple(self) -> bool:
        """Whether it never had members: its offsets come from consumers that assign themselves."""
        return self.protocol_type is None and self.is_empty and not self._roster.pending_join

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def describe(self) -> DescribedGroup:
        is_stable = self.state is GroupState.STABLE
        protocol_name = self.protocol_name if is_stable else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[member.describe(protocol_name) for member in self.members.values()],
        )

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state.value,
            group_type="classic",
        )

    def metadata_record(self) -> CoordinatorRecord:
        """Write the group as it is; it must be empty or stable."""
        self._rebalance.write()
        (record,) = self._rebalance.take_result().records
        return record

    def tombstone(self) -> CoordinatorRecord:
        return metadata_tombstone(self.group_id)

    # Requests.

    def join(self, request: JoinGroupRequest, caller: Caller, now: Instant) -> Result:
        self._joining.join(request, caller, now)
        return self._rebalance.take_result()

    def sync(self, request: SyncGroupRequest, caller: Caller, now: Instant) -> Result:
        try:
            member = self._check_sync(request)
        except ApiError as refusal:
            return Result(replies=(sync_refused(caller, refusal.code),))
        rebalance = self._rebalance
        if self.state is GroupState.STABLE:
            rebalance.on_synced(member)
            rebalance.reply(rebalance.sync_reply(caller, member))
            return rebalance.take_result()
        rebalance.answer(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        member.awaiting_sync = caller
        rebalance.on_synced(member)
        if member.member_id == self.leader:
            assignments = {given.member_id: given.assignment for given in request.assignments}
            rebalance.stabilize(assignments, now)
        return rebalance.take_result()

    def _check_sync(self, request: SyncGroupRequest) -> Member:
        member = self._check_identity(request.member_id, request.group_instance_id)
        self._check_generation(request.generation_id)
        for theirs, ours in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if theirs is not None and ours is not None and theirs != ours:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{theirs} is not {ours}")
        if self.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, self.group_id)
        return member

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now: Instant) -> Result:
        try:
            member = self._check_identity(request.member_id, request.group_instance_id)
            self._check_generation(request.generation_id)
        except ApiError as refusal:
            return Result(replies=(heartbeat_reply(caller, refusal.code),))
        self._rebalance.touch(member, now)
        is_rebalancing = self.state is GroupState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
        return Result(replies=(heartbeat_reply(caller, code),))

    def leave(self, request: LeaveGroupRequest, caller: Caller, now: Instant) -> Result:
        """Remove members, by id or by static name: each is answered for itself."""
        if self.state is GroupState.DEAD:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return Result(replies=(leave_refused(caller, code),))
        leaving = request.members
        if caller.version < _LEAVE_BATCHES:
            leaving = [MemberIdentity(member_id=request.member_id)]
        size = len(self.members)
        left = [self._leave(identity) for identity in leaving]
        self._rebalance.reply(leave_reply(caller, left))
        if self.state is GroupState.PREPARING_REBALANCE:
            self._rebalance.complete_if_all_joined(now)
        elif len(self.members) < size:
            # Kafka rebalances for an id that was never used, too.
            self._rebalance.prepare(now)
        return self._rebalance.take_result()

    def _leave(self, identity: MemberIdentity) -> MemberResponse:
        answer = MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id
        )
        try:
            self._rebalance.remove(self._leaving_id(identity))
        except ApiError as refusal:
            answer.error_code = refusal.code
        return answer

    def _leaving_id(self, identity: MemberIdentity) -> str:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id in self._roster.pending_join:
            return member_id
        if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
            # An administrator knows the static name only.
            member_id = self.static_member_ids.get(instance_id, UNKNOWN_MEMBER_ID)
        return self._roster.check_member(member_id, instance_id).member_id

    def _check_identity(self, member_id: str, instance_id: str | None) -> Member:
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.group_id)
        return self._roster.check_member(member_id, instance_id)

    def _check_generation(self, generation_id: int) -> None:
        if generation_id != self.generation_id:
            problem = f"{generation_id} is not {self.generation_id}"
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, problem)

    # Time, and the log.

    def next_deadline_ms(self) -> int | None:
        """Return when, on the monotonic clock, ``tick`` is due."""
        return self._rebalance.next_deadline_ms()

    def tick(self, now: Instant) -> Result:
        self._rebalance.tick(now)
        return self._rebalance.take_result()

    def on_loaded(self, now: Instant) -> Result:
        """Give every member a session; a group over a lowered limit has to rebalance."""
        for member in self.members.values():
            self._rebalance.touch(member, now)
        if len(self.members) > self._config.group_max_size:
            self._rebalance.prepare(now)
        return self._rebalance.take_result()

    def on_append_failed(self, now: Instant) -> Result:
        """Undo a stable generation that the log does not have: members are to come again.

        Kafka also restores a static member's old id. Here it is given another when it retries.
        """
        if self.state is GroupState.STABLE:
            self._rebalance.prepare(now)
        elif self.generation_id == 0:
            self._rebalance.is_written = False
        return self._rebalance.take_result()

    def rebalance(self, now: Instant) -> Result:
        """Call all members to a new generation."""
        self._rebalance.prepare_or_complete(now)
        return self._rebalance.take_result()

    def retire(self, code: ErrorCode, now: Instant) -> Result:
        """End this object: NOT_COORDINATOR when unloaded, REBALANCE_IN_PROGRESS when converted."""
        self._rebalance.retire(code, now)
        return self._rebalance.take_result()

    # For offsets.

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        is_transactional: bool,
        version: int,  # noqa: ARG002  # consumer groups answer old clients with other codes
    ) -> None:
        """Judge a commit; ``on_commit`` follows one that is not transactional.

        Raises:
            ApiError: What the client is to be told.
        """
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.group_id)
        if generation_id < 0 and self.is_empty:
            return  # an administrator, or a consumer that assigns itself
        if generation_id >= 0 or member_id or group_instance_id is not None:
            self._check_identity(member_id, group_instance_id)
            self._check_generation(generation_id)
        elif not is_transactional and not self.is_empty:
            problem = f"group {self.group_id} has members; stop them, or commit as one of them"
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, problem)
        if not is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            # The member knows the generation, but not yet what it is to read in it.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, self.group_id)

    def on_commit(self, member_id: str, now: Instant) -> None:
        """A commit is as good as a heartbeat."""
        member = self.members.get(member_id)
        if member is not None:
            self._rebalance.touch(member, now)

    def check_fetch(self) -> None:
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, self.group_id)

    def check_offset_delete(self) -> None:
        """Judge OffsetDelete: of groups with members, consumers only say what they still want."""
        self.check_fetch()
        if not self.is_empty and not self.uses_consumer_protocol:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, self.group_id)

    def check_delete(self) -> None:
        """Judge DeleteGroups."""
        self.check_fetch()
        if not self.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, self.group_id)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic. Consumers of whom it is not known may read any."""
        topics = self._rebalance.subscribed_topics
        return self.uses_consumer_protocol if topics is None else topic in topics

    def retention_start_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return since when an offset of that age is not wanted; None while it may be.

        Whether its topic is subscribed to is another question.
        """
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            is_known = self.state_timestamp_ms != NO_TIMESTAMP
            return self.state_timestamp_ms if is_known else commit_timestamp_ms
        is_known = self._rebalance.subscribed_topics is not None
        if self.uses_consumer_protocol and is_known and self.state is GroupState.STABLE:
            return commit_timestamp_ms
        return None

    def check_invariants(self) -> None:
        self._rebalance.check_invariants()
