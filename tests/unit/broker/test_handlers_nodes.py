"""Metadata and DescribeCluster name the brokers of a cluster as the client can reach them."""

import pytest

from odradek.broker.broker_server import BrokerServer
from odradek.metadata.image import ClusterImage
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

ASKED_MAX = 1_000


def other_broker(number: int, *, fenced: bool, listener: str = "PLAINTEXT") -> RegisterBrokerRecord:
    endpoint = BrokerEndpoint(name=listener, host=f"b{number}", port=9000 + number)
    return RegisterBrokerRecord(
        broker_id=number, broker_epoch=1_000 + number, end_points=[endpoint], fenced=fenced
    )


@pytest.fixture
def image(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> ClusterImage:
    """A cluster of this broker, one more, one that is fenced and one of another network."""
    image = broker.node.broker.image.apply(
        [
            other_broker(2, fenced=False),
            other_broker(3, fenced=True),
            other_broker(4, fenced=False, listener="INTERNAL"),
        ]
    )
    monkeypatch.setattr(BrokerServer, "image", image)
    return image


def test_metadata_names_the_brokers_that_the_client_can_reach(
    broker: Broker, image: ClusterImage, connection: BrokerConnection
) -> None:
    assert len(image.brokers) == 4
    own = broker.node.node_id
    controllers = set()
    for _ in range(ASKED_MAX):
        answer = connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
            (own, "127.0.0.1", broker.port),
            (2, "b2", 9002),
        ]
        controllers.add(answer.controller_id)
        if len(controllers) == 2:
            break
    assert controllers == {own, 2}, "each of them forwards"


def test_describe_cluster_names_fenced_brokers_on_request(
    broker: Broker, image: ClusterImage, connection: BrokerConnection
) -> None:
    assert len(image.brokers) == 4
    own = broker.node.node_id
    for fenced in (False, True):
        request = DescribeClusterRequest(include_fenced_brokers=fenced)
        controllers = set()
        for _ in range(ASKED_MAX):
            answer = connection.ask(request, DescribeClusterResponse)
            controllers.add(answer.controller_id)
            if len(controllers) == 2:
                break
        found = [(each.broker_id, each.is_fenced) for each in answer.brokers]
        assert found == [(own, False), (2, False), *([(3, True)] if fenced else [])]
        assert controllers == {own, 2}
