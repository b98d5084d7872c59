"""What everybody expects of a client: it closes, it loses nothing, it puts keys where Java does."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.blocking.admin import BlockingAdmin
from odradek.client.blocking.consumer import BlockingConsumer
from odradek.client.blocking.producer import BlockingProducer
from odradek.client.consumer import Consumer
from odradek.client.producer import Producer
from odradek.client.settings import as_settings
from tests.interop.client.produced_records import new_topic, read_topic, values_in
from tests.interop.kafka_peer import KafkaNode, kafka_tool
from tests.interop.node_process import NodeProcess

RECORDS = 10_000
RESTART_SECONDS_MAX = 400
CLOSE_SECONDS = 1
CLOSE_SECONDS_MAX = 60
"""Much more than it should take, much less than without a limit of its own."""
PATIENT = {
    "delivery.timeout.ms": RESTART_SECONDS_MAX * 1000,
    "max.block.ms": RESTART_SECONDS_MAX * 1000,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 100,
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "data", ("--log-level", "error")) as started:
        yield started


# Closing.


@contextmanager
def dying(node: NodeProcess, how: str) -> Iterator[None]:
    """Have a broker that answers no more, or is not there any more."""
    if how == "killed":
        node.kill()
        yield
        return
    node.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.process.send_signal(signal.SIGCONT)


def settings(node: NodeProcess, **others: Any) -> dict[str, Any]:
    return {"bootstrap_servers": node.bootstrap_servers, **others}


def consuming(node: NodeProcess) -> dict[str, Any]:
    return settings(node, group_id="g", auto_offset_reset="earliest", request_timeout_ms=300_000)


def producing(node: NodeProcess) -> dict[str, Any]:
    return settings(node, delivery_timeout_ms=600_000, request_timeout_ms=300_000)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "hung"])
def test_clients_close_though_their_broker_is_dead(node: NodeProcess, how: str) -> None:
    topic = new_topic(node.bootstrap_servers)

    async def scenario() -> None:
        producer, admin = Producer(**producing(node)), Admin(**settings(node))
        consumer = Consumer(topic, **consuming(node))
        for each in (producer, admin, consumer):
            await each.start()
        await (await producer.send(topic, b"delivered"))
        assert await consumer.poll()
        await admin.list_topics()
        with dying(node, how):
            sent = await producer.send(topic, b"not delivered")
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await producer.close(CLOSE_SECONDS)
                await consumer.close(CLOSE_SECONDS)
                await admin.close()
            assert sent.exception() is not None
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [each for each in left if not each.cancelling()]

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "hung"])
def test_blocking_clients_close_though_their_broker_is_dead(node: NodeProcess, how: str) -> None:
    topic = new_topic(node.bootstrap_servers)
    producer = BlockingProducer(**producing(node))
    consumer = BlockingConsumer(topic, **consuming(node))
    admin = BlockingAdmin(**settings(node))
    producer.send(topic, b"delivered").result(CLOSE_SECONDS_MAX)
    assert consumer.poll(CLOSE_SECONDS_MAX)
    admin.list_topics()
    closing: list[Callable[[], None]] = [
        lambda: producer.close(CLOSE_SECONDS),
        lambda: consumer.close(CLOSE_SECONDS),
        admin.close,
    ]
    with dying(node, how):
        sent = producer.send(topic, b"not delivered")
        began = time.monotonic()
        for close in closing:
            close()
        assert time.monotonic() - began < CLOSE_SECONDS_MAX
        assert sent.exception(CLOSE_SECONDS_MAX) is not None


# Restarts.


def numbers() -> list[bytes | None]:
    return [b"%d" % number for number in range(RECORDS)]


def slow_sender(servers: str) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "batch.size": 2000, **PATIENT}


@pytest.mark.seed_row("2.1")
@pytest.mark.slow
def test_ten_thousand_records_arrive_once_and_in_order_through_kills(node: NodeProcess) -> None:
    topic = new_topic(node.bootstrap_servers)

    def restart() -> None:
        node.kill()
        node.start()

    async def scenario() -> None:
        given = slow_sender(node.bootstrap_servers)
        async with asyncio.timeout(RESTART_SECONDS_MAX), Producer(as_settings(given)) as producer:
            for number, value in enumerate(numbers()):
                await producer.send(topic, value)
                if number in (2500, 7000):
                    await asyncio.to_thread(restart)

    asyncio.run(scenario())
    assert values_in(node.bootstrap_servers, topic) == numbers()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_libs")
def test_ten_thousand_records_arrive_once_and_in_order_while_kafka_restarts(
    tmp_path: Path,
) -> None:
    with KafkaNode(tmp_path / "data") as kafka:
        topic = new_topic(kafka.bootstrap_servers)
        with BlockingProducer(as_settings(slow_sender(kafka.bootstrap_servers))) as producer:
            for number, value in enumerate(numbers()):
                producer.send(topic, value)
                if number == 5000:
                    kafka.stop()
                    kafka.start()
        assert values_in(kafka.bootstrap_servers, topic) == numbers()


# Keys.


@pytest.mark.seed_row("2.6")
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_libs")
def test_keys_are_in_the_partitions_that_javas_producer_chooses(odradek_address: str) -> None:
    topic = new_topic(odradek_address, partitions=13)
    keys = [f"key-{number}" * (number % 5 + 1) for number in range(300)] + ["schlüssel", "鍵"]
    lines = "".join(f"{key}\ttheirs\n" for key in keys)
    options = ["--reader-property", "parse.key=true"]
    kafka_tool(
        "console-producer", "--bootstrap-server", odradek_address, "--topic", topic, *options,
        stdin=lines,
    )  # fmt: skip

    async def scenario() -> None:
        async with Producer(bootstrap_servers=odradek_address) as producer:
            for key in keys:
                await producer.send(topic, b"ours", key.encode())

    asyncio.run(scenario())
    places: dict[bytes | None, dict[bytes | None, int]] = {b"ours": {}, b"theirs": {}}
    for each in read_topic(odradek_address, topic):
        places[each.value][each.key] = each.partition
    assert len(places[b"theirs"]) == len(keys)
    assert places[b"ours"] == places[b"theirs"]
