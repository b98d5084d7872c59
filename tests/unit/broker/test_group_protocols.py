"""Which group protocols are on: by group.version and by group.coordinator.rebalance.protocols."""

from pathlib import Path
from random import Random

import pytest

from odradek.broker.feature_choice import choose_features
from odradek.broker.formatting import FormatPlan, format_directories
from odradek.core.config import ConfigError
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.storage.disk import OsDisk
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

PROTOCOLS, ASSIGNORS = "group.coordinator.rebalance.protocols", "group.consumer.assignors"
UPGRADE, SAFE_DOWNGRADE = 1, 2


def heartbeat(connection: BrokerConnection, group: str = "g") -> ConsumerGroupHeartbeatResponse:
    """Join a consumer group."""
    connection.ask(FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return connection.ask(request, ConsumerGroupHeartbeatResponse)


def set_group_version(connection: BrokerConnection, level: int, upgrade_type: int) -> None:
    update = FeatureUpdateKey(
        feature="group.version", max_version_level=level, upgrade_type=upgrade_type
    )
    request = UpdateFeaturesRequest(feature_updates=[update])
    answer = connection.ask(request, UpdateFeaturesResponse)
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def expect_no_consumer_groups(connection: BrokerConnection) -> None:
    assert heartbeat(connection).error_code == ErrorCode.UNSUPPORTED_VERSION
    request = ConsumerGroupDescribeRequest(group_ids=["g", "h"])
    groups = connection.ask(request, ConsumerGroupDescribeResponse).groups
    assert [(each.group_id, each.error_code) for each in groups] == [
        ("g", ErrorCode.UNSUPPORTED_VERSION),
        ("h", ErrorCode.UNSUPPORTED_VERSION),
    ]


def test_group_version_0_of_update_features_switches_consumer_groups_off(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t")
    assert heartbeat(connection).error_code == ErrorCode.NONE
    set_group_version(connection, 0, SAFE_DOWNGRADE)
    expect_no_consumer_groups(connection)
    set_group_version(connection, 1, UPGRADE)
    assert heartbeat(connection).error_code == ErrorCode.NONE


def test_group_version_0_of_the_format_switches_consumer_groups_off(tmp_path: Path) -> None:
    plan = FormatPlan(
        cluster_id="a-cluster",
        node_id=1,
        directories=(tmp_path,),
        metadata_directory=tmp_path,
        features=choose_features(None, {"group.version": 0}, dynamic_quorum=False),
    )
    format_directories(OsDisk(), plan, now_ms=1_000, random=Random(1), say=lambda _line: None)
    with Broker(data_dir=str(tmp_path)) as broker, BrokerConnection(broker.port) as connection:
        expect_no_consumer_groups(connection)


def test_protocols_without_consumer_switch_consumer_groups_off() -> None:
    with (
        Broker(config={PROTOCOLS: "classic,streams"}) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        expect_no_consumer_groups(connection)


def test_the_classic_protocol_cannot_be_switched_off() -> None:
    with pytest.raises(ConfigError, match="Disabling the 'CLASSIC' protocol is not supported"):
        Broker(config={PROTOCOLS: "consumer"}).start()


@pytest.mark.parametrize(
    ("assignors", "said"),
    [
        ("uniform,com.example.MyAssignor", "com.example.MyAssignor"),
        ("range,org.apache.kafka.coordinator.group.assignor.RangeAssignor", "twice"),
    ],
)
def test_an_assignor_that_cannot_be_had_is_refused_at_the_start(assignors: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Broker(config={ASSIGNORS: assignors}).start()


def test_the_first_assignor_is_the_default_and_may_be_named_by_its_class() -> None:
    name = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    with (
        Broker(topics=["t"], config={ASSIGNORS: f"{name},uniform"}) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        assert heartbeat(connection).error_code == ErrorCode.NONE
        request = ConsumerGroupDescribeRequest(group_ids=["g"])
        (group,) = connection.ask(request, ConsumerGroupDescribeResponse).groups
        assert group.assignor_name == "range"
