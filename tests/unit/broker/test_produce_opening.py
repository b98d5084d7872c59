"""Batches that unpack to much are opened off the loop, in order, and cost others nothing."""

import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from odradek.broker.opening import UNPACKED_PER_TURN_BYTES_MAX, ClosedBatch, TurnBudget
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records import CompressionType
from odradek.records import compression as codecs
from odradek.storage.log import Log
from odradek.storage.opening import UNPACKED_BYTES_MAX
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch
from tests.transaction_requests import TransactionalProducer

VERSION = 12  # the last one that names topics
MIB = 1024 * 1024
WAIT_SECONDS_MAX = 60
LARGE = UNPACKED_PER_TURN_BYTES_MAX + MIB  # too much for a turn of the loop, not for a batch
BOMB = 64 * MIB
TOPICS = {
    "plain": {},
    "compact": {"cleanup_policy": "compact"},
    "zipped": {"compression_type": "gzip"},
}


def batch_of(size: int, mark: bytes = b"k", codec: CompressionType = CompressionType.ZSTD) -> bytes:
    return bytes(make_batch([bytes(size)], keys=[mark], codec=codec))


SMALL = batch_of(10, b"small", CompressionType.NONE)


def request_of(*batches: bytes, topic: str = "plain", acks: int = -1) -> ProduceRequest:
    """Return a request with a batch for each partition."""
    data = [PartitionProduceData(index=i, records=each) for i, each in enumerate(batches)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=topics)


def answers_of(connection: BrokerConnection) -> list[PartitionProduceResponse]:
    return connection.receive(ProduceResponse, VERSION).responses[0].partition_responses


def log_of(broker: Broker, topic: str = "plain", partition: int = 0) -> Log:
    return broker.node.broker.replicas.leader(TopicPartition(topic, partition)).log


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def held_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Keep the thread that opens batches from doing so until it is released, or the block left.

    The events are that it has begun, and that it is released.
    """
    begun, released = threading.Event(), threading.Event()
    open_batch = ClosedBatch.open

    def held(batch: ClosedBatch) -> None:
        begun.set()
        assert released.wait(WAIT_SECONDS_MAX)
        open_batch(batch)

    monkeypatch.setattr(ClosedBatch, "open", held)
    try:
        yield begun, released
    finally:
        released.set()


class Unpacked:
    """How many bytes were unpacked by each thread, by its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_thread: dict[str, int] = {}
        decompress = codecs.decompress

        def counted(codec: int, data: object, *, output_bytes_max: int, room: object) -> object:
            thread = threading.current_thread().name.partition("_")[0]
            try:
                body = decompress(
                    codec,
                    data,  # type: ignore[arg-type]
                    output_bytes_max=output_bytes_max,
                    room=room,  # type: ignore[arg-type]
                )
                size = len(body)
            except BaseException:
                size = output_bytes_max
                raise
            finally:
                self.by_thread[thread] = self.by_thread.get(thread, 0) + size
            return body

        monkeypatch.setattr(codecs, "decompress", counted)


def loop_cpu_seconds(broker: Broker) -> float:
    """Return the CPU time that the broker's loop has taken so far."""
    thread = broker._thread
    assert thread is not None
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


@pytest.mark.parametrize("topic", TOPICS)
def test_bombs_for_five_partitions_take_neither_the_loop_nor_memory(
    topic: str, broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic, 5, **TOPICS[topic])
    bomb = batch_of(BOMB)
    connection.send(request_of(SMALL, topic=topic), VERSION)  # what is imported then is imported
    answers_of(connection)
    unpacked = Unpacked(monkeypatch)
    tracemalloc.start()
    try:
        before_bytes, before_seconds = tracemalloc.get_traced_memory()[0], loop_cpu_seconds(broker)
        connection.send(request_of(*[bomb] * 5, topic=topic), VERSION)
        answers = answers_of(connection)
        loop_seconds = loop_cpu_seconds(broker) - before_seconds
        peak_bytes = tracemalloc.get_traced_memory()[1] - before_bytes
    finally:
        tracemalloc.stop()
    assert {each.error_code for each in answers} == {ErrorCode.MESSAGE_TOO_LARGE}
    assert unpacked.by_thread.pop("odradek-broker", 0) <= UNPACKED_PER_TURN_BYTES_MAX
    assert unpacked.by_thread == {"odradek-opening": 5 * UNPACKED_BYTES_MAX}
    assert loop_seconds < 0.05  # all turns together
    assert peak_bytes < 2 * UNPACKED_BYTES_MAX + 8 * MIB
    assert log_of(broker, topic).log_end_offset == 1


def test_a_turn_unpacks_no_more_than_its_budget_whoever_asks(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many requests that were sent together are handled in one turn: they share its budget."""
    broker.create_topic("plain")
    half = batch_of(UNPACKED_PER_TURN_BYTES_MAX // 2 - 1000)
    requests = 16
    unpacked = Unpacked(monkeypatch)
    refills = 0
    refill = TurnBudget._refill

    def counted(budget: TurnBudget) -> None:
        nonlocal refills
        refills += 1
        refill(budget)

    monkeypatch.setattr(TurnBudget, "_refill", counted)
    with BrokerConnection(broker.port) as connection:
        for _ in range(requests):
            connection.send(request_of(half), VERSION)
        offsets = [answers_of(connection)[0].base_offset for _ in range(requests)]
    assert offsets == list(range(requests))
    wait_for(lambda: broker.node.broker.opening.budget.left == UNPACKED_PER_TURN_BYTES_MAX)
    assert unpacked.by_thread["odradek-broker"] <= refills * UNPACKED_PER_TURN_BYTES_MAX


@pytest.mark.parametrize("topic", TOPICS)
def test_large_batches_are_taken_and_small_ones_beside_them_do_not_wait(
    topic: str, broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic, 3, **TOPICS[topic])
    is_repacked = topic == "zipped"
    with held_opening(monkeypatch) as (begun, _):
        connection.send(request_of(batch_of(LARGE), SMALL, batch_of(LARGE), topic=topic), VERSION)
        assert begun.wait(WAIT_SECONDS_MAX)
        ends = [log_of(broker, topic, index).log_end_offset for index in range(3)]
        assert ends == [0, 0 if is_repacked else 1, 0]
    answers = answers_of(connection)
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0)] * 3
    assert [each.index for each in answers] == [0, 1, 2]
    traffic = broker.node.broker.replicas.traffic.of(topic)
    assert (traffic.total_produce_requests, traffic.messages_in) == (3, 3)


def test_what_one_connection_sends_stays_in_order_and_others_go_on(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("plain")
    with held_opening(monkeypatch) as (begun, _), BrokerConnection(broker.port) as other:
        for batch in (batch_of(LARGE), SMALL, batch_of(LARGE)):
            connection.send(request_of(batch), VERSION)
        assert begun.wait(WAIT_SECONDS_MAX)
        other.send(request_of(SMALL), VERSION)
        assert answers_of(other)[0].base_offset == 0
    assert [answers_of(connection)[0].base_offset for _ in range(3)] == [1, 2, 3]


def test_a_large_batch_without_acknowledgement_is_appended_or_hangs_up(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("plain")
    connection.send(request_of(batch_of(LARGE), acks=0), VERSION)
    connection.send(request_of(SMALL), VERSION)
    assert answers_of(connection)[0].base_offset == 1
    connection.send(request_of(batch_of(BOMB), acks=0), VERSION)
    connection.send(request_of(SMALL), VERSION)
    with pytest.raises(ConnectionError):
        answers_of(connection)


def test_a_large_batch_is_acknowledged_when_it_is_on_disk(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("plain", flush_messages="1")
    connection.send(request_of(batch_of(LARGE)), VERSION)
    assert answers_of(connection)[0].base_offset == 0
    assert log_of(broker).recovery_point == 1


def test_a_topic_that_is_deleted_meanwhile_takes_no_batch(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("plain")
    with held_opening(monkeypatch) as (begun, _), BrokerConnection(broker.port) as other:
        connection.send(request_of(batch_of(LARGE)), VERSION)
        assert begun.wait(WAIT_SECONDS_MAX)
        deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="plain")], timeout_ms=60_000)
        assert other.ask(deleted, DeleteTopicsResponse).responses[0].error_code == 0
    assert answers_of(connection)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_transaction_that_ends_meanwhile_takes_no_batch(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("plain")
    producer = TransactionalProducer(connection).begin()
    batch = make_batch(
        [bytes(LARGE)],
        codec=CompressionType.ZSTD,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    request = request_of(bytes(batch))
    request.transactional_id = producer.transactional_id
    with held_opening(monkeypatch) as (begun, released), BrokerConnection(broker.port) as other:
        other.send(request, VERSION)
        assert begun.wait(WAIT_SECONDS_MAX)
        assert producer.end(commit=False) == ErrorCode.NONE
        released.set()
        assert answers_of(other)[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    log = log_of(broker)
    assert log.last_stable_offset == log.log_end_offset


def test_a_node_stops_without_the_batches_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(topics={"plain": 2}) as broker, held_opening(monkeypatch) as (begun, released):
        node, logs = broker.node, [log_of(broker, partition=index) for index in range(2)]
        with BrokerConnection(broker.port) as connection:
            connection.send(request_of(batch_of(LARGE), batch_of(LARGE)), VERSION)
            assert begun.wait(WAIT_SECONDS_MAX)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        wait_for(lambda: node.broker.opening.is_stopping)
        released.set()
        stopping.join(WAIT_SECONDS_MAX)
        assert not stopping.is_alive()
        assert [log.log_end_offset for log in logs] == [0, 0]
