"""A broker of its own for each test, and a connection to it."""

from collections.abc import Iterator

import pytest

from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def connection(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        yield opened
