"""ConsumerGroupHeartbeat (key 68), versions 0-1: all that a member of a consumer group says.

v1  the member makes its own id; subscription by regular expression.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Answer:
    return context.node.groups.write(
        context,
        request.group_id,
        lambda shard, caller, now: shard.consumer_heartbeat(request, caller, now),
        lambda code: ConsumerGroupHeartbeatResponse(error_code=code),
    )
