"""Our consumer beside aiokafka, confluent-kafka and kafka-python: same broker, same records.

The broker is a node of ours in a process of its own; a topic of four partitions is read from its
beginning, again and again. Clients run here, one after the other, round by round, and the median
counts. Every record's value is looked at, except where a table is what the application gets: there
the value column's bytes are summed up. Time runs from the first record, so that connecting and
joining do not count. Ours runs on asyncio's own event loop, as aiokafka does, and without one.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pyarrow.compute as pc
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonTopicPartition

from bench.brokers import QUIET
from bench.timing import Row
from odradek.client import BlockingConsumer
from odradek.client.consumer import Consumer, TopicPartition
from tests.interop.node_process import NodeProcess

ROUNDS = 3
RECORDS = 400_000
PARTITIONS = 4
TIMEOUT_SECONDS = 120
TOPIC = "bench-consumer"

Measure = Callable[[str, str, int], tuple[int, float]]
"""Reads a topic of values of a size; how many records, in how many seconds."""


def run() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder,
        NodeProcess(Path(folder) / "data", QUIET) as node,
    ):
        for size in (100, 1024):
            topic = f"{TOPIC}-{size}"
            _fill(node.bootstrap_servers, topic, size)
            yield from _compare(node.bootstrap_servers, topic, size)


def _compare(servers: str, topic: str, size: int) -> Iterator[Row]:
    clients: dict[str, Measure] = {
        "odradek poll_arrow": _tables,
        "odradek poll": _lists,
        "odradek async for": _one_by_one,
        "odradek poll_arrow, blocking": _tables_blocking,
        "odradek poll, blocking": _lists_blocking,
        "aiokafka": _aiokafka,
        "confluent-kafka": _confluent,
        "kafka-python": _kafka_python,
    }
    rates: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(ROUNDS):
        for name, measure in clients.items():
            count, seconds = measure(servers, topic, size)
            rates[name].append(count / seconds)
    for name, figures in rates.items():
        yield Row(f"consume {size} B", name, statistics.median(figures), "records/s")


def _fill(servers: str, topic: str, size: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_SECONDS)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 100_000})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, b"x" * size, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_SECONDS) == 0


# Ours.


def _with_ours(
    servers: str, topic: str, work: Callable[[Consumer], Awaitable[tuple[int, float]]]
) -> tuple[int, float]:
    async def main() -> tuple[int, float]:
        async with Consumer(bootstrap_servers=servers) as consumer:
            consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
            consumer.seek_to_beginning()
            return await work(consumer)

    return asyncio.run(main())


def _tables(servers: str, topic: str, size: int) -> tuple[int, float]:
    async def work(consumer: Consumer) -> tuple[int, float]:
        first = (await consumer.poll_arrow(TIMEOUT_SECONDS)).num_rows
        count, start = first, time.perf_counter()
        while count < RECORDS:
            table = await consumer.poll_arrow(TIMEOUT_SECONDS)
            assert pc.sum(pc.binary_length(table.column("value"))).as_py() == size * table.num_rows
            count += table.num_rows
        return count - first, time.perf_counter() - start

    return _with_ours(servers, topic, work)


def _lists(servers: str, topic: str, size: int) -> tuple[int, float]:
    async def work(consumer: Consumer) -> tuple[int, float]:
        count, start = 0, 0.0
        while count < RECORDS:
            polled = await consumer.poll(TIMEOUT_SECONDS)
            start = start or time.perf_counter()
            for records in polled.values():
                for record in records:
                    assert record.value is not None
                    assert len(record.value) == size
                count += len(records)
        return count, time.perf_counter() - start

    return _with_ours(servers, topic, work)


def _one_by_one(servers: str, topic: str, size: int) -> tuple[int, float]:
    async def work(consumer: Consumer) -> tuple[int, float]:
        count, start = 0, 0.0
        async for record in consumer:
            start = start or time.perf_counter()
            assert record.value is not None
            assert len(record.value) == size
            count += 1
            if count == RECORDS:
                break
        return count, time.perf_counter() - start

    return _with_ours(servers, topic, work)


def _with_blocking(
    servers: str, topic: str, work: Callable[[BlockingConsumer], tuple[int, float]]
) -> tuple[int, float]:
    with BlockingConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
        consumer.seek_to_beginning()
        return work(consumer)


def _tables_blocking(servers: str, topic: str, size: int) -> tuple[int, float]:
    def work(consumer: BlockingConsumer) -> tuple[int, float]:
        first = consumer.poll_arrow(TIMEOUT_SECONDS).num_rows
        count, start = first, time.perf_counter()
        while count < RECORDS:
            table = consumer.poll_arrow(TIMEOUT_SECONDS)
            assert pc.sum(pc.binary_length(table.column("value"))).as_py() == size * table.num_rows
            count += table.num_rows
        return count - first, time.perf_counter() - start

    return _with_blocking(servers, topic, work)


def _lists_blocking(servers: str, topic: str, size: int) -> tuple[int, float]:
    def work(consumer: BlockingConsumer) -> tuple[int, float]:
        count, start = 0, 0.0
        while count < RECORDS:
            polled = consumer.poll(TIMEOUT_SECONDS)
            start = start or time.perf_counter()
            for records in polled.values():
                for record in records:
                    assert record.value is not None
                    assert len(record.value) == size
                count += len(records)
        return count, time.perf_counter() - start

    return _with_blocking(servers, topic, work)


# Others.


def _aiokafka(servers: str, topic: str, size: int) -> tuple[int, float]:
    async def main() -> tuple[int, float]:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
        await consumer.start()
        try:
            partitions = [AioTopicPartition(topic, n) for n in range(PARTITIONS)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            count, start = 0, 0.0
            while count < RECORDS:
                polled = await consumer.getmany(timeout_ms=TIMEOUT_SECONDS * 1000)
                start = start or time.perf_counter()
                for records in polled.values():
                    for record in records:
                        assert len(record.value) == size
                    count += len(records)
            return count, time.perf_counter() - start
        finally:
            await consumer.stop()

    return asyncio.run(main())


def _confluent(servers: str, topic: str, size: int) -> tuple[int, float]:
    consumer = ConfluentConsumer(
        {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([ConfluentTopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    count, start = 0, 0.0
    while count < RECORDS:
        for message in consumer.consume(500, TIMEOUT_SECONDS):
            start = start or time.perf_counter()
            value = message.value()
            assert value is not None
            assert len(value) == size
            count += 1
    seconds = time.perf_counter() - start
    consumer.close()
    return count, seconds


def _kafka_python(servers: str, topic: str, size: int) -> tuple[int, float]:
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    partitions = [KafkaPythonTopicPartition(topic, n) for n in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    count, start = 0, 0.0
    while count < RECORDS // 4:
        for records in consumer.poll(TIMEOUT_SECONDS * 1000).values():
            start = start or time.perf_counter()
            for record in records:
                assert len(record.value) == size
            count += len(records)
    seconds = time.perf_counter() - start
    consumer.close()
    return count, seconds
