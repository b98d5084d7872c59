"""From a request to its handler and back. Hot path.

An API is spoken if it is in HANDLERS, and only then advertised. A handler's module is imported when
its first request comes: a node that starts loads none.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.context import NO_REPLY, PENDING, Answer, RequestContext
from odradek.broker.metrics.requests import RequestStats
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.apis import ALL_APIS, Api
from odradek.protocol.framing import Request, frame_response
from odradek.protocol.message import Buffer, Message

if TYPE_CHECKING:
    from odradek.broker.node import Node
    from odradek.core.config import BrokerConfig
    from odradek.net.server import ConnectionInfo

HANDLERS: Final = {
    "AddOffsetsToTxn": "add_offsets_to_txn",
    "AddPartitionsToTxn": "add_partitions_to_txn",
    "AlterConfigs": "alter_configs",
    "AlterReplicaLogDirs": "alter_replica_log_dirs",
    "ApiVersions": "api_versions",
    "ConsumerGroupDescribe": "consumer_group_describe",
    "ConsumerGroupHeartbeat": "consumer_group_heartbeat",
    "CreatePartitions": "create_partitions",
    "CreateTopics": "create_topics",
    "DeleteGroups": "delete_groups",
    "DeleteRecords": "delete_records",
    "DeleteTopics": "delete_topics",
    "DescribeCluster": "describe_cluster",
    "DescribeConfigs": "describe_configs",
    "DescribeGroups": "describe_groups",
    "DescribeLogDirs": "describe_log_dirs",
    "DescribeProducers": "describe_producers",
    "DescribeQuorum": "describe_quorum",
    "DescribeTopicPartitions": "describe_topic_partitions",
    "DescribeTransactions": "describe_transactions",
    "ElectLeaders": "elect_leaders",
    "EndTxn": "end_txn",
    "Fetch": "fetch",
    "FindCoordinator": "find_coordinator",
    "GetTelemetrySubscriptions": "get_telemetry_subscriptions",
    "Heartbeat": "heartbeat",
    "IncrementalAlterConfigs": "incremental_alter_configs",
    "InitProducerId": "init_producer_id",
    "JoinGroup": "join_group",
    "LeaveGroup": "leave_group",
    "ListConfigResources": "list_config_resources",
    "ListGroups": "list_groups",
    "ListOffsets": "list_offsets",
    "ListTransactions": "list_transactions",
    "Metadata": "metadata",
    "OffsetCommit": "offset_commit",
    "OffsetDelete": "offset_delete",
    "OffsetFetch": "offset_fetch",
    "OffsetForLeaderEpoch": "offset_for_leader_epoch",
    "Produce": "produce",
    "PushTelemetry": "push_telemetry",
    "SyncGroup": "sync_group",
    "TxnOffsetCommit": "txn_offset_commit",
    "UpdateFeatures": "update_features",
    "WriteTxnMarkers": "write_txn_markers",
}
"""API name → module in ``handlers``."""

SPOKEN: Final = tuple(api for api in ALL_APIS if api.name in HANDLERS)

_FETCH_KEY: Final = 1
_UNSTABLE_ENABLED_BY: Final = (
    "unstable.api.versions.enable",  # Kafka's switch, for all
    "transaction.two.phase.commit.enable",  # InitProducerId v6 has no other use
)

Handle = Callable[[RequestContext, Any], Answer]
Reply = Callable[[list[Buffer] | None], None]
Loaded = tuple[Handle, RequestStats, Callable[[Message], None] | None]
"""A handler, what is counted of its requests, and who else is told of its answers."""


def newest_version(api: Api, config: "BrokerConfig") -> int:
    """Return the newest version that is spoken; unstable ones are only if that is configured."""
    is_unstable_spoken = any(config.flag(name) for name in _UNSTABLE_ENABLED_BY)
    return api.version_max if is_unstable_spoken else api.version_stable_max


class Dispatcher:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._now_us = node.clock.monotonic_us
        self._handlers: dict[int, Loaded] = {}

    def handle(self, request: Request, connection: "ConnectionInfo", reply: Reply) -> None:
        """Have a request handled; ``reply`` is called now or later, exactly once.

        Raises:
            ApiError: UNSUPPORTED_VERSION: the connection is to be closed.
            CorruptionError: So it is.
        """
        began_us = self._now_us()
        api, version = request.api, request.version
        if request.is_unknown_api_versions:
            version = 0
        elif not self._speaks(api, version):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} version {version}")

        handle, stats, on_response = self._handlers.get(api.key) or self._load(api)
        local_us = -1  # set when the handler has returned and the answer is left to others

        def answer(message: Message) -> None:
            reply(frame_response(message, api, version, request.correlation_id))
            total_us = self._now_us() - began_us
            if local_us < 0:
                stats.on_answered_at_once(message, version, total_us)
            else:
                stats.on_answered_later(message, version, total_us, local_us)
            if on_response is not None:
                on_response(message)

        context = RequestContext(
            self._node,
            api,
            request.version,
            request.client_id,
            connection.listener,
            connection.peer_host,
            connection.principal,
            answer,
            connection,
        )
        decoded = None if request.is_unknown_api_versions else request.decode()
        answered = handle(context, decoded)
        if isinstance(answered, Message):
            answer(answered)
        elif answered is NO_REPLY:
            reply(None)
            stats.on_answered_at_once(None, version, self._now_us() - began_us)
        else:
            assert answered is PENDING
            local_us = self._now_us() - began_us

    def _speaks(self, api: Api, version: int) -> bool:
        if version > api.version_stable_max and version > newest_version(api, self._node.config):
            return False
        return version >= api.version_min and api.name in HANDLERS

    def _load(self, api: Api) -> Loaded:
        module = import_module(f"odradek.broker.handlers.{HANDLERS[api.name]}")
        node = self._node
        on_response = node.replicas.on_fetched if api.key == _FETCH_KEY else None
        loaded = module.handle, node.metrics.requests_of(api), on_response
        self._handlers[api.key] = loaded
        return loaded
