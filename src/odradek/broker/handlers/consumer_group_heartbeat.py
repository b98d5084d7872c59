"""ConsumerGroupHeartbeat (key 68), versions 0-1: all that a member of a consumer group says.

UNSUPPORTED_VERSION where consumer groups are off, by group.version or by config.

v1  the member makes its own id; subscription by regular expression.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Answer:
    if not context.broker.groups.is_consumer_protocol_on:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return context.broker.groups.write(
        context,
        request.group_id,
        lambda shard, caller, now: shard.consumer_heartbeat(request, caller, now),
        lambda code: ConsumerGroupHeartbeatResponse(error_code=code),
    )
