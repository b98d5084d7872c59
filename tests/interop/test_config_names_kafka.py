"""A node shows the configs that Kafka 4.3 shows, as long as its metadata.version is Kafka 4.3's."""

from pathlib import Path

import pytest

from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.interop.kafka_peer import KafkaNode

CREATE_VERSION, DESCRIBE_VERSION = 7, 4
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
RESOURCES = ((TOPIC, "t"), (BROKER, "1"), (CLIENT_METRICS, "m"), (GROUP, "g"))


def names_of(port: int) -> dict[int, set[str]]:
    """Return the names of all configs that a node shows, by the type of the resource."""
    with BrokerConnection(port) as connection:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        create = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        (made,) = connection.ask(create, CreateTopicsResponse, CREATE_VERSION).topics
        assert made.error_code == 0, made.error_message
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in RESOURCES
        ]
        request = DescribeConfigsRequest(resources=resources)
        answer = connection.ask(request, DescribeConfigsResponse, DESCRIBE_VERSION)
    assert [result.error_code for result in answer.results] == [0] * len(RESOURCES)
    return {
        result.resource_type: {config.name for config in result.configs}
        for result in answer.results
    }


@pytest.mark.usefixtures("kafka_libs")
def test_the_names_are_those_of_kafka(tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "kafka") as kafka:
        expected = names_of(int(kafka.bootstrap_servers.rpartition(":")[2]))
    with Broker() as broker:
        shown = names_of(broker.port)
    for kind in shown:
        assert sorted(shown[kind]) == sorted(expected[kind])
