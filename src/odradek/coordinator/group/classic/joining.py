"""JoinGroup: who may enter a classic group, under which id, and whether that calls a rebalance.

A dynamic member comes twice (version 4 and later): first without an id, for which it is given one
and sent away, then with it. So a client that never got its answer leaves an id behind and not a
member for whom everybody waits.

A static member (KIP-345) has a name of its own and may come back without its id. It then takes
over the place of its former self, which is fenced, and if the group is stable nobody else notices:
the new id is written, and the reply tells what is current. A leader that comes back must not make
an assignment then. Since version 9 it is told so (KIP-814), before that it is told that the leader
is still its former self.
"""

from random import Random
from typing import Final
from uuid import UUID

from odradek.coordinator.group.classic.member import Member, Protocols, protocols_of
from odradek.coordinator.group.classic.rebalance import Rebalance
from odradek.coordinator.group.classic.replies import join_refused
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.result import Caller
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.join_group import JoinGroupRequest

UNKNOWN_MEMBER_ID: Final = ""
_REBALANCE_TIMEOUT_FROM: Final = 1
_MEMBER_ID_REQUIRED_FROM: Final = 4
_SKIP_ASSIGNMENT_FROM: Final = 9
_IDENTITY_ERRORS: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class Joining:
    def __init__(self, rebalance: Rebalance, random: Random) -> None:
        self._rebalance = rebalance
        self._roster = rebalance.roster
        self._random = random

    def join(self, request: JoinGroupRequest, caller: Caller, now: Instant) -> None:
        rebalance, member_id = self._rebalance, request.member_id
        config = rebalance.config
        shortest_ms = config.group_min_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            rebalance.reply(join_refused(caller, member_id, ErrorCode.INVALID_SESSION_TIMEOUT))
            return
        try:
            self._admit(request, caller, now)
        except ApiError as refusal:
            # As in Kafka: no protocol for those of whom the group knows nothing.
            protocol_name = None if refusal.code in _IDENTITY_ERRORS else ""
            is_full = refusal.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            told_id = UNKNOWN_MEMBER_ID if is_full else member_id
            rebalance.reply(join_refused(caller, told_id, refusal.code, protocol_name))
        rebalance.write_if_new()

    def _admit(self, request: JoinGroupRequest, caller: Caller, now: Instant) -> None:
        member_id = request.member_id
        if self._rebalance.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.group_id)
        if not self._has_room_for(member_id):
            self._turn_away(member_id, now)
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, request.group_id)
        protocols = protocols_of(request.protocols)
        self._check_protocols(request.protocol_type, protocols)
        if member_id == UNKNOWN_MEMBER_ID:
            self._join_as_new(request, protocols, caller, now)
        elif member_id in self._roster.pending_join:
            if request.group_instance_id is not None:
                problem = "the id was given to a member without group.instance.id"
                raise ApiError(ErrorCode.INVALID_REQUEST, problem)
            self._add(request, protocols, member_id, caller, now)
        else:
            member = self._roster.check_member(member_id, request.group_instance_id)
            self._join_again(member, request, protocols, caller, now)

    def _has_room_for(self, member_id: str) -> bool:
        size_max = self._rebalance.config.group_max_size
        member = self._roster.members.get(member_id)
        if self._rebalance.state is GroupState.EMPTY:
            return True
        if self._rebalance.state is GroupState.PREPARING_REBALANCE:
            # Who waits is counted, not who is a member: the limit may have been lowered, and then
            # the last to come again have to go.
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or self._roster.awaiting_join_count < size_max
        return member is not None or len(self._roster.members) < size_max

    def _turn_away(self, member_id: str, now: Instant) -> None:
        self._rebalance.remove(member_id)
        # Kafka does not look whether it was the last for whom the others waited.
        if self._rebalance.state is GroupState.PREPARING_REBALANCE:
            self._rebalance.complete_if_all_joined(now)

    def _check_protocols(self, protocol_type: str, protocols: Protocols) -> None:
        if self._rebalance.state is GroupState.EMPTY:
            is_fit = bool(protocol_type) and bool(protocols)
        else:
            is_same_type = protocol_type == self._rebalance.protocol_type
            is_fit = is_same_type and self._roster.is_supported([name for name, _ in protocols])
        if not is_fit:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, protocol_type)

    def _join_as_new(
        self, request: JoinGroupRequest, protocols: Protocols, caller: Caller, now: Instant
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is None:
            member_id = self._new_id(caller.client_id)
            if caller.version >= _MEMBER_ID_REQUIRED_FROM:
                self._rebalance.add_pending(member_id, request.session_timeout_ms, now)
                code = ErrorCode.MEMBER_ID_REQUIRED
                self._rebalance.reply(join_refused(caller, member_id, code))
            else:
                self._add(request, protocols, member_id, caller, now)
        elif instance_id in self._roster.static_member_ids:
            self._take_over(request, protocols, caller, now)
        else:
            self._add(request, protocols, self._new_id(instance_id), caller, now)

    def _new_id(self, named_after: str) -> str:
        return f"{named_after}-{UUID(int=self._random.getrandbits(128), version=4)}"

    def _add(
        self,
        request: JoinGroupRequest,
        protocols: Protocols,
        member_id: str,
        caller: Caller,
        now: Instant,
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            _rebalance_timeout_ms(request, caller),
            request.session_timeout_ms,
            request.protocol_type,
            protocols,
            is_new=True,
            awaiting_join=caller,
        )
        self._rebalance.add(member, now)
        self._rebalance.prepare_or_complete(now)

    def _join_again(
        self,
        member: Member,
        request: JoinGroupRequest,
        protocols: Protocols,
        caller: Caller,
        now: Instant,
    ) -> None:
        rebalance = self._rebalance
        is_leader = member.member_id == self._roster.leader
        is_preparing = rebalance.state is GroupState.PREPARING_REBALANCE
        # The leader of a stable group saw a change in what is to be assigned.
        is_call = is_leader and rebalance.state is GroupState.STABLE
        if is_preparing or is_call or protocols != member.protocols:
            self._update(member, request, protocols, caller)
            self._roster.wait_for_join(member, caller)
            rebalance.prepare_or_complete(now)
        else:
            # It missed the answer, and may go on to SyncGroup.
            told = rebalance.joined_members() if is_leader else None
            rebalance.reply(rebalance.join_reply(caller, member, told))

    def _take_over(
        self, request: JoinGroupRequest, protocols: Protocols, caller: Caller, now: Instant
    ) -> None:
        assert request.group_instance_id is not None
        rebalance, old_leader = self._rebalance, self._roster.leader
        member = self._roster.members[self._roster.static_member_ids[request.group_instance_id]]
        rebalance.rename(member, self._new_id(request.group_instance_id))
        self._update(member, request, protocols, caller)
        rebalance.touch(member, now)
        is_stable = rebalance.state is GroupState.STABLE
        if not is_stable or self._roster.select_protocol() != rebalance.protocol_name:
            # While the leader makes an assignment, too: it would be for the old id.
            self._roster.wait_for_join(member, caller)
            rebalance.prepare_or_complete(now)
            return
        rebalance.read_subscriptions()
        rebalance.write()
        if caller.version < _SKIP_ASSIGNMENT_FROM:
            rebalance.reply(rebalance.join_reply(caller, member, leader=old_leader))
            return
        is_leader = member.member_id == self._roster.leader
        told = rebalance.joined_members() if is_leader else None
        rebalance.reply(rebalance.join_reply(caller, member, told, skip_assignment=is_leader))

    def _update(
        self, member: Member, request: JoinGroupRequest, protocols: Protocols, caller: Caller
    ) -> None:
        self._rebalance.answer(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self._roster.change_protocols(member, protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request, caller)
        member.session_timeout_ms = request.session_timeout_ms


def _rebalance_timeout_ms(request: JoinGroupRequest, caller: Caller) -> int:
    if caller.version < _REBALANCE_TIMEOUT_FROM:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
