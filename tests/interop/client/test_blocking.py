"""Blocking clients: the same work, without a loop or beside one, with Ctrl-C, forks and exits."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.client import (
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    ClosedError,
    KafkaTimeoutError,
    OffsetSpec,
    RebalanceListener,
    TopicPartition,
)
from odradek.testing.broker import Broker
from tests.interop.client.admin_session import SECONDS_MAX, fresh

EXIT_SECONDS_MAX = 100
"""Less than a record may take that nobody waits for: delivery.timeout.ms."""


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)


def fail(_: object) -> None:
    raise ZeroDivisionError


def read(address: str, topic: str, count: int) -> list[bytes | None]:
    with BlockingConsumer(
        bootstrap_servers=address, group_id=fresh("g"), auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        for record in consumer:
            values.append(record.value)
            if len(values) == count:
                return values
    raise AssertionError("the consumer ended by itself")


def test_records_go_there_and_back(cluster_address: str) -> None:
    topic = fresh("blocking")
    values = [str(number).encode() for number in range(500)]
    with BlockingAdmin(bootstrap_servers=cluster_address) as admin:
        admin.create_topics([topic]).unwrap()
        with BlockingProducer(bootstrap_servers=cluster_address) as producer:
            sent = [producer.send(topic, value) for value in values]
            producer.flush()
            assert all(each.done() for each in sent)
            assert [each.result().offset for each in sent] == list(range(500))
        partition = TopicPartition(topic, 0)
        found = admin.list_offsets({partition: OffsetSpec.LATEST})
        assert found[partition].unwrap().offset == 500
    assert read(cluster_address, topic, 500) == values


def test_transactions_block_too(cluster_address: str) -> None:
    topic, name = fresh("blocking-txn"), fresh("blocking-txn-id")
    partition = TopicPartition(topic, 0)
    with BlockingAdmin(bootstrap_servers=cluster_address) as admin:
        admin.create_topics([topic]).unwrap()
        with BlockingProducer(bootstrap_servers=cluster_address, transactional_id=name) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(topic, b"kept")
            with pytest.raises(ZeroDivisionError), producer.transaction():
                fail(producer.send(topic, b"not kept").result(SECONDS_MAX))
            with pytest.raises(TypeError), producer.transaction():
                producer.send(topic, 42)  # raised here, not by a future nobody looks at

        def stable_offset() -> int:
            found = admin.list_offsets({partition: OffsetSpec.LATEST}, read_committed=True)
            return found[partition].unwrap().offset

        # Two records, each with a marker; Kafka writes markers after it has answered.
        wait_until(lambda: stable_offset() == 4)


def test_a_running_loop_in_the_callers_thread_does_not_matter(cluster_address: str) -> None:
    async def cell() -> int:
        with BlockingAdmin(bootstrap_servers=cluster_address) as admin:
            return len(admin.describe_cluster().brokers)

    assert asyncio.run(cell()) == 1


def test_a_listener_may_commit(cluster_address: str) -> None:
    topic, group = fresh("listened"), fresh("listening")
    partition = TopicPartition(topic, 0)

    class Committing(RebalanceListener):
        def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            consumer.commit()

    with BlockingProducer(bootstrap_servers=cluster_address) as producer:
        producer.send(topic, b"a", partition=0).result(SECONDS_MAX)
    consumer = BlockingConsumer(
        bootstrap_servers=cluster_address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    with consumer:
        consumer.subscribe([topic], Committing())
        assert next(consumer).value == b"a"
        consumer.unsubscribe()
    with BlockingAdmin(bootstrap_servers=cluster_address) as admin:
        assert admin.list_group_offsets([group])[group].unwrap()[partition].offset == 1


def test_many_threads_share_a_producer() -> None:
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ThreadPoolExecutor(4) as threads,
    ):

        def work(number: int) -> set[int]:
            sent = [producer.send("t", b"%d" % number) for _ in range(2000)]
            producer.flush()
            assert all(each.done() for each in sent), "flush means all that was sent before"
            return {each.result().offset for each in sent}

        offsets = [offset for found in threads.map(work, range(4)) for offset in found]
    assert sorted(offsets) == list(range(8000))


def test_what_cannot_be_sent_is_told_by_its_future() -> None:
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        refused, accepted = producer.send("t", 42), producer.send("t", b"42")
        with pytest.raises(TypeError, match="bytes"):
            refused.result(SECONDS_MAX)
        assert accepted.result(SECONDS_MAX).offset == 0


def test_where_nobody_listens_futures_and_calls_end() -> None:
    settings = {"bootstrap_servers": "127.0.0.1:1", "default_api_timeout_ms": 200}
    producer = BlockingProducer(**settings, delivery_timeout_ms=31_000)  # type: ignore[arg-type]
    sent = producer.send("t", b"a")
    with pytest.raises(KafkaTimeoutError):
        sent.result(SECONDS_MAX)
    with pytest.raises(KafkaTimeoutError):
        producer.flush()
    producer.close()


def test_a_call_from_a_callback_is_refused_not_awaited() -> None:
    refused: list[BaseException] = []

    def callback(_: object) -> None:
        try:
            producer.flush()
        except RuntimeError as error:
            refused.append(error)
        done.set()

    done = threading.Event()
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send("t", b"a").add_done_callback(callback)
        assert done.wait(SECONDS_MAX)
    assert "own thread" in str(refused[0])


def test_closed_is_closed_and_closing_ends_what_waits() -> None:
    with Broker(topics=["t"], memory=True) as broker:
        consumer = BlockingConsumer(bootstrap_servers=broker.bootstrap_servers)
        consumer.assign([TopicPartition("t", 0)])
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(lambda: consumer.poll(SECONDS_MAX))
            wait_until(lambda: consumer._core._is_polled)
            consumer.close()
            with pytest.raises(ClosedError):
                waiting.result(SECONDS_MAX)
        consumer.close()
        with pytest.raises(ClosedError):
            consumer.poll(0)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT interrupt: whoever began us in the background may have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_wait_and_leaves_the_client_usable() -> None:
    with (
        Broker(topics=["t"], memory=True) as broker,
        BlockingConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning()

        def interrupt() -> None:
            wait_until(lambda: consumer._core._is_polled)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(SECONDS_MAX)
        thread.join()
        with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"a").result(SECONDS_MAX)
        assert consumer.poll(SECONDS_MAX)


def test_a_client_that_nobody_closed_ends_its_thread() -> None:
    with Broker(topics=["t"], memory=True) as broker:
        before = set(threading.enumerate())
        admin = BlockingAdmin(bootstrap_servers=broker.bootstrap_servers)
        admin.start()
        (thread,) = (
            each
            for each in threading.enumerate()
            if each.name == "odradek-admin" and each not in before
        )
        clients = [admin]
        del admin
        with pytest.warns(ResourceWarning, match="BlockingAdmin was not closed"):
            clients.clear()
        gc.collect()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def in_child(work: Callable[[], None]) -> int:
    """Run in a forked child; gives its exit code, 0 if nothing was raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(SECONDS_MAX)
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def connections_to(address: str) -> int:
    """How many sockets of this process lead there."""
    count = 0
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            copy = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with copy:
            try:
                count += "{}:{}".format(*copy.getpeername()[:2]) == address
            except (OSError, IndexError):
                continue
    return count


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_a_forked_child_lets_go_of_its_parents_connections() -> None:
    """Else a connection that the parent closes would live as long as the child does."""
    code = f"""
import sys
sys.path.insert(0, {os.getcwd()!r})
from tests.interop.client.test_blocking import connections_to, in_child
from odradek.client import *
address = sys.argv[1]
with BlockingAdmin(bootstrap_servers=address) as admin:
    assert connections_to(address) >= 1

    def child():
        assert connections_to(address) == 0, connections_to(address)

    assert in_child(child) == 0
    assert connections_to(address) >= 1
    assert admin.list_topics() == []
"""
    with Broker(memory=True) as broker:
        assert run(code, broker.bootstrap_servers) == (0, "", "")


def test_a_forked_child_begins_anew_and_the_parent_goes_on() -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(os.getcwd())!r})
from tests.interop.client.test_blocking import in_child
from odradek.client import *
address = sys.argv[1]
producer = BlockingProducer(bootstrap_servers=address)
admin = BlockingAdmin(bootstrap_servers=address)
group = {{"group_id": "g", "auto_offset_reset": "earliest"}}
unused = BlockingConsumer("t", bootstrap_servers=address, **group)
consumer = BlockingConsumer(bootstrap_servers=address)
consumer.assign([TopicPartition("t", 0)])
fenced = BlockingProducer(bootstrap_servers=address, transactional_id="x")
fenced.init_transactions()
producer.send("t", b"parent").result(90)
admin.list_topics()

def child():
    assert [producer.send("t", b"child").result(90).offset for _ in range(3)] == [1, 2, 3]
    assert [each.name for each in admin.list_topics()] == ["t"]
    assert next(unused).value == b"parent"
    for refused in (lambda: fenced.begin_transaction(), lambda: consumer.poll(0)):
        try:
            refused()
        except ClosedError as error:
            assert "before a fork" in str(error)
        else:
            raise AssertionError("it went on")
    for each in (producer, admin, unused, fenced, consumer):
        each.close()

assert in_child(child) == 0
assert in_child(lambda: producer.send("t", b"again").result(90)) == 0
assert producer.send("t", b"parent").result(90).offset == 5
assert len(admin.list_topics()) == 1
with fenced.transaction():
    fenced.send("t", b"committed")
consumer.seek_to_beginning()
assert consumer.poll(90)
for each in (producer, admin, unused, fenced, consumer):
    each.close()
print("well")
"""
    with Broker(topics=["t"]) as broker:
        assert run(code, broker.bootstrap_servers) == (0, "well\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "del producer", "raise SystemExit"])
def test_a_program_that_closes_nothing_ends_and_delivers(ending: str) -> None:
    code = f"""
import sys
from odradek.client import *
producer = BlockingProducer(bootstrap_servers=sys.argv[1], linger_ms=200)
producer.send("t", b"before").result(90)  # there are but three seconds for what comes last
consumer = BlockingConsumer("t", bootstrap_servers=sys.argv[1], group_id="g")
consumer.poll(0)
producer.send("t", b"a")
{ending}
"""
    with Broker(topics=["t"], memory=True) as broker:
        began = time.monotonic()
        assert run(code, broker.bootstrap_servers) == (0, "", "")
        assert time.monotonic() - began < EXIT_SECONDS_MAX
        if ending != "del producer":
            assert read(broker.bootstrap_servers, "t", 2) == [b"before", b"a"]


@pytest.mark.slow
def test_a_program_ends_though_the_broker_is_gone() -> None:
    code = """
import sys
from odradek.client import *
producer = BlockingProducer(bootstrap_servers=sys.argv[1])
producer.send("t", b"a").result(90)
print("ready", flush=True)
sys.stdin.readline()
producer.send("t", b"b")
"""
    with Broker(topics=["t"], memory=True) as broker:
        program = start(code, broker.bootstrap_servers)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    began = time.monotonic()
    program.communicate("go on\n", timeout=SECONDS_MAX)
    assert program.returncode == 0
    assert time.monotonic() - began < EXIT_SECONDS_MAX


def start(code: str, address: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, address: str) -> tuple[int, str, str]:
    program = start(code, address)
    try:
        output, errors = program.communicate(timeout=SECONDS_MAX)
    finally:
        program.kill()
    return program.returncode, output, errors
