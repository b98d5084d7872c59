"""Polls of librdkafka, as the checker wants to have them."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Isolation
from odradek.testing.anomalies.recorder import Recording

CALL_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 60.0
TRANSACTION_SECONDS: Final = 20.0
# A client that went with an open transaction holds up readers for its timeout, and 10 s more until
# the coordinator looks: six times that is not a matter of how busy the machine is.
END_SECONDS_MAX: Final = 180.0

# What a broker that was killed leads to; clients go on by themselves.
TRANSIENT: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._PARTITION_EOF,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


def read_to_end(
    config: dict[str, Any], keys: Sequence[TopicPartition] | Mapping[TopicPartition, int]
) -> Iterator[list[confluent_kafka.Message]]:
    """Give what is committed, from the start to where the logs end when this is called.

    A mapping says where to start in each partition.

    Raises:
        AssertionError: That cannot be reached: a transaction stays open.
    """
    starts = keys if isinstance(keys, Mapping) else dict.fromkeys(keys, 0)
    ends = high_watermarks(config, starts)
    consumer = confluent_kafka.Consumer(
        {
            **config,
            "group.id": "drain",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(*key, at) for key, at in starts.items()])
    left, deadline = dict(ends), time.monotonic() + END_SECONDS_MAX
    while left:
        assert time.monotonic() < deadline, f"not read to the end: {left}"
        messages = consumer.consume(500, timeout=0.5)
        yield messages
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                # It tells where the consumer is, which is past all markers.
                key, offset = place_of(message)
                if offset >= ends[key]:
                    left.pop(key, None)
    consumer.close()


def high_watermarks(
    config: dict[str, Any], keys: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    consumer = confluent_kafka.Consumer(
        {**config, "group.id": "ends", "isolation.level": "read_uncommitted"}
    )
    try:
        wanted = {key: confluent_kafka.TopicPartition(*key) for key in keys}
        return {
            key: consumer.get_watermark_offsets(each, PATIENCE_SECONDS)[1]
            for key, each in wanted.items()
        }
    finally:
        consumer.close()


def place_of(message: confluent_kafka.Message) -> tuple[TopicPartition, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return TopicPartition(topic, partition), offset


def record_polls(
    recording: Recording, messages: Sequence[confluent_kafka.Message], isolation: Isolation
) -> dict[TopicPartition, list[tuple[int, str]]]:
    """Write down what one call gave, partition by partition.

    Raises:
        KafkaException: Something that a client cannot go on from by itself.
    """
    found: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for message in messages:
        error = message.error()
        if error is not None:
            if error.code() not in TRANSIENT:
                raise KafkaException(error)
            continue
        key, offset = place_of(message)
        found[key].append((offset, (message.value() or b"").decode()))
    for key, records in found.items():
        recording.polled(key, records, isolation)
    return found
