"""DescribeGroups (key 15), versions 0-6: state and members of classic groups.

v3  authorized operations (on request).  v4  static members.  v5  flexible.
v6  GROUP_ID_NOT_FOUND where older versions say `Dead`.
"""

from typing import TYPE_CHECKING

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata.authorized_operations import GROUP_OPERATIONS
from odradek.protocol.generated.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from odradek.coordinator.group.shard import GroupShard

VERSION_NOT_FOUND = 6
DEAD = "Dead"


def handle(context: RequestContext, request: DescribeGroupsRequest) -> Answer:
    def describe(shard: "GroupShard", group_id: str) -> DescribedGroup:
        return _describe(shard, group_id, context.version)

    def described(groups: list[DescribedGroup]) -> None:
        if request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        context.reply(DescribeGroupsResponse(groups=groups))

    context.broker.groups.read_each(request.groups, str, describe, _refused, described)
    return PENDING


def _refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code)


def _describe(shard: "GroupShard", group_id: str, version: int) -> DescribedGroup:
    try:
        return shard.describe_classic(group_id)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return _refused(group_id, error.code)
        if version >= VERSION_NOT_FOUND:
            return DescribedGroup(
                group_id=group_id,
                group_state=DEAD,
                error_code=error.code,
                error_message=f"Group {group_id} not found.",
            )
        return DescribedGroup(group_id=group_id, group_state=DEAD)
