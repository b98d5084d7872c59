"""Settings of groups follow the configs that change while the node runs."""

from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

BROKER, GROUP = 4, 32


def set_config(
    connection: BrokerConnection, kind: int, resource: str, name: str, value: str
) -> None:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resources = [AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[config])]
    request = IncrementalAlterConfigsRequest(resources=resources)
    (answer,) = connection.ask(request, IncrementalAlterConfigsResponse).responses
    assert answer.error_code == 0, answer.error_message


def test_a_group_has_the_newest_settings_of_the_broker_and_its_own(
    broker: Broker, connection: BrokerConnection
) -> None:
    find = FindCoordinatorRequest(coordinator_keys=["g"])
    connection.ask(find, FindCoordinatorResponse)
    settings = broker.node.broker.groups.settings
    assert settings is not None
    for value in (0, 50):
        set_config(connection, BROKER, "", "group.consumer.assignment.interval.ms", str(value))
        assert settings.consumer_for("g").assignment_interval_ms == value
    set_config(connection, GROUP, "g", "consumer.heartbeat.interval.ms", "6000")
    assert settings.consumer_for("g").heartbeat_interval_ms == 6000
    assert settings.consumer_for("h").heartbeat_interval_ms == 5000
