"""What tests of the consumer share: topics with records in them, made by somebody else's client."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any, TypeVar

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from odradek.client.consumer import Consumer, ConsumerRecord, TopicPartition

SECONDS_MAX = 90
_numbers = count(1)
T = TypeVar("T")


def run(scenario: Callable[[], Awaitable[T]], seconds: float = SECONDS_MAX) -> T:
    """Run a coroutine to its end, in debug mode, or fail after so many seconds."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await scenario()

    return asyncio.run(bounded())


def fresh(what: str) -> str:
    return f"consumer-{what}-{next(_numbers)}"


def make_topic(servers: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic nobody else has; config names have underscores for dots."""
    name = fresh("topic")
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    created = admin.create_topics([NewTopic(name, partitions, 1, config=named)])
    created[name].result(SECONDS_MAX)
    return name


def add_partitions(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS_MAX)


def new_producer(servers: str, **settings: Any) -> Producer:
    """Return one that keeps order and repeats nothing.

    Kafka answers CreateTopics a moment before the broker leads the partitions: what is sent in this
    moment is tried again.
    """
    return Producer({"bootstrap.servers": servers, "enable.idempotence": True, **settings})


def produce(
    servers: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    **options: Any,
) -> None:
    settings = {key.replace("_", "."): value for key, value in options.items()}
    producer = new_producer(servers, **{"linger.ms": 0, **settings})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(SECONDS_MAX) == 0


def fill(servers: str, topic: str, each: int, partitions: int, **options: Any) -> None:
    """Put ``each`` records into every partition: b"<partition>-<offset>"."""
    for number in range(partitions):
        values = [b"%d-%d" % (number, n) for n in range(each)]
        produce(servers, topic, values, partition=number, **options)


def partitions_of(topic: str, number: int) -> list[TopicPartition]:
    return [TopicPartition(topic, each) for each in range(number)]


async def read(consumer: Consumer[Any, Any], number: int) -> list[ConsumerRecord[Any, Any]]:
    """Read so many records, one by one."""
    records: list[ConsumerRecord[Any, Any]] = []
    async for record in consumer:
        records.append(record)
        if len(records) >= number:
            break
    return records


async def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> list[ConsumerRecord]:
    """Poll these consumers in turn until something is so; return what they read."""
    records: list[ConsumerRecord[Any, Any]] = []
    while not condition():
        for consumer in consumers:
            for share in (await consumer.poll(0.02)).values():
                records.extend(share)
    return records
