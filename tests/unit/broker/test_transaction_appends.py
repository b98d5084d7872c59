"""Transactions whose coordinator, or whose group's partition, has too few replicas in sync."""

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.end_txn import EndTxnResponse
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import (
    GROUP_KEY,
    T0,
    T1,
    TransactionalProducer,
    find_coordinator,
)
from tests.unit.broker.held_commits import (
    GROUP_TOPIC,
    TRANSACTION_TOPIC,
    Leadership,
    assert_held,
    partition_of,
    wait_until,
)
from tests.unit.broker.test_held_commits_transactions import ASKED, add_request, write_markers

GROUPS, TRANSACTIONS = TopicPartition(GROUP_TOPIC, 0), TopicPartition(TRANSACTION_TOPIC, 0)
OTHERS = [2, 3]
WRITES = [
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "Produce that adds",
    "TxnOffsetCommit that adds",
]


class Site:
    def __init__(self, broker: Broker, connection: BrokerConnection) -> None:
        self.broker = broker
        self.connection = connection
        find_coordinator(connection, "g", GROUP_KEY)
        self.producer = TransactionalProducer(connection).begin()
        assert self.producer.produce(b"first") is ErrorCode.NONE
        self.leadership = Leadership(broker)

    def share(self, topic: str, isr: list[int]) -> None:
        self.leadership.share(topic, [1, *OTHERS], isr)

    def fetch(self, at: TopicPartition) -> None:
        def fetch_all() -> None:
            partition = partition_of(self.broker.node.broker, at)
            for node_id in OTHERS:
                partition.on_follower_fetch(node_id, partition.log.log_end_offset, 0, -1)

        self.broker._call(fetch_all)

    def end_offset(self, at: TopicPartition) -> int:
        return partition_of(self.broker.node.broker, at).log.log_end_offset

    def transactions(self) -> dict[str, str]:
        def look() -> dict[str, str]:
            (led,) = self.broker.node.broker.transactions._led.values()
            led.shard.check_invariants()
            return {each: repr(what) for each, what in led.shard.transactions.items()}

        return self.broker._call(look)

    def ask(self, name: str) -> Any:
        asked = ASKED[name]
        request = asked.request(self.producer)
        return asked.code_of(self.connection.ask(request, asked.response, asked.version))


@pytest.fixture
def site() -> Iterator[Site]:
    config = {"transaction.state.log.min.isr": "2", "min.insync.replicas": "2"}
    with (
        Broker(topics={"t": 2, "u": 1}, memory=True, config=config) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        yield Site(broker, connection)


@pytest.mark.parametrize("name", WRITES)
def test_a_decision_that_too_few_replicas_can_take_is_none(site: Site, name: str) -> None:
    site.share(TRANSACTION_TOPIC, [1])
    before, end_offset = site.transactions(), site.end_offset(TRANSACTIONS)
    for _ in range(2):
        assert site.ask(name) == ASKED[name].timed_out
        assert site.transactions() == before
        assert site.end_offset(TRANSACTIONS) == end_offset


def test_decisions_of_one_turn_are_one_batch(site: Site) -> None:
    """Two producers of one shard; the second request of one of them waits for its first."""
    with (
        BrokerConnection(site.broker.port) as first,
        BrokerConnection(site.broker.port) as second,
        BrokerConnection(site.broker.port) as third,
    ):
        other = TransactionalProducer(first, "other").begin()
        site.share(TRANSACTION_TOPIC, [1, *OTHERS])
        end_offset = site.end_offset(TRANSACTIONS)

        def send() -> None:
            first.send(add_request(other, T0), 3)
            second.send(add_request(site.producer, T1), 3)
            third.send(site.producer.end_request(commit=True), 5)

        site.broker._call(send)
        assert_held(site.broker, first, second, third, count=3)
        log = partition_of(site.broker.node.broker, TRANSACTIONS).log
        records = site.broker._call(lambda: bytes(log.read(end_offset, bytes_max=1 << 20).records))
        assert batch_counts(records) == [2, 1]
        site.fetch(TRANSACTIONS)
        assert third.receive(EndTxnResponse, 5).error_code == ErrorCode.NONE
        site.fetch(TRANSACTIONS)
        wait_until(
            lambda: "COMPLETE_COMMIT" in site.transactions()["tx"], "the markers should be written"
        )


def test_transactions_that_are_complete_at_once_are_so_in_one_batch(site: Site) -> None:
    with (
        BrokerConnection(site.broker.port) as first,
        BrokerConnection(site.broker.port) as second,
    ):
        other = TransactionalProducer(first, "other").begin()
        assert other.add(T0) == {T0: ErrorCode.NONE}
        site.share(TRANSACTION_TOPIC, [1, *OTHERS])
        end_offset = site.end_offset(TRANSACTIONS)

        def send() -> None:
            first.send(other.end_request(commit=True), 5)
            second.send(site.producer.end_request(commit=True), 5)

        site.broker._call(send)
        assert_held(site.broker, first, second, count=2)
        site.fetch(TRANSACTIONS)
        wait_until(lambda: site.end_offset(TRANSACTIONS) == end_offset + 4, "both are complete")
        log = partition_of(site.broker.node.broker, TRANSACTIONS).log
        records = site.broker._call(lambda: bytes(log.read(end_offset, bytes_max=1 << 20).records))
        assert batch_counts(records) == [2, 2]


def batch_counts(records: bytes) -> list[int]:
    from odradek.storage.scan import iter_batches

    return [each.records_count for each in iter_batches(records)]


def test_a_marker_that_too_few_replicas_can_take_ends_nothing(site: Site) -> None:
    assert site.ask("TxnOffsetCommit that adds") == ErrorCode.NONE
    site.share(GROUP_TOPIC, [1])
    end_offset = site.end_offset(GROUPS)

    def is_pending() -> bool:
        (led,) = site.broker.node.broker.groups._led.values()
        return site.broker._call(lambda: led.shard.offsets.has_pending("g"))

    refused = write_markers(site.connection, site.producer, GROUPS)
    assert refused == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert site.end_offset(GROUPS) == end_offset
    assert is_pending()
    # Its coordinator tries again.
    assert site.producer.end(commit=True) is ErrorCode.NONE
    assert is_pending()
    site.share(GROUP_TOPIC, [1, *OTHERS])
    wait_until(lambda: site.end_offset(GROUPS) > end_offset, "the marker should be written")
    site.fetch(GROUPS)
    wait_until(lambda: not is_pending(), "the transaction's offsets should be committed")
