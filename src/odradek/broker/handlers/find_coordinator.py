"""FindCoordinator (key 10), versions 0-6: which broker looks after a group or a transactional id.

v1  key type, error message.  v3  flexible.  v4  several keys at once.  v6  share groups.

The topic that keeps the state is created when somebody first asks; the answer waits for it, where
Kafka answers COORDINATOR_NOT_AVAILABLE and lets the client ask again.

Not implemented: coordinators of share groups.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.broker.coordinator_runtime import CoordinatorRuntime

KEY_TYPE_GROUP: Final = 0
KEY_TYPE_TRANSACTION: Final = 1
VERSION_BATCHED: Final = 4
_INVALID: Final = ErrorCode.INVALID_REQUEST


def handle(context: RequestContext, request: FindCoordinatorRequest) -> Answer:
    coordinator = _coordinator(context.broker, request.key_type)
    if coordinator is None:
        refused = f"there is no coordinator for keys of type {request.key_type}"
        return _answer(context, request, lambda key: _nobody(key, _INVALID, refused))

    def ready(code: ErrorCode, message: str | None) -> None:
        def find(key: str) -> Coordinator:
            return _nobody(key, code, message) if code else _find(context, coordinator, key)

        context.reply(_answer(context, request, find))

    context.broker.internal_topics.ensure(coordinator.topic, ready)
    return PENDING


def _coordinator(broker: "BrokerServer", key_type: int) -> "CoordinatorRuntime[Any] | None":
    if key_type == KEY_TYPE_GROUP:
        return broker.groups
    return broker.transactions if key_type == KEY_TYPE_TRANSACTION else None


def _answer(
    context: RequestContext, request: FindCoordinatorRequest, find: Callable[[str], Coordinator]
) -> FindCoordinatorResponse:
    if context.version >= VERSION_BATCHED:
        return FindCoordinatorResponse(coordinators=[find(key) for key in request.coordinator_keys])
    only = find(request.key)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(context: RequestContext, coordinator: "CoordinatorRuntime[Any]", key: str) -> Coordinator:
    leader = coordinator.leader_for(key)
    broker = None if leader is None else context.broker.image.brokers.get(leader)
    endpoint = None if broker is None else broker.endpoints.get(context.listener)
    if leader is None or endpoint is None:
        problem = f"nobody leads the partition of {key!r} now"
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, problem)
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _nobody(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
    )
