"""Our producer beside aiokafka, confluent-kafka and kafka-python: same broker, same records.

The broker is a node of ours in a process of its own; clients run here, one after the other, round
by round, there and back, and the median counts. Every record's future (or delivery report) is made
and looked at in the end, because that is how a producer is used that has to know. Ours runs on
asyncio's own event loop, as aiokafka does, and on uvloop; with its defaults, and with batches that
are no larger than aiokafka's.
"""

import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvloop
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaProducer

from bench.brokers import QUIET
from bench.timing import Row
from odradek.client import BlockingProducer, ProducerSettings
from odradek.client.producer import Producer
from tests.interop.node_process import NodeProcess

ROUNDS = 5
RECORDS = 60_000
KAFKA_PYTHON_RECORDS = 15_000
TABLE_RECORDS = 5 * RECORDS
PARTITIONS = 1
TIMEOUT_SECONDS = 120

Measure = Callable[[str, str, bytes], float]


def run() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder,
        NodeProcess(Path(folder) / "data", QUIET) as node,
    ):
        for size in (100, 1024):
            yield from _compare(node.bootstrap_servers, size)


def _compare(servers: str, size: int) -> Iterator[Row]:
    clients: dict[str, tuple[Measure, int]] = {
        "odradek": (_ours, RECORDS),
        "odradek, batch.size=16384": (_ours_small_batches, RECORDS),
        "odradek, uvloop": (_ours_uvloop, RECORDS),
        "odradek, blocking": (_ours_blocking, RECORDS),
        "odradek, send_arrow": (_ours_by_the_table, TABLE_RECORDS),
        "aiokafka": (_aiokafka, RECORDS),
        "confluent-kafka": (_confluent, RECORDS),
        "kafka-python": (_kafka_python, KAFKA_PYTHON_RECORDS),
    }
    rates: dict[str, list[float]] = {name: [] for name in clients}
    costs: dict[str, list[float]] = {name: [] for name in clients}
    for number in range(ROUNDS):
        for name in list(clients) if number % 2 else reversed(clients):
            measure, count = clients[name]
            topic = f"bench-{size}-{number}-{re.sub('[^a-z0-9]+', '-', name)}"
            _create(servers, topic)
            before = time.process_time()
            rates[name].append(measure(servers, topic, b"x" * size))
            costs[name].append((time.process_time() - before) / count * 1e6)
    for name, figures in rates.items():
        yield Row(f"produce {size} B", name, statistics.median(figures), "records/s")
    # With connecting and the making of a table; tells more where others use the machine too.
    for name, figures in costs.items():
        yield Row(f"CPU of a client for a record of {size} B", name, min(figures), "µs")


def _create(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
    made[topic].result(TIMEOUT_SECONDS)


def _ours(servers: str, topic: str, value: bytes) -> float:
    return asyncio.run(_ours_async(servers, topic, value))


def _ours_uvloop(servers: str, topic: str, value: bytes) -> float:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_ours_async(servers, topic, value))


def _ours_small_batches(servers: str, topic: str, value: bytes) -> float:
    return asyncio.run(_ours_async(servers, topic, value, {"batch.size": 16_384}))


async def _ours_async(
    servers: str, topic: str, value: bytes, settings: ProducerSettings | None = None
) -> float:
    async with Producer(settings, bootstrap_servers=servers) as producer:
        await (await producer.send(topic, value))
        return await _timed(lambda: producer.send(topic, value), producer.flush)


def _ours_blocking(servers: str, topic: str, value: bytes) -> float:
    with BlockingProducer(bootstrap_servers=servers) as producer:
        producer.send(topic, value).result(TIMEOUT_SECONDS)
        began = time.perf_counter()
        futures = [producer.send(topic, value) for _ in range(RECORDS)]
        producer.flush()
        for future in futures:
            assert future.result()
        return RECORDS / (time.perf_counter() - began)


def _ours_by_the_table(servers: str, topic: str, value: bytes) -> float:
    table = pa.table({"value": [value] * TABLE_RECORDS})

    async def main() -> float:
        async with Producer(bootstrap_servers=servers) as producer:
            await (await producer.send(topic, value))
            began = time.perf_counter()
            told = await (await producer.send_arrow(topic, table))
            assert told.rows == TABLE_RECORDS
            return TABLE_RECORDS / (time.perf_counter() - began)

    return asyncio.run(main())


def _aiokafka(servers: str, topic: str, value: bytes) -> float:
    return asyncio.run(_aiokafka_async(servers, topic, value))


async def _aiokafka_async(servers: str, topic: str, value: bytes) -> float:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", enable_idempotence=True, linger_ms=5
    )
    await producer.start()
    try:
        await producer.send_and_wait(topic, value)
        return await _timed(lambda: producer.send(topic, value), producer.flush)
    finally:
        await producer.stop()


async def _timed(
    send: "Callable[[], Awaitable[asyncio.Future[Any]]]", flush: Callable[[], Awaitable[None]]
) -> float:
    began = time.perf_counter()
    futures = [await send() for _ in range(RECORDS)]
    await flush()
    for future in futures:
        assert future.result()
    return RECORDS / (time.perf_counter() - began)


def _confluent(servers: str, topic: str, value: bytes) -> float:
    producer = ConfluentProducer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * RECORDS,
        }
    )
    delivered: list[object] = []
    producer.produce(topic, value)
    producer.flush(TIMEOUT_SECONDS)
    began = time.perf_counter()
    for number in range(RECORDS):
        producer.produce(topic, value, on_delivery=lambda error, _: delivered.append(error))
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    seconds = time.perf_counter() - began
    assert delivered == [None] * RECORDS
    return RECORDS / seconds


def _kafka_python(servers: str, topic: str, value: bytes) -> float:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
    producer.send(topic, value).get(TIMEOUT_SECONDS)
    began = time.perf_counter()
    futures = [producer.send(topic, value) for _ in range(KAFKA_PYTHON_RECORDS)]
    producer.flush(TIMEOUT_SECONDS)
    assert all(future.succeeded() for future in futures)
    seconds = time.perf_counter() - began
    producer.close()
    return KAFKA_PYTHON_RECORDS / seconds
