"""ConsumerGroupDescribe (key 69), versions 0-1: state and members of consumer groups.

v1  whether a member speaks the classic protocol.

Not implemented: authorized operations.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Answer:
    groups = [_describe(context, each) for each in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id is not empty")
        return context.node.groups.shard_for(group_id).describe_consumer(group_id)
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
