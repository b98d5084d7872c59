"""From a request to its handler and back. Hot path.

An API is spoken if it is in HANDLERS, and only then advertised. A handler's module is imported when
its first request comes: a node that starts loads none.
"""

from functools import partial
from importlib import import_module
from types import GeneratorType
from typing import TYPE_CHECKING, Final

from odradek.broker.context import (
    APPENDED,
    NO_REPLY,
    PENDING,
    Answer,
    Reply,
    RequestContext,
    ServedApi,
)
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.stalls import STALL_US_MIN
from odradek.protocol.apis import ALL_APIS, Api
from odradek.protocol.framing import Request
from odradek.protocol.message import Message

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
    "SaslAuthenticate": "sasl_authenticate",
    "SaslHandshake": "sasl_handshake",
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


def newest_version(api: Api, config: "BrokerConfig") -> int:
    """Return the newest version that is spoken; unstable ones are only if that is configured."""
    is_unstable_spoken = any(config.flag(name) for name in _UNSTABLE_ENABLED_BY)
    return api.version_max if is_unstable_spoken else api.version_stable_max


class Dispatcher:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._now_us = broker.clock.monotonic_us
        self._served: dict[int, ServedApi] = {}

    def handle(self, request: Request, connection: "ConnectionInfo", reply: Reply) -> bool:
        """Have a request handled; ``reply`` is called now or later, exactly once.

        Returns whether the next one of the same API may be handled before.

        Raises:
            ApiError: UNSUPPORTED_VERSION: the caller closes the connection.
            CorruptionError: The request is malformed: the caller closes the connection.
        """
        began_us = self._now_us()
        api, version = request.api, request.version
        served, is_readable = self._served.get(api.key), True
        if served is None or not api.version_min <= version <= api.version_stable_max:
            if request.is_unknown_api_versions:
                version, is_readable = 0, False
            elif not self._speaks(api, version):
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} version {version}")
            served = served or self._load(api)
        context = RequestContext(
            self._broker, served, request, version, connection, reply, began_us
        )
        decoded = served.decode(request.body, version) if is_readable else None
        answered = served.handle(context, decoded)
        if isinstance(answered, Message):
            context.reply(answered)
        elif answered is NO_REPLY:
            context.reply(None)
        elif answered is PENDING or answered is APPENDED:
            local_us = context.local_us = self._now_us() - began_us
            if local_us >= STALL_US_MIN:
                self._broker.slices.stalls.note(api.name, local_us)
        else:
            assert isinstance(answered, GeneratorType)
            context.run(answered, partial(_reply_unless_pending, context))
            context.local_us = self._now_us() - began_us
        return answered is APPENDED

    def _speaks(self, api: Api, version: int) -> bool:
        if version > api.version_stable_max and version > newest_version(api, self._broker.config):
            return False
        return version >= api.version_min and api.name in HANDLERS

    def _load(self, api: Api) -> ServedApi:
        module = import_module(f"odradek.broker.handlers.{HANDLERS[api.name]}")
        stats, decode = self._broker.metrics.requests_of(api), api.request().decode
        served = ServedApi(module.handle, decode, stats, LARGE_ARRAYS.get(api.name))
        self._served[api.key] = served
        return served


def _reply_unless_pending(context: RequestContext, answered: Answer) -> None:
    """Take what a handler returned that worked in slices."""
    if answered is not PENDING:
        assert isinstance(answered, Message)
        context.reply(answered)
