"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates.

v3  flexible.  v4  state, filter by state.  v5  type, filter by type.
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def handle(context: RequestContext, request: ListGroupsRequest) -> Answer:
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}

    def listed(groups: list[ListedGroup]) -> None:
        wanted = [
            group
            for group in groups
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type.lower() in types)
        ]
        context.reply(ListGroupsResponse(groups=wanted))

    def failed(code: ErrorCode) -> None:
        context.reply(ListGroupsResponse(error_code=code))

    context.broker.groups.read_all(lambda shard: shard.list_groups(), listed, failed)
    return PENDING
