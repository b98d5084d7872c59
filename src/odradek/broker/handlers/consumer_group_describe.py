"""ConsumerGroupDescribe (key 69), versions 0-1: state and members of consumer groups.

v1  whether a member speaks the classic protocol.  Authorized operations come on request.
"""

from typing import TYPE_CHECKING

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata.authorized_operations import GROUP_OPERATIONS
from odradek.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from odradek.coordinator.group.shard import GroupShard


def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> Answer:
    def described(groups: list[DescribedGroup]) -> None:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        context.reply(ConsumerGroupDescribeResponse(groups=groups))

    if not context.broker.groups.is_consumer_protocol_on:
        described([_refused(each, ErrorCode.UNSUPPORTED_VERSION) for each in request.group_ids])
        return PENDING
    context.broker.groups.read_each(request.group_ids, str, _describe, _refused, described)
    return PENDING


def _refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code)


def _describe(shard: "GroupShard", group_id: str) -> DescribedGroup:
    try:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        return shard.describe_consumer(group_id)
    except ApiError as error:
        return DescribedGroup(
            group_id=group_id, error_code=error.code, error_message=error.message or None
        )
