"""A broker in memory for each module, and the option that leads to it."""

from collections.abc import Iterator

import pytest

from odradek.testing.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(memory=True) as started:
        yield started


@pytest.fixture
def servers(broker: Broker) -> Iterator[dict[str, str]]:
    yield {"kafka.bootstrap.servers": broker.bootstrap_servers}
    broker.clear_faults()
