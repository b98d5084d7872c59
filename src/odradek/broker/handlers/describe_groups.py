"""DescribeGroups (key 15), versions 0-6: state and members of classic groups.

v4  static members.  v5  flexible.  v6  GROUP_ID_NOT_FOUND where older versions say `Dead`.

Not implemented: authorized operations.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

VERSION_NOT_FOUND = 6
DEAD = "Dead"


def handle(context: RequestContext, request: DescribeGroupsRequest) -> Answer:
    return DescribeGroupsResponse(groups=[_describe(context, each) for each in request.groups])


def _describe(context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id is not empty")
        return context.node.groups.shard_for(group_id).describe_classic(group_id)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        if context.version >= VERSION_NOT_FOUND:
            return DescribedGroup(
                group_id=group_id,
                group_state=DEAD,
                error_code=error.code,
                error_message=f"Group {group_id} not found.",
            )
        return DescribedGroup(group_id=group_id, group_state=DEAD)
