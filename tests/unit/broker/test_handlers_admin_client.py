"""librdkafka's admin client sees and changes what a user would with it."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.admin._resource import ResourceType

from odradek.testing.broker import Broker

TIMEOUT_SECONDS = 30


@pytest.fixture
def admin(broker: Broker) -> Iterator[AdminClient]:
    # Kept in a name: librdkafka fails what is under way when the client is collected.
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    yield client
    del client


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_SECONDS)


def test_a_topic_is_configured_and_described(broker: Broker, admin: AdminClient) -> None:
    broker.create_topic("orders")
    change = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[change])
    result(admin.incremental_alter_configs([resource]))
    configs = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")]))
    entry = configs["retention.ms"]
    assert (entry.value, entry.source) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


def test_an_unknown_topic_is_an_error(admin: AdminClient) -> None:
    futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "missing")])
    with pytest.raises(KafkaException, match="missing"):
        result(futures)


def test_a_broker_is_described(admin: AdminClient) -> None:
    configs = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert configs["node.id"].value == "1"
    assert configs["node.id"].is_read_only


def test_topics_are_described(broker: Broker, admin: AdminClient) -> None:
    broker.create_topic("orders", 2)
    topic = result(admin.describe_topics(TopicCollection(["orders"])))
    assert [(each.id, each.leader.id) for each in topic.partitions] == [(0, 1), (1, 1)]


def test_an_election_that_is_not_needed_says_so(broker: Broker, admin: AdminClient) -> None:
    broker.create_topic("orders")
    partition = TopicPartition("orders", 0)
    future = admin.elect_leaders(ElectionType.PREFERRED, [partition])
    answered = future.result(TIMEOUT_SECONDS)
    assert answered[partition].name() == "ELECTION_NOT_NEEDED"
