"""From a request to its handler and back. Hot path.

An API is spoken if it is in HANDLERS, and only then advertised. A handler's module is imported when
its first request comes: a node that starts loads none.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from odradek.broker.context import (
    APPENDED,
    NO_REPLY,
    PENDING,
    Answer,
    ForwardedContext,
    RequestContext,
)
from odradek.broker.metrics.requests import RequestStats
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.slices import Steps
from odradek.core.stalls import STALL_US_MIN
from odradek.protocol.apis import ALL_APIS, Api
from odradek.protocol.forwarded import FORWARDED
from odradek.protocol.framing import (
    Request,
    frame_response,
    frame_response_in_steps,
    open_response,
    response_frame,
)
from odradek.protocol.message import Buffer, Message

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.core.config import BrokerConfig
    from odradek.net.server import ConnectionInfo

HANDLERS: Final = {
    "AddOffsetsToTxn": "add_offsets_to_txn",
    "AddPartitionsToTxn": "add_partitions_to_txn",
    "AddRaftVoter": "add_raft_voter",
    "AlterConfigs": "alter_configs",
    "AlterPartitionReassignments": "alter_partition_reassignments",
    "AlterReplicaLogDirs": "alter_replica_log_dirs",
    "AlterUserScramCredentials": "alter_user_scram_credentials",
    "ApiVersions": "api_versions",
    "ConsumerGroupDescribe": "consumer_group_describe",
    "ConsumerGroupHeartbeat": "consumer_group_heartbeat",
    "CreateAcls": "create_acls",
    "CreatePartitions": "create_partitions",
    "CreateTopics": "create_topics",
    "DeleteAcls": "delete_acls",
    "DeleteGroups": "delete_groups",
    "DeleteRecords": "delete_records",
    "DeleteTopics": "delete_topics",
    "DescribeAcls": "describe_acls",
    "DescribeClientQuotas": "describe_client_quotas",
    "DescribeCluster": "describe_cluster",
    "DescribeConfigs": "describe_configs",
    "DescribeGroups": "describe_groups",
    "DescribeLogDirs": "describe_log_dirs",
    "DescribeProducers": "describe_producers",
    "DescribeQuorum": "describe_quorum",
    "DescribeTopicPartitions": "describe_topic_partitions",
    "DescribeTransactions": "describe_transactions",
    "DescribeUserScramCredentials": "describe_user_scram_credentials",
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
    "ListPartitionReassignments": "list_partition_reassignments",
    "ListTransactions": "list_transactions",
    "Metadata": "metadata",
    "OffsetCommit": "offset_commit",
    "OffsetDelete": "offset_delete",
    "OffsetFetch": "offset_fetch",
    "OffsetForLeaderEpoch": "offset_for_leader_epoch",
    "Produce": "produce",
    "PushTelemetry": "push_telemetry",
    "RemoveRaftVoter": "remove_raft_voter",
    "SyncGroup": "sync_group",
    "TxnOffsetCommit": "txn_offset_commit",
    "UnregisterBroker": "unregister_broker",
    "UpdateFeatures": "update_features",
    "WriteTxnMarkers": "write_txn_markers",
}
"""API name → module in ``handlers``."""

SPOKEN: Final = tuple(api for api in ALL_APIS if api.name in HANDLERS)

_UNSTABLE_ENABLED_BY: Final = (
    "unstable.api.versions.enable",  # Kafka's switch, for all
    "transaction.two.phase.commit.enable",  # InitProducerId v6 has no other use
)

LARGE_ARRAYS: Final = {
    "AlterConfigs": "responses",
    "AlterPartitionReassignments": "responses",
    "CreatePartitions": "results",
    "CreateTopics": "topics",
    "DeleteRecords": "topics",
    "DeleteTopics": "responses",
    "DescribeConfigs": "results",
    "DescribeProducers": "topics",
    "DescribeTopicPartitions": "topics",
    "ElectLeaders": "replica_election_results",
    "IncrementalAlterConfigs": "responses",
    "ListOffsets": "topics",
    "ListPartitionReassignments": "topics",
    "Metadata": "topics",
    "OffsetCommit": "topics",
    "OffsetForLeaderEpoch": "topics",
    "TxnOffsetCommit": "topics",
}
"""Responses that grow with the request, and the array that does; encoded in slices if long."""
ELEMENTS_AT_ONCE_MAX: Final = 200
COUNTED_BYTES_MAX: Final = 64 * 1024
"""Of a controller's response: a longer one is passed on and its errors are not counted."""

T = TypeVar("T")
Handle = Callable[[RequestContext, Any], Answer | Steps[Message] | Steps[Answer]]
Reply = Callable[[list[Buffer] | None], None]


class Loaded(NamedTuple):
    """What there is to know of an API when its requests come."""

    handle: Handle
    decode: Callable[[memoryview, int], Message]
    stats: RequestStats
    array: str | None
    """Which array of its answers may be long."""
    make_context: type[RequestContext]
    """What the handler gets."""


def newest_version(api: Api, config: "BrokerConfig") -> int:
    """Return the newest version that is spoken; unstable ones are only if that is configured."""
    is_unstable_spoken = any(config.flag(name) for name in _UNSTABLE_ENABLED_BY)
    return api.version_max if is_unstable_spoken else api.version_stable_max


class Dispatcher:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._now_us = broker.clock.monotonic_us
        self._stalls = broker.slices.stalls
        self._handlers: dict[int, Loaded] = {}

    def handle(self, request: Request, connection: "ConnectionInfo", reply: Reply) -> bool:
        """Have a request handled; ``reply`` is called now or later, exactly once.

        Returns whether the next one of the same API may be handled before.

        Raises:
            ApiError: UNSUPPORTED_VERSION: the caller closes the connection.
            CorruptionError: The request is malformed: the caller closes the connection.
        """
        began_us = self._now_us()
        api, version = request.api, request.version
        loaded, is_readable = self._handlers.get(api.key), True
        if loaded is None or not api.version_min <= version <= api.version_stable_max:
            if request.is_unknown_api_versions:
                version, is_readable = 0, False
            elif not self._speaks(api, version):
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} version {version}")
            loaded = loaded or self._load(api)
        handle, decode, stats, array, make_context = loaded
        local_us = -1  # set when the handler has returned and the answer is left to others

        def answer(message: Message | None) -> None:
            frame = None
            if message is not None:
                if array is not None and len(getattr(message, array)) > ELEMENTS_AT_ONCE_MAX:
                    sent = partial(self._send, reply, loaded, request, message, began_us, local_us)
                    self._run(_frame_in_steps(request, version, message, array), sent, connection)
                    return
                frame = frame_response(message, api, version, request.correlation_id)
            reply(frame)
            # As in ``_send``: most requests are answered here, and a call costs something.
            total_us = self._now_us() - began_us
            stats.on_answered(message, version, total_us, local_us)
            if total_us >= STALL_US_MIN and local_us < 0:
                self._stalls.note(api.name, total_us)

        context = make_context(
            self._broker,
            api,
            request.version,
            request.client_id,
            connection.listener,
            connection.peer_host,
            connection.principal,
            answer,
            connection,
        )
        if make_context is ForwardedContext:

            def send(message: Message | None, frame: list[Buffer] | None) -> None:
                self._send(reply, loaded, request, message, began_us, local_us, frame)

            _keep_bytes(context, request, send)
        answered = handle(context, decode(request.body, version) if is_readable else None)
        if isinstance(answered, Message):
            answer(answered)
        elif answered is NO_REPLY:
            answer(None)
        elif answered is PENDING or answered is APPENDED:
            local_us = self._now_us() - began_us
            if local_us >= STALL_US_MIN:
                self._stalls.note(api.name, local_us)
        else:
            assert isinstance(answered, GeneratorType)
            self._run(answered, partial(_answer_unless_pending, answer), connection)
            local_us = self._now_us() - began_us
        return answered is APPENDED

    def _send(
        self,
        reply: Reply,
        loaded: Loaded,
        request: Request,
        message: Message | None,
        began_us: int,
        local_us: int,
        frame: list[Buffer] | None,
    ) -> None:
        """Send an answer that is framed, and count its request."""
        reply(frame)
        total_us = self._now_us() - began_us
        version = 0 if request.is_unknown_api_versions else request.version
        loaded.stats.on_answered(message, version, total_us, local_us)
        if total_us >= STALL_US_MIN and local_us < 0:
            self._stalls.note(request.api.name, total_us)

    def _run(
        self, steps: Steps[T], done: Callable[[T], None], connection: "ConnectionInfo"
    ) -> None:
        """Do a part of the work for a client in slices; an error closes its connection."""
        fail = self._broker.server.fail_one
        self._broker.slices.run(steps, done, lambda error: fail(connection, error))

    def _speaks(self, api: Api, version: int) -> bool:
        if version > api.version_stable_max and version > newest_version(api, self._broker.config):
            return False
        return version >= api.version_min and api.name in HANDLERS

    def _load(self, api: Api) -> Loaded:
        module = import_module(f"odradek.broker.handlers.{HANDLERS[api.name]}")
        broker = self._broker
        array = LARGE_ARRAYS.get(api.name)
        context = ForwardedContext if api.name in FORWARDED else RequestContext
        stats, decode = broker.metrics.requests_of(api), api.request().decode
        loaded = Loaded(module.handle, decode, stats, array, context)
        self._handlers[api.key] = loaded
        return loaded


def _frame_in_steps(
    request: Request, version: int, message: Message, array: str
) -> Steps[list[Buffer]]:
    return frame_response_in_steps(message, array, request.api, version, request.correlation_id)


def _answer_unless_pending(answer: Callable[[Message], None], answered: Answer) -> None:
    """Take what a handler returned that worked in slices."""
    if answered is not PENDING:
        assert isinstance(answered, Message)
        answer(answered)


def _keep_bytes(
    context: RequestContext,
    request: Request,
    send: Callable[[Message | None, list[Buffer] | None], None],
) -> None:
    """Let a request be forwarded as it came, and be answered with bytes."""
    assert isinstance(context, ForwardedContext)
    api, version = request.api, request.version

    def reply_bytes(data: Buffer) -> None:
        message = None
        if len(data) <= COUNTED_BYTES_MAX:
            with suppress(CorruptionError):  # a newer controller's: the client may know more
                _, body = open_response(memoryview(data), api, version)
                message = api.response().decode(body, version)
        send(message, response_frame(data))

    context.request = request
    context.reply_bytes = reply_bytes
