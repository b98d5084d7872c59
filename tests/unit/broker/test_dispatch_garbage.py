"""Requests leave no reference cycles: a collector that runs for every few of them costs a tenth."""

import gc

import pytest

from odradek.protocol.generated.fetch import FetchResponse
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.produce import ProduceResponse
from odradek.protocol.message import Message
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.record_requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    fetch_request,
    produce_request,
)

REQUESTS = 300


@pytest.mark.parametrize(
    ("request_", "response", "version"),
    [
        (produce_request("t", b"value"), ProduceResponse, PRODUCE_VERSION),
        (fetch_request(["t"]), FetchResponse, FETCH_VERSION),
        (MetadataRequest(topics=None), MetadataResponse, 12),
    ],
    ids=["Produce", "Fetch", "Metadata"],
)
def test_requests_leave_nothing_to_the_garbage_collector(
    request_: Message, response: type[Message], version: int
) -> None:
    with Broker() as broker, BrokerConnection(broker.port) as connection:
        broker.create_topic("t")
        connection.ask(request_, response, version)  # what is imported then is imported
        gc.collect()
        gc.disable()
        try:
            for _ in range(REQUESTS):
                connection.ask(request_, response, version)
            left = gc.collect()
        finally:
            gc.enable()
    # Of timers and of other tests' leftovers; one cycle for each request would be many times that.
    assert left < REQUESTS
