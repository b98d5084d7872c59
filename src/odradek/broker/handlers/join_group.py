"""JoinGroup (key 11), versions 0-9: become a member of a classic group.

v1  rebalance timeout.  v4  a member id is asked for first.  v5  static members.  v6  flexible.
v7  protocol type.  v8  reason.  v9  the leader may be told not to assign.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.join_group import JoinGroupRequest, JoinGroupResponse


def handle(context: RequestContext, request: JoinGroupRequest) -> Answer:
    if not request.group_id:
        return _refused(request, ErrorCode.INVALID_GROUP_ID)
    return context.broker.groups.write(
        context,
        request.group_id,
        lambda shard, caller, now: shard.join(request, caller, now),
        lambda code: _refused(request, code),
    )


def _refused(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, generation_id=-1, member_id=request.member_id, protocol_name="", leader=""
    )
