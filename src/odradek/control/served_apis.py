"""Which APIs a controller listener serves.

An API is served if it is in one of these tables, and only then advertised. Metadata and the other
APIs of clients are in none: their requests are refused by closing the connection, as in Kafka.
"""

from typing import Final

from odradek.protocol.apis import ALL_APIS, Api

HANDLERS: Final = {
    "AllocateProducerIds": "allocate_producer_ids",
    "AlterConfigs": "alter_configs",
    "AlterPartition": "alter_partition",
    "AlterPartitionReassignments": "alter_partition_reassignments",
    "AlterUserScramCredentials": "alter_user_scram_credentials",
    "ApiVersions": "api_versions",
    "AssignReplicasToDirs": "assign_replicas_to_dirs",
    "BrokerHeartbeat": "broker_heartbeat",
    "BrokerRegistration": "broker_registration",
    "ControllerRegistration": "controller_registration",
    "CreateAcls": "create_acls",
    "CreatePartitions": "create_partitions",
    "CreateTopics": "create_topics",
    "DeleteAcls": "delete_acls",
    "DeleteTopics": "delete_topics",
    "DescribeAcls": "describe_acls",
    "DescribeCluster": "describe_cluster",
    "DescribeConfigs": "describe_configs",
    "ElectLeaders": "elect_leaders",
    "IncrementalAlterConfigs": "incremental_alter_configs",
    "ListPartitionReassignments": "list_partition_reassignments",
    "SaslAuthenticate": "sasl_authenticate",
    "SaslHandshake": "sasl_handshake",
    "UnregisterBroker": "unregister_broker",
    "UpdateFeatures": "update_features",
}
"""API name → module in ``handlers``."""

QUORUM_APIS: Final = frozenset(
    {
        "AddRaftVoter",
        "BeginQuorumEpoch",
        "DescribeQuorum",
        "EndQuorumEpoch",
        "Fetch",
        "FetchSnapshot",
        "RemoveRaftVoter",
        "UpdateRaftVoter",
        "Vote",
    }
)
"""What the quorum answers by itself, on every controller."""

ENVELOPE: Final = "Envelope"

SERVED: Final = tuple(
    api
    for api in ALL_APIS
    if api.name in HANDLERS or api.name in QUORUM_APIS or api.name == ENVELOPE
)
_SERVED_NAMES: Final = frozenset(api.name for api in SERVED)


def is_served(api: Api, version: int) -> bool:
    """Whether a controller listener answers this version of an API."""
    return api.name in _SERVED_NAMES and api.version_min <= version <= api.version_stable_max
