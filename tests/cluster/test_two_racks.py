"""Four brokers in two racks: consumers read from a follower in their rack (KIP-392).

The bytes are counted on their way, so that the same is asked of Odradek and of Kafka.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import confluent_kafka
import pytest

from odradek.client import BlockingConsumer, BlockingProducer
from odradek.core.config.consistency import RACK_AWARE_SELECTOR
from tests.cluster.flavours import Flavour
from tests.cluster.processes import Cluster, ClusterNode, wait_until
from tests.cluster.relays import CLIENT
from tests.cluster.replica_records import make_replicated_topic, wait_for_leader
from tests.interop.kafka_peer import kafka_tool

pytestmark = pytest.mark.slow

ROLES = {1: "controller", 11: "broker", 12: "broker", 13: "broker", 14: "broker"}
RACKS = {11: "a", 12: "a", 13: "b", 14: "b"}
CONFIGS = {
    "replica.selector.class": RACK_AWARE_SELECTOR,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
COUNT = 200
VALUES = [b"%04d" % number * 500 for number in range(COUNT)]
SIZE = sum(map(len, VALUES))
SECONDS_MAX = 120
LEADER, NEAR = 11, 13


@pytest.fixture(scope="module")
def cluster(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """``t`` is led in one rack; each rack has one of its replicas."""
    folder = tmp_path_factory.mktemp("racks")
    with Cluster(folder, ROLES, flavour, configs=CONFIGS) as made:
        for node_id, rack in RACKS.items():
            made.write_properties(made.nodes[node_id], broker_rack=rack)
        made.start()
        make_replicated_topic(made, "t", [made.nodes[LEADER], made.nodes[NEAR]])
        send(made, *VALUES)
        yield made


def send(cluster: Cluster, *values: bytes) -> None:
    with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for sent in [producer.send("t", value) for value in values]:
            sent.result(SECONDS_MAX)


@contextmanager
def counted(cluster: Cluster) -> Iterator[dict[int, int]]:
    """Count how many bytes each broker sends to clients meanwhile."""
    carried = cluster.relays.carried
    before = {each: carried[each, CLIENT] for each in RACKS}
    served: dict[int, int] = {}
    yield served
    served.update({each: carried[each, CLIENT] - count for each, count in before.items()})


def assert_served_by(node_id: int, served: dict[int, int]) -> None:
    """Check that a broker served all records, and the others no more than metadata."""
    assert served[node_id] >= SIZE, served
    assert sum(served.values()) - served[node_id] < SIZE / 4, served


class Ours:
    def __init__(self, cluster: Cluster) -> None:
        self._consumer = BlockingConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            client_rack="b",
        )

    def poll(self) -> list[bytes | None]:
        found = self._consumer.poll(0.2).values()
        return [record.value for records in found for record in records]

    def close(self) -> None:
        self._consumer.close()


class Librdkafka:
    def __init__(self, cluster: Cluster) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "unused",
                "auto.offset.reset": "earliest",
                "client.rack": "b",
                "log_level": 0,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])

    def poll(self) -> list[bytes | None]:
        message = self._consumer.poll(0.2)
        return [] if message is None or message.error() else [message.value()]

    def close(self) -> None:
        self._consumer.close()


Reader = Ours | Librdkafka


def read(reader: Reader, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []

    def has_all() -> bool:
        values.extend(reader.poll())
        return len(values) >= count

    wait_until(has_all, f"{count} records are read", SECONDS_MAX)
    return values


@pytest.mark.parametrize("client", [Ours, Librdkafka])
def test_every_byte_comes_from_the_follower_in_the_rack(
    cluster: Cluster, client: type[Reader]
) -> None:
    with counted(cluster) as served, closing(client(cluster)) as reader:
        assert read(reader, COUNT) == VALUES
    assert_served_by(NEAR, served)


def test_javas_consumer_reads_from_the_follower_in_its_rack(cluster: Cluster) -> None:
    place = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "t"]
    wanted = ["--from-beginning", "--max-messages", str(COUNT)]
    with counted(cluster) as served:
        run = kafka_tool("console-consumer", *place, *wanted, "--command-property", "client.rack=b")
    assert run.stdout.encode().split() == VALUES
    assert_served_by(NEAR, served)


def test_consumers_return_to_the_leader_when_their_follower_dies(cluster: Cluster) -> None:
    near: ClusterNode = cluster.nodes[NEAR]
    with closing(Ours(cluster)) as ours, closing(Librdkafka(cluster)) as librdkafka:
        readers: list[Reader] = [ours, librdkafka]
        for reader in readers:
            assert read(reader, COUNT) == VALUES
        near.kill()
        with counted(cluster) as served:
            send(cluster, *VALUES)  # acknowledged when the follower has left the ISR
            for reader in readers:
                assert read(reader, COUNT) == VALUES
        assert served[LEADER] >= 2 * SIZE
    near.restart()
    wait_for_leader(near, "t", [cluster.nodes[LEADER]])
