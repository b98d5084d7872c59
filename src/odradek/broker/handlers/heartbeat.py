"""Heartbeat (key 12), versions 0-4: a member of a classic group is alive.

v3  static members.  v4  flexible.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> Answer:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return context.broker.groups.write(
        context,
        request.group_id,
        lambda shard, caller, now: shard.heartbeat(request, caller, now),
        _refused,
    )


def _refused(code: ErrorCode) -> HeartbeatResponse:
    # A group that is still loading is not lost: the member shall simply go on.
    is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)
