"""A compacted topic is compacted while the node runs."""

import time
from threading import Event

import confluent_kafka
import pytest

from odradek.core.ids import TopicPartition
from odradek.storage.log import Log
from odradek.testing.broker import Broker

DEADLINE_SECONDS = 180


def wait_for_fewer_bytes(log: Log, limit: int) -> None:
    """Wait for a condition that comes from another process, without a promise of when."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = Event()
    while log.segments.bytes > limit:
        assert time.monotonic() < deadline, f"still {log.segments.bytes} bytes"
        pause.wait(0.02)


@pytest.mark.seed_row("0.9")
@pytest.mark.slow
def test_a_compacted_topic_keeps_only_the_newest_values() -> None:
    config = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100"}
    with Broker(config=config) as broker:
        broker.create_topic(
            "t", cleanup_policy="compact", segment_bytes="20000", min_cleanable_dirty_ratio="0.1"
        )
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        # Small batches: one must fit into a segment.
        producer = confluent_kafka.Producer({**servers, "batch.num.messages": 100})
        for number in range(5000):
            producer.produce("t", key=b"k%d" % (number % 10), value=b"v%d" % number)
        assert producer.flush(DEADLINE_SECONDS) == 0
        log = broker.node.broker.store.get(TopicPartition("t", 0))
        assert log is not None
        assert log.log_end_offset == 5000
        wait_for_fewer_bytes(log, 60_000)
        consumer = confluent_kafka.Consumer(
            {**servers, "group.id": "unused", "enable.auto.commit": False}
        )
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        newest: dict[bytes | str | None, bytes | str | None] = {}
        while newest.get(b"k9") != b"v4999":
            for message in consumer.consume(1000, timeout=1):
                newest[message.key()] = message.value()
        consumer.close()
    assert newest == {b"k%d" % n: b"v%d" % (4990 + n) for n in range(10)}
