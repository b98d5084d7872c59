"""Transactions over an Odradek broker and a Kafka broker, under Odradek's controllers.

Each broker coordinates transactions of which it does not lead all partitions: WriteTxnMarkers and
AddPartitionsToTxn go both ways, in the versions of Kafka 4.3.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from odradek.client import BlockingConsumer, BlockingProducer, OffsetAndMetadata
from odradek.client.consumer import ConsumerGroupMetadata
from odradek.core.ids import TopicPartition
from tests.cluster.asking import make_topic
from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.cluster.processes import Cluster, wait_until
from tests.cluster.transaction_asking import keys_by_coordinator, read_committed, state_of
from tests.transaction_requests import GROUP_KEY, TRANSACTION_KEY

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

OURS, KAFKAS = 11, 12
BROKERS = (OURS, KAFKAS)
ROLES = {1: "controller", OURS: "broker", KAFKAS: "broker"}
SECONDS_MAX = 180
CONFIGS = {
    "broker.session.timeout.ms": "18000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
ROUNDS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flavours: dict[int, Flavour] = {1: Odradek(), OURS: Odradek(), KAFKAS: Kafka()}
    folder: Path = tmp_path_factory.mktemp("mixed-transactions")
    with Cluster(folder, ROLES, flavours, configs=CONFIGS, is_relayed=False) as started:
        started.start()
        yield started


class OurProducer:
    def __init__(self, servers: str, transactional_id: str) -> None:
        self._producer: Any = BlockingProducer(
            bootstrap_servers=servers,
            transactional_id=transactional_id,
            max_block_ms=SECONDS_MAX * 1000,
        )
        self._producer.init_transactions()

    def work(self, topic: str, group: str, number: int, *, commit: bool) -> None:
        """Write to both partitions and commit an offset, in a transaction."""
        producer = self._producer
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send(topic, value_of(number, commit=commit), partition=partition)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(number)}
        producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))
        producer.commit_transaction() if commit else producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()


class ConfluentProducer:
    """One that adds partitions itself, so that leaders verify only."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "transactional.id": transactional_id}
        )
        self._consumer: Any = None
        self._servers = servers
        self._producer.init_transactions(SECONDS_MAX)

    def work(self, topic: str, group: str, number: int, *, commit: bool) -> None:
        if self._consumer is None:
            settings = {"bootstrap.servers": self._servers, "group.id": group}
            self._consumer = confluent_kafka.Consumer(settings)
        producer = self._producer
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, value_of(number, commit=commit), partition=partition)
        offsets = [confluent_kafka.TopicPartition(topic, 0, number)]
        metadata = self._consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, SECONDS_MAX)
        if commit:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def value_of(number: int, *, commit: bool) -> bytes:
    return b"%s %d" % (b"committed" if commit else b"aborted", number)


def committed_offset(servers: str, group: str, topic: str) -> int | None:
    consumer: Any = BlockingConsumer(bootstrap_servers=servers, group_id=group)
    with consumer:
        place = TopicPartition(topic, 0)
        found: OffsetAndMetadata | None = consumer.committed([place], SECONDS_MAX)[place]
    return None if found is None else found.offset


@pytest.mark.parametrize("make", [OurProducer, ConfluentProducer])
@pytest.mark.parametrize("coordinator", BROKERS)
def test_transactions_over_brokers_of_both_kinds_end_as_decided(
    cluster: Cluster,
    coordinator: int,
    make: Callable[[str, str], OurProducer | ConfluentProducer],
) -> None:
    servers, node = cluster.bootstrap_servers, cluster.nodes[OURS]
    topic = f"t-{coordinator}-{make.__name__}"
    make_topic(cluster, topic, BROKERS)
    transactional_id = keys_by_coordinator(node, BROKERS, topic, TRANSACTION_KEY)[coordinator]
    groups = keys_by_coordinator(node, BROKERS, f"group-{topic}", GROUP_KEY)
    # The group is the other broker's: its offsets are a third partition of the transaction.
    group = groups[next(each for each in BROKERS if each != coordinator)]
    producer = make(servers, transactional_id)
    try:
        for number in range(ROUNDS):
            producer.work(topic, group, 2 * number, commit=True)
            producer.work(topic, group, 2 * number + 1, commit=False)
    finally:
        producer.close()
    expected = [value_of(2 * number, commit=True) for number in range(ROUNDS)]
    assert sorted(read_committed(servers, topic, len(BROKERS))) == sorted(expected * 2)
    assert committed_offset(servers, group, topic) == 2 * (ROUNDS - 1)
    wait_until(
        lambda: state_of(cluster.nodes[coordinator], transactional_id) == "CompleteAbort",
        "the last transaction is complete",
        SECONDS_MAX,
    )
