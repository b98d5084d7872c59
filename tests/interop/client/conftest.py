"""The two clusters that clients are tried against: Odradek, and where it can run a real Kafka."""

from collections.abc import Iterator

import pytest

from odradek.testing.broker import Broker
from tests.interop.kafka_peer import KafkaNode, PeerUnavailableError, resolve_jars

GROUP_CONFIGS = {
    # A member of the consumer protocol hears of a rebalance with its next heartbeat.
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # Nobody is taken for dead because the machine had other things to do.
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.min.session.timeout.ms": "1000",
    # Some records are of 2023, or of 1970: retention would take them from under a test.
    "log.retention.ms": "-1",
}
# A Kafka that stood still for 9 s would be fenced by its own controller, and lead nothing.
KAFKA_CONFIGS = {**GROUP_CONFIGS, "broker.session.timeout.ms": "600000"}


@pytest.fixture(scope="session")
def odradek_address() -> Iterator[str]:
    with Broker(config=GROUP_CONFIGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        resolve_jars()
    except PeerUnavailableError as missing:
        pytest.skip(str(missing))
    with KafkaNode(tmp_path_factory.mktemp("kafka") / "data", KAFKA_CONFIGS) as node:
        yield node.bootstrap_servers
        node.kill()  # nobody reads what is left: a clean stop flushes hundreds of logs, one by one


@pytest.fixture(
    params=[
        "odradek",
        pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow]),
    ]
)
def cluster_address(request: pytest.FixtureRequest) -> str:
    """Where a cluster is: a test runs with each. Topics and groups need names of their own."""
    address = request.getfixturevalue(f"{request.param}_address")
    assert isinstance(address, str)
    return address
