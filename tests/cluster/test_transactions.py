"""Transactions whose partitions, coordinator and group are led by different brokers.

All topics have three replicas on three nodes. What is copied within transactions, and read with
``read_committed``, is what went in, once each: nothing that was aborted, nothing twice.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from odradek.client import BlockingAdmin, BlockingConsumer, BlockingProducer, NewTopic
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.broker_connection import BrokerConnection
from tests.cluster.asking import leaders_of, make_topic
from tests.cluster.flavours import Flavour
from tests.cluster.processes import COMBINED, Cluster, wait_until
from tests.cluster.transaction_asking import (
    coordinator_of,
    keys_by_coordinator,
    read_committed,
    state_of,
)
from tests.transaction_requests import GROUP_KEY, INIT_VERSION, TRANSACTION_KEY

pytestmark = pytest.mark.slow

SECONDS_MAX = 180
CALL_SECONDS_MAX = 20
JOIN_SECONDS_MAX = 30
CONFIGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
}
PARTITIONS = 3
RECORDS = 90
BATCH = 6
KILL_AFTER = 20
"""Records copied before the first kill."""


@contextmanager
def running(folder: Path, flavour: Flavour) -> Iterator[Cluster]:
    with Cluster(folder, COMBINED, flavour, configs=CONFIGS, is_relayed=False) as cluster:
        cluster.start()
        yield cluster


def create_topics(servers: str, *names: str) -> None:
    configs = {"min.insync.replicas": "2"}
    topics = [NewTopic(name, PARTITIONS, len(COMBINED), configs=configs) for name in names]
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        admin.create_topics(topics).unwrap()


def fill(servers: str, topic: str) -> list[bytes]:
    values = [b"%d" % number for number in range(RECORDS)]
    with BlockingProducer(bootstrap_servers=servers, acks="all") as producer:
        sent = [
            producer.send(topic, value, partition=number % PARTITIONS)
            for number, value in enumerate(values)
        ]
        for each in sent:
            each.result(SECONDS_MAX)
    return values


class Copier(ABC):
    """Copies topics in transactions, every third of them aborted; begins again where it failed.

    A failure of any kind ends the producer. The next one fences it, so that its transaction ends.
    """

    name: str

    def __init__(self, servers: str, transactional_id: str, group_id: str) -> None:
        self.servers = servers
        self.transactional_id = transactional_id
        self.group_id = group_id
        self.source, self.target = f"in-{self.name}", f"out-{self.name}"
        self.copied = 0
        self.aborted = 0
        self.failures: list[str] = []
        self.is_stopped = False
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def _run(self) -> None:
        while self.copied < RECORDS and not self.is_stopped:
            try:
                self.session()
            except (KafkaError, confluent_kafka.KafkaException, TimeoutError) as error:
                self.failures.append(repr(error))

    def turn(self) -> bool:
        """Whether the next transaction is to be committed."""
        self.aborted += self.aborted * 2 <= self.copied // BATCH
        return self.aborted * 2 > self.copied // BATCH

    @abstractmethod
    def session(self) -> None:
        """Copy from what the group has committed on, until all is copied or something fails."""


class OurCopier(Copier):
    name = "odradek"

    def session(self) -> None:
        servers, places = self.servers, [TopicPartition(self.source, n) for n in range(PARTITIONS)]
        producer: Any = BlockingProducer(
            bootstrap_servers=servers,
            transactional_id=self.transactional_id,
            max_block_ms=CALL_SECONDS_MAX * 1000,
        )
        consumer: Any = BlockingConsumer(
            bootstrap_servers=servers,
            group_id=self.group_id,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        with consumer:
            try:
                producer.init_transactions()
                consumer.assign(places)
                committed = consumer.committed(places, CALL_SECONDS_MAX)
                self.copied = sum(each.offset for each in committed.values() if each is not None)
                while self.copied < RECORDS and not self.is_stopped:
                    self._copy(producer, consumer)
            finally:
                producer.close(CALL_SECONDS_MAX)

    def _copy(self, producer: Any, consumer: Any) -> None:
        polled = consumer.poll(1.0, max_records=BATCH)
        records = [record for each in polled.values() for record in each]
        if not records:
            return
        is_commit = self.turn()
        producer.begin_transaction()
        for record in records:
            value = record.value if is_commit else b"aborted " + record.value
            producer.send(self.target, value, partition=record.partition)
        offsets = {each: consumer.position(each) for each in polled}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if is_commit:
            producer.commit_transaction()
            self.copied += len(records)
            return
        producer.abort_transaction()
        for each, found in polled.items():
            consumer.seek(each, found[0].offset)


class ConfluentCopier(Copier):
    name = "confluent"

    def session(self) -> None:
        producer: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": self.transactional_id,
                # See tests/interop/histories/load.py. A group's coordinator that is down may still
                # have librdkafka wait for ever, so that of this copier's group is not killed.
                "metadata.recovery.strategy": "none",
            }
        )
        consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group_id,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        places = [confluent_kafka.TopicPartition(self.source, n) for n in range(PARTITIONS)]
        try:
            producer.init_transactions(CALL_SECONDS_MAX)
            committed = consumer.committed(places, CALL_SECONDS_MAX)
            for each in committed:
                each.offset = max(each.offset, 0)
            self.copied = sum(each.offset for each in committed)
            consumer.assign(committed)
            while self.copied < RECORDS and not self.is_stopped:
                self._copy(producer, consumer)
        finally:
            consumer.close()

    def _copy(self, producer: Any, consumer: Any) -> None:
        records = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
        if not records:
            return
        is_commit = self.turn()
        next_offsets: dict[int, int] = {}
        first_offsets: dict[int, int] = {}
        producer.begin_transaction()
        for record in records:
            value = record.value() if is_commit else b"aborted " + record.value()
            producer.produce(self.target, value, partition=record.partition())
            next_offsets[record.partition()] = record.offset() + 1
            first_offsets.setdefault(record.partition(), record.offset())
        offsets = self._places(next_offsets)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, CALL_SECONDS_MAX)
        if is_commit:
            producer.commit_transaction(CALL_SECONDS_MAX)
            self.copied += len(records)
            return
        producer.abort_transaction(CALL_SECONDS_MAX)
        for each in self._places(first_offsets):
            consumer.seek(each)

    def _places(self, offsets: dict[int, int]) -> list[Any]:
        return [
            confluent_kafka.TopicPartition(self.source, number, offset)
            for number, offset in offsets.items()
        ]


@contextmanager
def copying(copiers: list[Copier]) -> Iterator[Callable[[int], None]]:
    """Run copiers; what is yielded waits until each has copied so many records."""

    def wait_for(count: int) -> None:
        for each in copiers:
            wait_until(
                lambda each=each: each.copied >= count,  # type: ignore[misc]
                f"{each.name} copies {count} records, after {each.failures[-3:]}",
                SECONDS_MAX,
            )

    for each in copiers:
        each.thread.start()
    try:
        yield wait_for
    finally:
        for each in copiers:
            each.is_stopped = True
        for each in copiers:
            each.thread.join(JOIN_SECONDS_MAX)


def take_producer_ids(cluster: Cluster) -> list[int]:
    ids = []
    for node in cluster.brokers:
        with BrokerConnection(node.port) as connection:

            def is_given(connection: BrokerConnection = connection) -> bool:
                answer = connection.ask(
                    InitProducerIdRequest(transactional_id=None),
                    InitProducerIdResponse,
                    INIT_VERSION,
                )
                if not answer.error_code:
                    ids.append(answer.producer_id)
                return not answer.error_code

            wait_until(is_given, f"node {node.id} gives a producer id", SECONDS_MAX)
    return ids


@pytest.mark.seed_row("0.3")
def test_what_is_copied_in_transactions_is_there_once_though_brokers_are_killed(
    tmp_path: Path, flavour: Flavour
) -> None:
    with running(tmp_path, flavour) as cluster:
        servers, first = cluster.bootstrap_servers, cluster.nodes[1]
        create_topics(servers, *(f"{way}-{c.name}" for c in COPIERS for way in ("in", "out")))
        wait_until(
            lambda: {*leaders_of(first, "out-odradek")} == {*COMBINED}, "each broker leads one"
        )
        ids = keys_by_coordinator(first, COMBINED, "copier", TRANSACTION_KEY)
        groups = keys_by_coordinator(first, COMBINED, "group", GROUP_KEY)
        copiers: list[Copier] = [
            OurCopier(servers, ids[1], groups[2]),
            ConfluentCopier(servers, ids[2], groups[3]),  # 3 is not killed
        ]
        filled = {each.name: fill(servers, each.source) for each in copiers}
        producer_ids = take_producer_ids(cluster)
        with copying(copiers) as wait_for:
            for number, victim in enumerate((cluster.nodes[1], cluster.nodes[2])):
                # The coordinator of one copier, and the leader of partitions of both.
                wait_for(KILL_AFTER * (number + 1))
                victim.kill()
                victim.restart()
            wait_for(RECORDS)
        for each in copiers:
            assert sorted(read_committed(servers, each.target, PARTITIONS)) == sorted(
                filled[each.name]
            )
            assert each.aborted
        producer_ids += take_producer_ids(cluster)
        assert len(set(producer_ids)) == len(producer_ids)


COPIERS: tuple[type[Copier], ...] = (OurCopier, ConfluentCopier)


def test_a_new_coordinator_brings_markers_to_a_leader_that_was_down_all_the_time(
    tmp_path: Path, flavour: Flavour
) -> None:
    """EndTxn is answered when it is decided; a partition without a leader gets its marker later.

    The coordinator that decided dies before it could be written. Its successor knows of it by
    nothing but its log.
    """
    with running(tmp_path, flavour) as cluster:
        servers, coordinator, down = cluster.bootstrap_servers, cluster.nodes[1], cluster.nodes[2]
        transactional_id = keys_by_coordinator(cluster.nodes[3], COMBINED, "tx", TRANSACTION_KEY)[1]
        make_topic(cluster, "t", [down.id, 3])
        producer = BlockingProducer(
            bootstrap_servers=servers,
            transactional_id=transactional_id,
            max_block_ms=SECONDS_MAX * 1000,
        )
        with producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(2):
                producer.send("t", b"%d" % number, partition=number).result(SECONDS_MAX)
            down.kill()
            producer.commit_transaction()
            assert state_of(coordinator, transactional_id) == "PrepareCommit"
            coordinator.kill()
            down.restart()
            left = cluster.nodes[3]
            wait_until(
                lambda: coordinator_of(left, transactional_id, TRANSACTION_KEY) != coordinator.id,
                "there is another coordinator",
                SECONDS_MAX,
            )
            servers = cluster.bootstrap_servers
            assert sorted(read_committed(servers, "t", 2)) == [b"0", b"1"]
            successor = cluster.nodes[coordinator_of(left, transactional_id, TRANSACTION_KEY)]
            wait_until(
                lambda: state_of(successor, transactional_id) == "CompleteCommit",
                "the transaction is complete",
                SECONDS_MAX,
            )
            coordinator.restart()
