"""Threads that send: order, memory that is full, a producer that is closed under their hands."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.client import BlockingProducer, BrokerError, ClosedError, KafkaError, KafkaTimeoutError
from odradek.client.producer import RecordMetadata, RoundRobin, TransactionFailedError
from odradek.client.settings import as_settings
from odradek.core.errors import ErrorCode
from odradek.testing.broker import Broker
from tests.interop.client.produced_records import new_topic, read_topic, values_in

SECONDS_MAX = 90


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def numbers(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.seed_row("2.1")
def test_every_thread_finds_its_records_in_its_order(cluster_address: str) -> None:
    topic = new_topic(cluster_address, partitions=3)
    with (
        BlockingProducer(bootstrap_servers=cluster_address) as producer,
        ThreadPoolExecutor(4) as threads,
    ):

        def work(thread: int) -> None:
            sent = [
                producer.send(topic, b"%d" % number, key=b"%d" % thread) for number in range(3000)
            ]
            offsets = [each.result(SECONDS_MAX).offset for each in sent]
            assert offsets == sorted(offsets)

        list(threads.map(work, range(4)))
    found: dict[bytes | None, list[bytes | None]] = {}
    for each in read_topic(cluster_address, topic):
        found.setdefault(each.key, []).append(each.value)
    assert found == {b"%d" % thread: numbers(3000) for thread in range(4)}


def test_keys_headers_and_times_arrive(cluster_address: str) -> None:
    topic = new_topic(cluster_address)
    headers = [("a", b"1"), ("b", None)]
    with BlockingProducer(bootstrap_servers=cluster_address) as producer:
        for number in range(50):
            producer.send(topic, b"v", b"k", partition=0, headers=headers, timestamp=number)
        producer.send(topic, None, b"k")
        producer.send(topic, bytearray(b"v"), memoryview(b"k"))
    found = read_topic(cluster_address, topic)
    assert [(each.timestamp, each.headers) for each in found[:50]] == [
        (number, tuple(headers)) for number in range(50)
    ]
    assert [(each.key, each.value) for each in found[50:]] == [(b"k", None), (b"k", b"v")]


def test_a_partitioner_of_ones_own_is_asked_for_every_record() -> None:
    with (
        Broker(topics={"t": 3}, memory=True) as broker,
        BlockingProducer(
            bootstrap_servers=broker.bootstrap_servers, partitioner=RoundRobin()
        ) as producer,
    ):
        sent = [producer.send("t", b"x", b"always the same") for _ in range(9)]
        partitions = [each.result(SECONDS_MAX).partition for each in sent]
    assert partitions == [0, 1, 2] * 3


def test_serializers_see_every_record() -> None:
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingProducer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=str.encode
        ) as producer,
    ):
        for _ in range(20):
            producer.send("t", "text").result(SECONDS_MAX)
        producer.close()
        assert values_in(broker.bootstrap_servers, "t") == [b"text"] * 20


@pytest.mark.seed_row("3.8")
def test_memory_that_is_full_holds_the_sender_up_and_then_says_so() -> None:
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingProducer(
            {"buffer.memory": 50_000, "max.block.ms": 300},
            bootstrap_servers=broker.bootstrap_servers,
        ) as producer,
    ):
        # max.block.ms is for the memory, and too short for a machine that has much to do.
        wait_until(lambda: producer.send("t", b"warm").exception(SECONDS_MAX) is None)
        held = broker.delay("Produce", 600, times=None)
        sent = [producer.send("t", b"x" * 1000)]
        while not (sent[-1].done() and sent[-1].exception()):
            assert len(sent) < 200, "more than there is memory for"
            sent.append(producer.send("t", b"x" * 1000))
        assert isinstance(sent[-1].exception(), KafkaTimeoutError)
        held.clear()
        told = [each.result(SECONDS_MAX).offset for each in sent[:-1]]
        assert told == list(range(1, len(sent)))
        assert producer.send("t", b"again").result(SECONDS_MAX).offset == len(sent)


def test_memory_that_gets_free_lets_the_sender_go_on() -> None:
    values = [b"%d" % number for number in range(5000)]
    with Broker(topics=["t"], memory=True) as broker:
        with BlockingProducer(
            {"buffer.memory": 32_768}, bootstrap_servers=broker.bootstrap_servers
        ) as producer:
            for value in values:
                producer.send("t", value)
        assert values_in(broker.bootstrap_servers, "t") == values


def test_a_producer_that_is_closed_leaves_no_future_undone() -> None:
    """Four threads send while it is closed: each record was delivered, or its sender is told."""
    with Broker(topics=["t"], memory=True) as broker:
        producer = BlockingProducer(bootstrap_servers=broker.bootstrap_servers)
        producer.start()
        counts = [0] * 4

        def work(thread: int) -> int:
            delivered = 0
            try:
                while True:
                    sent = [producer.send("t", b"x") for _ in range(50)]
                    counts[thread] += 50
                    for each in sent:
                        error = each.exception(SECONDS_MAX)
                        assert error is None or isinstance(error, ClosedError), error
                        delivered += error is None
            except ClosedError:
                return delivered

        with ThreadPoolExecutor(4) as threads:
            working = [threads.submit(work, number) for number in range(4)]
            wait_until(lambda: min(counts) >= 100)
            producer.close()
            delivered = sum(each.result(SECONDS_MAX) for each in working)
        # What is there and was never asked for: of the round that the close ended.
        assert delivered <= len(values_in(broker.bootstrap_servers, "t")) <= delivered + 4 * 50


def test_records_that_expire_while_threads_append_are_all_told() -> None:
    """The batch is given up by the loop while threads are about to append to it."""
    settings = {
        "delivery.timeout.ms": 60,
        "request.timeout.ms": 50,
        "linger.ms": 10,
        "max.block.ms": 60_000,
        "retry.backoff.ms": 1,
    }
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingProducer(
            as_settings(settings), bootstrap_servers=broker.bootstrap_servers
        ) as producer,
        ThreadPoolExecutor(2) as threads,
    ):
        wait_until(lambda: producer.send("t", b"warm").exception(SECONDS_MAX) is None)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)

        def work(_: int) -> None:
            for _ in range(30):
                for each in [producer.send("t", b"x") for _ in range(40)]:
                    assert isinstance(each.exception(SECONDS_MAX), KafkaError)

        list(threads.map(work, range(2)))


def test_a_transaction_raises_what_keeps_a_record_from_being_sent() -> None:
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="x"
        ) as producer,
    ):
        producer.init_transactions()
        with pytest.raises(RuntimeError, match="in transactions"):
            producer.send("t", b"too early")
        producer.begin_transaction()
        sent = [producer.send("t", b"x") for _ in range(300)]
        with pytest.raises(BrokerError) as told:
            producer.send("t", b"x" * 2_000_000)
        assert told.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(TransactionFailedError):
            producer.send("t", b"in vain")
        with pytest.raises(TransactionFailedError):
            producer.commit_transaction()
        producer.abort_transaction()
        assert all(each.done() for each in sent)
        with producer.transaction():
            kept: list[RecordMetadata] = []
            for each in [producer.send("t", b"kept") for _ in range(300)]:
                kept.append(each.result(SECONDS_MAX))
        producer.close()
        assert values_in(broker.bootstrap_servers, "t") == [b"kept"] * 300


def test_a_callback_may_send() -> None:
    """It cannot wait for the loop it runs on; the record goes out all the same."""
    done = threading.Event()
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):

        def answer(_: object) -> None:
            producer.send("t", b"answer").add_done_callback(lambda _: done.set())

        producer.send("t", b"question").add_done_callback(answer)
        assert done.wait(SECONDS_MAX)
        producer.close()
        assert values_in(broker.bootstrap_servers, "t") == [b"question", b"answer"]
