"""What is in a topic, read by librdkafka: the judge of what the Spark sink wrote."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

SECONDS_MAX = 120


class Written(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def read_topic(
    bootstrap_servers: str, topic: str, *, isolation: str = "read_committed"
) -> list[Written]:
    """Return all records, partition by partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 3,
        }
    )
    try:
        partitions = consumer.list_topics(topic, SECONDS_MAX).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
        return sorted(_read(consumer, len(partitions)), key=lambda each: each.partition)
    finally:
        consumer.close()


def _read(consumer: Consumer, partitions: int) -> list[Written]:
    found: list[Written] = []
    ended: set[int | None] = set()  # an end may be told again
    while len(ended) < partitions:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, "the topic does not end"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
            continue
        partition = message.partition()
        assert partition is not None
        headers: Any = message.headers() or []
        found.append(Written(partition, message.key(), message.value(), list(headers)))
    return found


def values(written: Sequence[Written]) -> list[bytes | None]:
    return [each.value for each in written]
