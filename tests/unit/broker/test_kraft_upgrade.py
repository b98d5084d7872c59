"""kraft.version from 0 to 1: the voter goes from the configs into the metadata log, and stays."""

from pathlib import Path

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.interop.ports import free_ports

(CONTROLLER_PORT,) = free_ports(1)
WITH_LISTENER = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{CONTROLLER_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
}
SNAPSHOTS_ALL_THE_TIME = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.log.segment.ms": "1",
    "metadata.max.retention.bytes": "1",
}


def upgrade(
    broker: Broker, *levels: tuple[str, int], validate_only: bool = False, kind: int = 1
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in levels
        ],
        validate_only=validate_only,
    )
    with BrokerConnection(broker.port) as connection:
        return connection.ask(request, UpdateFeaturesResponse)


def level(broker: Broker) -> int:
    with BrokerConnection(broker.port) as connection:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = connection.ask(request, ApiVersionsResponse, 4)
    found = {each.name: each.max_version_level for each in answer.finalized_features}
    return found.get("kraft.version", 0)


def voters(broker: Broker) -> list[tuple[int, list[tuple[str, str, int]]]]:
    partitions = [RequestPartitionData(partition_index=0)]
    topics = [RequestTopicData(topic_name="__cluster_metadata", partitions=partitions)]
    with BrokerConnection(broker.port) as connection:
        answer = connection.ask(DescribeQuorumRequest(topics=topics), DescribeQuorumResponse)
    return [
        (node.node_id, [(each.name, each.host, each.port) for each in node.listeners])
        for node in answer.nodes
    ]


@pytest.mark.parametrize("more", [{}, SNAPSHOTS_ALL_THE_TIME], ids=["log", "snapshots"])
def test_it_is_raised_and_survives_restarts(tmp_path: Path, more: dict[str, str]) -> None:
    config = {**WITH_LISTENER, **more}
    with Broker(config=config, data_dir=str(tmp_path)) as broker:
        assert (level(broker), voters(broker)) == (0, [(1, [])])
        assert upgrade(broker, ("kraft.version", 1)).error_code == 0
        assert level(broker) == 1
        broker.create_topic("t")
    for _ in range(2):
        with Broker(config=config, data_dir=str(tmp_path)) as broker:
            assert level(broker) == 1
            assert voters(broker) == [(1, [("CONTROLLER", "127.0.0.1", CONTROLLER_PORT)])]
            assert set(broker.node.broker.image.topics) == {"t"}


def test_a_dry_run_and_a_bad_neighbour_change_nothing(tmp_path: Path) -> None:
    with Broker(config=WITH_LISTENER, data_dir=str(tmp_path)) as broker:
        assert upgrade(broker, ("kraft.version", 1), validate_only=True).error_code == 0
        assert level(broker) == 0
        refused = upgrade(broker, ("kraft.version", 1), ("no.such", 1))
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert level(broker) == 0
        assert broker.node.metadata.voters is None


def test_there_is_no_way_back() -> None:
    with Broker(config=WITH_LISTENER, memory=True) as broker:
        assert upgrade(broker, ("kraft.version", 1), ("group.version", 1)).error_code == 0
        assert upgrade(broker, ("kraft.version", 1)).error_code == 0, "it is there already"
        refused = upgrade(broker, ("kraft.version", 0), kind=2)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert level(broker) == 1


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_controller_without_a_listener_cannot_be_named(validate_only: bool) -> None:
    with Broker(memory=True) as broker:
        refused = upgrade(broker, ("kraft.version", 1), validate_only=validate_only)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "controller.listener.names names no listener" in (refused.error_message or "")
        assert level(broker) == 0
