"""Configs are described with their sources, and changed for good or not at all."""

import pytest

from odradek.core.config import ConfigSource, ConfigType
from odradek.core.errors import ErrorCode
from odradek.metadata.config_resource import ResourceType
from odradek.protocol.generated import alter_configs, incremental_alter_configs
from odradek.protocol.generated import describe_configs as described
from odradek.protocol.generated.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

TOPIC, BROKER, CLIENT_METRICS, GROUP = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)
SET, DELETE, APPEND = 0, 1, 2


def describe(
    connection: BrokerConnection,
    kind: int,
    name: str,
    *names: str,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> described.DescribeConfigsResult:
    resource = described.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(names) or None
    )
    request = described.DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = connection.ask(request, described.DescribeConfigsResponse, version).results
    return result


def describe_one(
    connection: BrokerConnection, kind: int, name: str, config: str
) -> tuple[str | None, int]:
    """Return the value of a config and where it comes from."""
    (entry,) = describe(connection, kind, name, config).configs
    return entry.value, entry.config_source


def alter(
    connection: BrokerConnection,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> tuple[int, str | None]:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=config, config_operation=operation, value=value
            )
            for config, operation, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    response = incremental_alter_configs.IncrementalAlterConfigsResponse
    (result,) = connection.ask(request, response).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def replace(connection: BrokerConnection, kind: int, name: str, **configs: str) -> int:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=config.replace("_", "."), value=value)
            for config, value in configs.items()
        ],
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource])
    (result,) = connection.ask(request, alter_configs.AlterConfigsResponse).responses
    return result.error_code


def test_a_topic_has_its_own_configs_and_defaults(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders", retention_ms="1000")
    result = describe(connection, TOPIC, "orders")
    assert (result.error_code, result.error_message) == (0, None)
    configs = {entry.name: entry for entry in result.configs}
    own, default = configs["retention.ms"], configs["max.message.bytes"]
    assert (own.value, own.config_source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (default.value, default.config_source) == ("1048588", ConfigSource.DEFAULT_CONFIG)
    assert not any(entry.read_only or entry.is_sensitive for entry in result.configs)
    assert (own.config_type, default.config_type) == (ConfigType.LONG, ConfigType.INT)


def test_synonyms_and_documentation_come_only_if_asked_for(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders", segment_bytes="5000")
    (plain,) = describe(connection, TOPIC, "orders", "segment.bytes").configs
    assert (plain.synonyms, plain.documentation) == ([], None)
    (full,) = describe(
        connection, TOPIC, "orders", "segment.bytes", synonyms=True, documentation=True
    ).configs
    assert [(each.name, each.value, each.source) for each in full.synonyms] == [
        ("segment.bytes", "5000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert full.documentation


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_describes(
    broker: Broker, connection: BrokerConnection, version: int
) -> None:
    broker.create_topic("orders", retention_ms="1000")
    (entry,) = describe(
        connection, TOPIC, "orders", "retention.ms", version=version, synonyms=True
    ).configs
    assert (entry.value, entry.config_source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entry.synonyms[0].value == "1000"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not/a/topic", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_is_refused_by_itself(
    broker: Broker, connection: BrokerConnection, kind: int, name: str, code: ErrorCode
) -> None:
    broker.create_topic("orders")
    resources = [
        described.DescribeConfigsResource(
            resource_type=each, resource_name=text, configuration_keys=None
        )
        for each, text in [(kind, name), (TOPIC, "orders")]
    ]
    request = described.DescribeConfigsRequest(resources=resources)
    bad, good = connection.ask(request, described.DescribeConfigsResponse).results
    assert (bad.error_code, bad.resource_type, bad.resource_name) == (code, kind, name)
    assert bad.error_message
    assert bad.configs == []
    assert (good.error_code, bool(good.configs)) == (0, True)


def test_a_broker_shows_its_file_but_no_secrets() -> None:
    config = {"num.partitions": "7", "ssl.key.password": "hush", "rsm.config.token": "hush"}
    with Broker(config=config) as broker, BrokerConnection(broker.port) as connection:
        entries = {
            entry.name: entry for entry in describe(connection, BROKER, "1", synonyms=True).configs
        }
    static = ConfigSource.STATIC_BROKER_CONFIG
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.config_source) == ("7", static)
    assert partitions.read_only
    for name in ("ssl.key.password", "rsm.config.token"):
        secret = entries[name]
        assert (secret.value, secret.is_sensitive, secret.config_source) == (None, True, static)
        assert [each.value for each in secret.synonyms] == [None]


def test_configs_of_all_brokers_are_weaker_than_those_of_one(connection: BrokerConnection) -> None:
    name = "log.retention.ms"
    assert alter(connection, BROKER, "", (name, SET, "5000")) == (0, None)
    everywhere = ("5000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert describe_one(connection, BROKER, "", name) == everywhere
    assert describe_one(connection, BROKER, "1", name) == everywhere
    assert alter(connection, BROKER, "1", (name, SET, "6000")) == (0, None)
    assert describe_one(connection, BROKER, "", name) == everywhere
    own = ("6000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert describe_one(connection, BROKER, "1", name) == own


def test_a_topic_inherits_what_is_set_for_its_broker(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders")
    alter(connection, BROKER, "", ("log.retention.ms", SET, "5000"))
    inherited = ("5000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert describe_one(connection, TOPIC, "orders", "retention.ms") == inherited


def test_a_change_is_there_when_it_is_answered(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders", retention_ms="1000")
    changes = [
        ("max.message.bytes", SET, "2000"),
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    ]
    assert alter(connection, TOPIC, "orders", *changes) == (0, None)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert describe_one(connection, TOPIC, "orders", "max.message.bytes") == ("2000", own)
    assert describe_one(connection, TOPIC, "orders", "cleanup.policy") == ("delete,compact", own)
    retention = describe_one(connection, TOPIC, "orders", "retention.ms")
    assert retention == ("604800000", ConfigSource.DEFAULT_CONFIG)
    assert broker.node.broker.store.logs[0].config.max_message_bytes == 2000


def test_validating_changes_nothing(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("orders")
    good, bad = ("retention.ms", SET, "5"), ("retention.ms", SET, "soon")
    assert alter(connection, TOPIC, "orders", good, validate_only=True) == (0, None)
    code, message = alter(connection, TOPIC, "orders", bad, validate_only=True)
    assert code == ErrorCode.INVALID_CONFIG
    assert "retention.ms" in (message or "")
    unchanged = ("604800000", ConfigSource.DEFAULT_CONFIG)
    assert describe_one(connection, TOPIC, "orders", "retention.ms") == unchanged


def test_of_several_changes_of_a_resource_all_are_made_or_none(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders")
    changes = [("retention.ms", SET, "5"), ("no.such.config", SET, "5")]
    assert alter(connection, TOPIC, "orders", *changes)[0] == ErrorCode.INVALID_CONFIG
    unchanged = ("604800000", ConfigSource.DEFAULT_CONFIG)
    assert describe_one(connection, TOPIC, "orders", "retention.ms") == unchanged


@pytest.mark.parametrize(
    ("kind", "name", "config", "code"),
    [
        (TOPIC, "missing", "retention.ms", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", "num.partitions", ErrorCode.INVALID_REQUEST),
        (BROKER, "", "log.dirs", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", "root", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_may_not_be_changed_is_refused(
    connection: BrokerConnection, kind: int, name: str, config: str, code: ErrorCode
) -> None:
    refusal, message = alter(connection, kind, name, (config, SET, "5"))
    assert refusal == code
    assert message


def test_replacing_drops_what_is_not_named(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("orders", retention_ms="1000")
    assert replace(connection, TOPIC, "orders", max_message_bytes="3000") == 0
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert describe_one(connection, TOPIC, "orders", "max.message.bytes") == ("3000", own)
    retention = describe_one(connection, TOPIC, "orders", "retention.ms")
    assert retention == ("604800000", ConfigSource.DEFAULT_CONFIG)


def list_resources(
    connection: BrokerConnection, *kinds: int, version: int = 1
) -> tuple[int, list[tuple[int, str]]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    response = connection.ask(request, ListConfigResourcesResponse, version)
    found = [(each.resource_type, each.resource_name) for each in response.config_resources]
    return response.error_code, found


def test_resources_are_listed_by_type(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("orders")
    broker.create_topic("bills")
    alter(connection, CLIENT_METRICS, "all", ("interval.ms", SET, "1000"))
    alter(connection, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    topics, subscription = [(TOPIC, "bills"), (TOPIC, "orders")], (CLIENT_METRICS, "all")
    assert list_resources(connection, TOPIC) == (0, topics)
    assert list_resources(connection) == (
        0,
        [*topics, (BROKER, "1"), subscription, (GROUP, "g")],
    )
    assert list_resources(connection, version=0) == (0, [subscription])
    assert list_resources(connection, TOPIC, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_groups_and_subscriptions_are_described(connection: BrokerConnection) -> None:
    alter(connection, CLIENT_METRICS, "all", ("interval.ms", SET, "1000"))
    subscription = ("1000", ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)
    assert describe_one(connection, CLIENT_METRICS, "all", "interval.ms") == subscription
    alter(connection, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    own = ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert describe_one(connection, GROUP, "g", "consumer.session.timeout.ms") == own
