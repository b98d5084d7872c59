"""LeaveGroup (key 13), versions 0-5: members of a classic group go.

v3  several members at once, static ones too.  v4  flexible.  v5  reason.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(context: RequestContext, request: LeaveGroupRequest) -> Answer:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return context.broker.groups.write(
        context,
        request.group_id,
        lambda shard, caller, now: shard.leave(request, caller, now),
        lambda code: LeaveGroupResponse(error_code=code),
    )
