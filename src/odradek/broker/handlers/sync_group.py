"""SyncGroup (key 14), versions 0-5: the leader hands out assignments, members get theirs.

v3  static members.  v4  flexible.  v5  protocol type and name.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(context: RequestContext, request: SyncGroupRequest) -> Answer:
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return context.broker.groups.write(
        context,
        request.group_id,
        lambda shard, caller, now: shard.sync(request, caller, now),
        lambda code: SyncGroupResponse(error_code=code),
    )
