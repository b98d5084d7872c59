"""The quorum is described, features change all or not at all, telemetry is taken and dropped."""

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.metadata.features import METADATA_VERSION, METADATA_VERSION_LATEST, SHARE_VERSION
from odradek.protocol.generated import describe_quorum, update_features
from odradek.protocol.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.protocol.generated.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.records.compression import CompressionType, compress
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

CLIENT = Uuid(b"a client's uuid!")
UPGRADE, SAFE_DOWNGRADE = 1, 2


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_this_node(
    broker: Broker, connection: BrokerConnection, version: int
) -> None:
    broker.create_topic("orders")
    numbers = [describe_quorum.RequestPartitionData(partition_index=each) for each in (0, 1)]
    topic = describe_quorum.RequestTopicData(topic_name="__cluster_metadata", partitions=numbers)
    request = describe_quorum.DescribeQuorumRequest(topics=[topic])
    response = connection.ask(request, describe_quorum.DescribeQuorumResponse, version)
    found, missing = response.topics[0].partitions
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (found.error_code, found.leader_id, found.leader_epoch) == (0, 1, 1)
    assert found.observers == []
    (voter,) = found.current_voters
    assert voter.replica_id == 1
    assert voter.log_end_offset == found.high_watermark == broker.node.broker.metadata_offset + 1
    assert (voter.last_caught_up_timestamp > 0) == (version >= 1)
    directory_id = broker.node.broker.store.directories[0].directory_id
    assert voter.replica_directory_id == (directory_id if version >= 2 else ZERO_UUID)
    assert [node.node_id for node in response.nodes] == ([1] if version >= 2 else [])


def update(
    connection: BrokerConnection,
    *updates: tuple[str, int, int],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    request = update_features.UpdateFeaturesRequest(
        feature_updates=[
            update_features.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=kind
            )
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    response = connection.ask(request, update_features.UpdateFeaturesResponse)
    return response.error_code, response.error_message


def test_features_change_all_or_not_at_all(broker: Broker, connection: BrokerConnection) -> None:
    down = (SHARE_VERSION, 0, SAFE_DOWNGRADE)
    too_high = (METADATA_VERSION, METADATA_VERSION_LATEST + 1, UPGRADE)
    code, message = update(connection, down, too_high)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert METADATA_VERSION in (message or "")
    assert update(connection, down, validate_only=True) == (0, None)
    assert broker.node.broker.image.features[SHARE_VERSION] == 1
    assert update(connection, down) == (0, None)
    assert SHARE_VERSION not in broker.node.broker.image.features


def subscription(connection: BrokerConnection, client: Uuid) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
    return connection.ask(request, GetTelemetrySubscriptionsResponse)


def test_a_client_keeps_the_instance_id_it_gets(connection: BrokerConnection) -> None:
    first = subscription(connection, ZERO_UUID)
    assert first.client_instance_id != ZERO_UUID
    again = subscription(connection, first.client_instance_id)
    assert again.client_instance_id == first.client_instance_id
    assert again.subscription_id == first.subscription_id
    other = subscription(connection, ZERO_UUID)
    assert other.client_instance_id != first.client_instance_id
    assert (first.error_code, first.requested_metrics) == (0, [])
    assert first.push_interval_ms > 0
    assert first.accepted_compression_types == [4, 3, 1, 2]


BYTES_MAX = 1000
FITS, TOO_LONG = bytes(BYTES_MAX), bytes(BYTES_MAX + 1)
PACKED = [codec for codec in CompressionType if codec is not CompressionType.NONE]


@pytest.mark.parametrize(
    ("codec", "metrics", "code"),
    [
        (CompressionType.NONE, b"", ErrorCode.NONE),
        (CompressionType.ZSTD, b"", ErrorCode.NONE),
        (CompressionType.NONE, FITS, ErrorCode.NONE),
        (CompressionType.NONE, TOO_LONG, ErrorCode.TELEMETRY_TOO_LARGE),
        *((codec, compress(codec, FITS), ErrorCode.NONE) for codec in CompressionType),
        *((codec, compress(codec, TOO_LONG), ErrorCode.INVALID_RECORD) for codec in PACKED),
        (CompressionType.GZIP, b"not packed", ErrorCode.INVALID_RECORD),
        (5, b"x", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (-1, b"x", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_telemetry_is_taken_up_to_a_size(codec: int, metrics: bytes, code: ErrorCode) -> None:
    config = {"telemetry.max.bytes": str(BYTES_MAX)}
    with Broker(config=config) as broker, BrokerConnection(broker.port) as connection:
        told = subscription(connection, CLIENT)
        request = PushTelemetryRequest(
            client_instance_id=CLIENT,
            subscription_id=told.subscription_id,
            compression_type=codec,
            metrics=metrics,
        )
        assert told.telemetry_max_bytes == BYTES_MAX
        assert connection.ask(request, PushTelemetryResponse).error_code == code


def test_telemetry_of_nobody_or_for_nothing_is_refused(connection: BrokerConnection) -> None:
    told = subscription(connection, CLIENT)
    nobody = PushTelemetryRequest(subscription_id=told.subscription_id)
    answer = connection.ask(nobody, PushTelemetryResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    stale = PushTelemetryRequest(
        client_instance_id=CLIENT, subscription_id=told.subscription_id + 1
    )
    answer = connection.ask(stale, PushTelemetryResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
