"""DeleteGroups (key 42), versions 0-3: forget empty groups and what they committed.

v2  flexible.  v3  error message.
"""

from collections.abc import Callable

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.protocol.message import Message


def handle(context: RequestContext, request: DeleteGroupsRequest) -> Answer:
    group_ids = list(dict.fromkeys(request.groups_names))
    results: list[DeletableGroupResult] = []

    def deliver(message: Message) -> None:
        assert isinstance(message, DeleteGroupsResponse)
        results.extend(message.results)
        if len(results) == len(group_ids):
            context.reply(DeleteGroupsResponse(results=results))

    if not group_ids:
        return DeleteGroupsResponse(results=[])
    for group_id in group_ids:
        _delete(context, group_id, deliver)
    return PENDING


def _delete(context: RequestContext, group_id: str, deliver: Callable[[Message], None]) -> None:
    def refuse(code: ErrorCode) -> DeleteGroupsResponse:
        result = DeletableGroupResult(group_id=group_id, error_code=code)
        return DeleteGroupsResponse(results=[result])

    if not group_id:
        deliver(refuse(ErrorCode.INVALID_GROUP_ID))
        return
    context.broker.groups.write(
        context,
        group_id,
        lambda shard, caller, _now: shard.delete_group(group_id, caller),
        refuse,
        deliver,
    )
