"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates.

v3  flexible.  v4  state, filter by state.  v5  type, filter by type.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError
from odradek.protocol.generated.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(context: RequestContext, request: ListGroupsRequest) -> Answer:
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    try:
        groups = [
            group
            for shard in context.node.groups.shards()
            for group in shard.list_groups()
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type.lower() in types)
        ]
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    return ListGroupsResponse(groups=groups)
