"""What a real consumer finds in every partition of a running node."""

import time
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.interop.kafka_peer.golden import GoldenPartition, GoldenRecord, State

READ_SECONDS_MAX = 30
NO_LEADER_YET = (
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
)
TIMESTAMP_TYPES = {
    confluent_kafka.TIMESTAMP_CREATE_TIME: "CreateTime",
    confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}


def read_back(servers: str, **config: Any) -> dict[str, GoldenPartition]:
    """Every partition of every topic that is not internal, by folder name."""
    committed = reader(servers, "read_committed", config)
    everything = reader(servers, "read_uncommitted", config)
    try:
        topics = everything.list_topics(timeout=READ_SECONDS_MAX).topics
        return {
            f"{topic}-{partition}": read_partition(
                committed, everything, TopicPartition(topic, partition, 0)
            )
            for topic in sorted(topics)
            if not topic.startswith("__")
            for partition in sorted(topics[topic].partitions)
        }
    finally:
        committed.close()
        everything.close()


def reader(servers: str, isolation: str, config: dict[str, Any]) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "read-back",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            **config,
        }
    )


def read_partition(
    committed: confluent_kafka.Consumer,
    everything: confluent_kafka.Consumer,
    partition: TopicPartition,
) -> GoldenPartition:
    _, last_stable_offset = watermarks(committed, partition)
    start, end = watermarks(everything, partition)
    visible = {message.offset() for message in read(committed, partition, start)}
    messages = read(everything, partition, start)
    types = {TIMESTAMP_TYPES[m.timestamp()[0]] for m in messages if has_timestamp(m)}
    assert len(types) <= 1, types
    return GoldenPartition(
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=last_stable_offset,
        timestamp_type=types.pop() if types else "NoTimestampType",
        records=tuple(
            golden_record(m, m.offset() in visible, last_stable_offset) for m in messages
        ),
    )


def watermarks(consumer: confluent_kafka.Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Log start offset, and end as the isolation level sees it; waits for a leader."""
    deadline = time.monotonic() + READ_SECONDS_MAX
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, READ_SECONDS_MAX)
        except confluent_kafka.KafkaException as refused:
            # A node that has just started is leader in its metadata before it is in fact.
            if refused.args[0].code() not in NO_LEADER_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return low, high


def golden_record(
    message: confluent_kafka.Message, visible: bool, last_stable_offset: int
) -> GoldenRecord:
    offset, headers = message.offset(), message.headers() or []
    assert offset is not None
    assert isinstance(headers, list)
    hidden: State = "aborted" if offset < last_stable_offset else "pending"
    return GoldenRecord(
        offset=offset,
        timestamp=message.timestamp()[1] if has_timestamp(message) else -1,
        key=message.key(),
        value=message.value(),
        headers=tuple((name, as_bytes(value)) for name, value in headers),
        state="visible" if visible else hidden,
    )


def as_bytes(value: str | bytes | None) -> bytes | None:
    assert not isinstance(value, str), "librdkafka gives header values as bytes"
    return value


def has_timestamp(message: confluent_kafka.Message) -> bool:
    """Records of message format 0 have none."""
    return message.timestamp()[0] in TIMESTAMP_TYPES


def read(
    consumer: confluent_kafka.Consumer, partition: TopicPartition, start: int
) -> list[confluent_kafka.Message]:
    """All records up to the end that the consumer's isolation level lets it see."""
    consumer.assign([TopicPartition(partition.topic, partition.partition, start)])
    messages = []
    while True:
        message = consumer.poll(READ_SECONDS_MAX)
        assert message is not None, f"no end of {partition} in sight"
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            consumer.unassign()
            return messages
        else:
            raise confluent_kafka.KafkaException(error)
