"""From a request to its handler and back. Hot path.

An API is spoken if it is in HANDLERS, and only then advertised. A handler's module is imported when
its first request comes: a node that starts loads none.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.context import NO_REPLY, PENDING, Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.apis import ALL_APIS, Api
from odradek.protocol.framing import Request, frame_response
from odradek.protocol.message import Buffer, Message

if TYPE_CHECKING:
    from odradek.broker.node import Node
    from odradek.net.server import ConnectionInfo

HANDLERS: Final = {
    "AlterConfigs": "alter_configs",
    "ApiVersions": "api_versions",
    "CreatePartitions": "create_partitions",
    "CreateTopics": "create_topics",
    "DeleteRecords": "delete_records",
    "DeleteTopics": "delete_topics",
    "DescribeCluster": "describe_cluster",
    "DescribeConfigs": "describe_configs",
    "DescribeLogDirs": "describe_log_dirs",
    "DescribeProducers": "describe_producers",
    "DescribeQuorum": "describe_quorum",
    "DescribeTopicPartitions": "describe_topic_partitions",
    "ElectLeaders": "elect_leaders",
    "Fetch": "fetch",
    "GetTelemetrySubscriptions": "get_telemetry_subscriptions",
    "IncrementalAlterConfigs": "incremental_alter_configs",
    "InitProducerId": "init_producer_id",
    "ListConfigResources": "list_config_resources",
    "ListOffsets": "list_offsets",
    "Metadata": "metadata",
    "OffsetForLeaderEpoch": "offset_for_leader_epoch",
    "Produce": "produce",
    "PushTelemetry": "push_telemetry",
    "UpdateFeatures": "update_features",
}
"""API name → module in ``handlers``."""

SPOKEN: Final = tuple(api for api in ALL_APIS if api.name in HANDLERS)

Handle = Callable[[RequestContext, Any], Answer]
Reply = Callable[[list[Buffer] | None], None]


class Dispatcher:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._handlers: dict[int, Handle] = {}

    def handle(self, request: Request, connection: "ConnectionInfo", reply: Reply) -> None:
        """Have a request handled; ``reply`` is called now or later, exactly once.

        Raises:
            ApiError: UNSUPPORTED_VERSION: the connection is to be closed.
            CorruptionError: So it is.
        """
        api, version = request.api, request.version
        if request.is_unknown_api_versions:
            version = 0
        elif not api.version_min <= version <= api.version_max or api.name not in HANDLERS:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} version {version}")

        def answer(message: Message) -> None:
            reply(frame_response(message, api, version, request.correlation_id))

        context = RequestContext(
            self._node,
            api,
            request.version,
            request.client_id,
            connection.listener,
            connection.peer_host,
            connection.principal,
            answer,
        )
        handle = self._handlers.get(api.key) or self._load(api)
        decoded = None if request.is_unknown_api_versions else request.decode()
        answered = handle(context, decoded)
        if isinstance(answered, Message):
            answer(answered)
        elif answered is NO_REPLY:
            reply(None)
        else:
            assert answered is PENDING

    def _load(self, api: Api) -> Handle:
        module = import_module(f"odradek.broker.handlers.{HANDLERS[api.name]}")
        handle: Handle = module.handle
        self._handlers[api.key] = handle
        return handle
