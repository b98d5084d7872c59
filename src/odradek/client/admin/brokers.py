"""The cluster and its brokers: who is there, what they speak, features, the metadata quorum."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.client.admin.driver import Driver, refusal
from odradek.client.admin.results import Result, Results
from odradek.client.cluster import BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS
from odradek.client.errors import check
from odradek.client.metadata import BrokerAddress
from odradek.core.errors import CorruptionError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.apis import api_for_key
from odradek.protocol.generated.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from odradek.protocol.generated.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from odradek.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.wire.connection import SOFTWARE_NAME, SOFTWARE_VERSION

_METADATA_TOPIC: Final = "__cluster_metadata"
_UPGRADE_TYPES_FROM: Final = 1


class BrokerDescription(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


class ClusterDescription(NamedTuple):
    """``controller_id`` is a broker that passes requests on to the controller.

    When controllers are asked, ``brokers`` are controllers and ``controller_id`` is the active one.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


class VersionRange(NamedTuple):
    min_version: int
    max_version: int


class FeatureMetadata(NamedTuple):
    """``finalized`` is what the cluster uses, ``supported`` what the asked broker could."""

    finalized: Mapping[str, VersionRange]
    finalized_epoch: int
    supported: Mapping[str, VersionRange]


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A new level of a feature; 0 takes it out of use."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class QuorumReplica(NamedTuple):
    """Times are -1 for a replica that does not fetch, and where they are not told."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class QuorumEndpoint(NamedTuple):
    listener: str
    host: str
    port: int


class QuorumInfo(NamedTuple):
    """``endpoints`` has those of voters by their id, where the broker tells them."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[QuorumEndpoint, ...]] = {}


class BrokerOperations:
    _driver: Driver

    async def describe_cluster(
        self, *, include_fenced_brokers: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        """Return the cluster's id and brokers; its controllers, if those are asked.

        Raises:
            ValueError: Fenced brokers are wanted of controllers.
        """
        driver = self._driver
        endpoint_type = BROKER_ENDPOINTS
        if driver.cluster.uses_controllers:
            if include_fenced_brokers:
                raise ValueError("Cannot request fenced brokers from controller endpoint")
            endpoint_type = CONTROLLER_ENDPOINTS

        async def ask(node_id: int) -> ClusterDescription:
            versions = (await driver.cluster.connection(node_id)).versions
            if not versions.knows(DescribeClusterRequest.ID) and not include_fenced_brokers:
                return await _described_by_metadata(driver, node_id)
            request = DescribeClusterRequest(
                include_fenced_brokers=include_fenced_brokers, endpoint_type=endpoint_type
            )
            response = await driver.cluster.ask(node_id, request, DescribeClusterResponse)
            check(response.error_code, response.error_message, about="DescribeCluster")
            brokers = sorted(
                BrokerDescription(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
                for each in response.brokers
            )
            return ClusterDescription(response.cluster_id, response.controller_id, tuple(brokers))

        return await driver.single(ask, timeout_ms=timeout_ms, by_controllers=True)

    async def describe_api_versions(
        self, *, timeout_ms: float | None = None
    ) -> Results[int, dict[str, VersionRange]]:
        """Return which versions of which APIs each broker speaks; unknown APIs by their number."""
        driver = self._driver

        async def ask(node_id: int) -> dict[str, VersionRange]:
            response = await _api_versions(driver, node_id)
            return {
                _api_name(each.api_key): VersionRange(each.min_version, each.max_version)
                for each in response.api_keys
            }

        return await driver.every_broker(ask, timeout_ms=timeout_ms)

    async def describe_features(
        self, *, node_id: int | None = None, timeout_ms: float | None = None
    ) -> FeatureMetadata:
        """Return the features of the cluster and their levels (KIP-584), as any broker or one."""
        driver = self._driver

        async def ask(any_id: int) -> FeatureMetadata:
            response = await _api_versions(driver, any_id if node_id is None else node_id)
            return FeatureMetadata(
                {
                    each.name: VersionRange(each.min_version_level, each.max_version_level)
                    for each in response.finalized_features
                },
                response.finalized_features_epoch,
                {
                    each.name: VersionRange(each.min_version, each.max_version)
                    for each in response.supported_features
                },
            )

        return await driver.single(ask, timeout_ms=timeout_ms, by_controllers=True)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate | int],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[str, None]:
        """Change levels of features; brokers since 4.0 take all of them or none."""
        driver = self._driver

        async def ask(node_id: int) -> Results[str, None]:
            def request(version: int) -> UpdateFeaturesRequest:
                return UpdateFeaturesRequest(
                    timeout_ms=driver.request_timeout_ms,
                    feature_updates=[
                        _feature_update(name, update, version) for name, update in updates.items()
                    ],
                    validate_only=validate_only,
                )

            response = await driver.cluster.ask(node_id, request, UpdateFeaturesResponse)
            check(response.error_code, response.error_message, about="UpdateFeatures")
            results: Results[str, None] = Results((name, Result[None]()) for name in updates)
            for each in response.results:
                error = refusal(each.error_code, each.error_message, about=each.feature)
                results[each.feature] = Result(error=error)
            return results

        return await driver.single(
            ask, route=driver.to_controller, timeout_ms=timeout_ms, by_controllers=True
        )

    async def unregister_broker(self, node_id: int, *, timeout_ms: float | None = None) -> None:
        """Make a cluster forget a broker that is gone for good.

        Raises:
            KafkaError: The controller refused.
        """
        driver = self._driver

        async def ask(controller_id: int) -> None:
            request = UnregisterBrokerRequest(broker_id=node_id)
            response = await driver.cluster.ask(controller_id, request, UnregisterBrokerResponse)
            check(response.error_code, response.error_message, about=f"broker {node_id}")

        await driver.single(
            ask, route=driver.to_controller, timeout_ms=timeout_ms, by_controllers=True
        )

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        endpoints: Sequence[QuorumEndpoint],
        *,
        cluster_id: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Give a controller a vote (KIP-853); it has to be caught up, and nothing waits for that.

        Raises:
            KafkaError: The quorum's leader refused.
        """
        driver = self._driver

        async def ask(node_id: int) -> None:
            request = AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=driver.request_timeout_ms,
                voter_id=voter_id,
                voter_directory_id=directory_id,
                listeners=[
                    Listener(name=each.listener, host=each.host, port=each.port)
                    for each in endpoints
                ],
            )
            response = await driver.cluster.ask(node_id, request, AddRaftVoterResponse)
            check(response.error_code, response.error_message, about=f"voter {voter_id}")

        await self._change_voters(ask, timeout_ms)

    async def remove_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        *,
        cluster_id: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Take the vote of a controller (KIP-853).

        Raises:
            KafkaError: The quorum's leader refused.
        """
        driver = self._driver

        async def ask(node_id: int) -> None:
            request = RemoveRaftVoterRequest(
                cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id
            )
            response = await driver.cluster.ask(node_id, request, RemoveRaftVoterResponse)
            check(response.error_code, response.error_message, about=f"voter {voter_id}")

        await self._change_voters(ask, timeout_ms)

    async def _change_voters(
        self, ask: Callable[[int], Awaitable[None]], timeout_ms: float | None
    ) -> None:
        # A change that timed out may have been made: as in Kafka, the caller looks and decides.
        # A controller that is asked directly may not lead, which is for the route to find out.
        final = {ErrorCode.REQUEST_TIMED_OUT}
        if not self._driver.cluster.uses_controllers:
            final.add(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self._driver.single(
            ask, timeout_ms=timeout_ms, final=frozenset(final), by_controllers=True
        )

    async def describe_quorum(self, *, timeout_ms: float | None = None) -> QuorumInfo:
        """Return leader, voters and observers of the metadata quorum (KIP-595)."""
        driver = self._driver
        partition = RequestPartitionData(partition_index=0)
        topics = [RequestTopicData(topic_name=_METADATA_TOPIC, partitions=[partition])]

        async def ask(node_id: int) -> QuorumInfo:
            request = DescribeQuorumRequest(topics=topics)
            response = await driver.cluster.ask(node_id, request, DescribeQuorumResponse)
            check(response.error_code, response.error_message, about="DescribeQuorum")
            found = response.topics[0].partitions[0]
            check(found.error_code, found.error_message, about="DescribeQuorum")
            return QuorumInfo(
                found.leader_id,
                found.leader_epoch,
                found.high_watermark,
                tuple(map(_replica, found.current_voters)),
                tuple(map(_replica, found.observers)),
                {
                    node.node_id: tuple(
                        QuorumEndpoint(each.name, each.host, each.port) for each in node.listeners
                    )
                    for node in response.nodes
                },
            )

        return await driver.single(ask, timeout_ms=timeout_ms, by_controllers=True)


async def _described_by_metadata(driver: Driver, node_id: int) -> ClusterDescription:
    response = await driver.cluster.ask(node_id, MetadataRequest(topics=[]), MetadataResponse)
    brokers = sorted(
        BrokerDescription(*BrokerAddress(each.node_id, each.host, each.port, each.rack))
        for each in response.brokers
    )
    return ClusterDescription(response.cluster_id or "", response.controller_id, tuple(brokers))


async def _api_versions(driver: Driver, node_id: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    response = await driver.cluster.ask(node_id, request, ApiVersionsResponse)
    check(response.error_code, about="ApiVersions")
    return response


def _api_name(key: int) -> str:
    try:
        return api_for_key(key).name
    except CorruptionError:
        return str(key)


def _feature_update(name: str, update: FeatureUpdate | int, version: int) -> FeatureUpdateKey:
    chosen = FeatureUpdate(update) if isinstance(update, int) else update
    if version >= _UPGRADE_TYPES_FROM:
        return FeatureUpdateKey(
            feature=name, max_version_level=chosen.level, upgrade_type=chosen.upgrade_type
        )
    is_downgrade = chosen.upgrade_type is not UpgradeType.UPGRADE
    return FeatureUpdateKey(
        feature=name, max_version_level=chosen.level, allow_downgrade=is_downgrade
    )


def _replica(each: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        each.replica_id,
        each.replica_directory_id,
        each.log_end_offset,
        each.last_fetch_timestamp,
        each.last_caught_up_timestamp,
    )
