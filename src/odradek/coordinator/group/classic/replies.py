"""Answers to JoinGroup, SyncGroup and LeaveGroup, as far as they depend on their version."""

from collections.abc import Sequence
from typing import Final

from odradek.coordinator.result import Caller, Reply
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.heartbeat import HeartbeatResponse
from odradek.protocol.generated.join_group import JoinGroupResponse
from odradek.protocol.generated.leave_group import LeaveGroupResponse, MemberResponse
from odradek.protocol.generated.sync_group import SyncGroupResponse

_JOIN_NULLABLE_PROTOCOL: Final = 7
_LEAVE_BATCHES: Final = 3


def join_refused(
    caller: Caller, member_id: str, code: ErrorCode, protocol_name: str | None = ""
) -> Reply:
    if protocol_name is None and caller.version < _JOIN_NULLABLE_PROTOCOL:
        protocol_name = ""
    refusal = JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=protocol_name)
    return Reply(caller.waiter, refusal)


def sync_refused(caller: Caller, code: ErrorCode) -> Reply:
    return Reply(caller.waiter, SyncGroupResponse(error_code=code))


def heartbeat_reply(caller: Caller, code: ErrorCode) -> Reply:
    return Reply(caller.waiter, HeartbeatResponse(error_code=code))


def leave_refused(caller: Caller, code: ErrorCode) -> Reply:
    return Reply(caller.waiter, LeaveGroupResponse(error_code=code))


def leave_reply(caller: Caller, left: Sequence[MemberResponse]) -> Reply:
    """Answer for each who left; before version 3 there is one, and its error is the answer's."""
    if caller.version < _LEAVE_BATCHES:
        return leave_refused(caller, ErrorCode(left[0].error_code))
    return Reply(caller.waiter, LeaveGroupResponse(members=list(left)))
