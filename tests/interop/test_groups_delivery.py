"""What a consumer that crashes reads twice or never, and where one without a commit begins."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from odradek.testing.broker import Broker
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import DEADLINE_SECONDS, GROUP_CONFIGS, SESSION_MS, wait_until

PROGRAM = Path(__file__).with_name("group_delivery_program.py")
RECORDS = [Sent(None, b"%d" % i) for i in range(10)]
CRASH_AT = 4
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=GROUP_CONFIGS) as started:
        yield started


@pytest.fixture
def client(broker: Broker) -> Confluent:
    return Confluent(broker.bootstrap_servers)


@pytest.fixture
def topic(client: Confluent) -> str:
    """Ten records in one partition; the group of a test has its name."""
    name = f"topic-{next(_numbers)}"
    client.create_topic(name)
    client.produce(name, RECORDS, partition=0)
    return name


def process_until_the_end(broker: Broker, topic: str, crash_at: int | None, **asked: str) -> Any:
    """Run a consumer program; give the numbers that it processed."""
    asked |= {"servers": broker.bootstrap_servers, "topic": topic}
    numbers = {"session_ms": SESSION_MS, "crash_at": crash_at, "end": len(RECORDS)}
    line = json.dumps({**asked, **numbers})
    run = subprocess.run(
        [sys.executable, str(PROGRAM), line],
        stdout=subprocess.PIPE,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert run.returncode == (0 if crash_at is None else -9)
    return [int(number) for number in run.stdout.split()]


@pytest.mark.seed_row("0.5")
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("commit", "first", "second"),
    [
        # Committed, and never processed: record 4 is lost.
        ("before", range(CRASH_AT), range(CRASH_AT + 1, 10)),
        # Processed, and not committed: record 4 comes twice.
        ("after", range(CRASH_AT + 1), range(CRASH_AT, 10)),
    ],
    ids=["at-most-once", "at-least-once"],
)
def test_the_order_of_commit_and_processing_decides_what_a_crash_costs(
    broker: Broker, topic: str, protocol: str, commit: str, first: range, second: range
) -> None:
    asked = {"commit": commit, "protocol": protocol}
    assert process_until_the_end(broker, topic, CRASH_AT, **asked) == list(first)
    # Nobody waits until the broker gives up the one that crashed, and no session is so short that
    # a busy machine outlasts it.
    broker.clock.advance(SESSION_MS / 1000)
    assert process_until_the_end(broker, topic, None, **asked) == list(second)


def consumer_of(broker: Broker, topic: str, protocol: str, reset: str) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic,
            "group.protocol": protocol,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    return consumer


def first_offset(broker: Broker, topic: str, protocol: str, reset: str) -> int:
    consumer = consumer_of(broker, topic, protocol, reset)
    found: list[confluent_kafka.Message] = []

    def is_read() -> bool:
        message = consumer.poll(0.05)
        found.extend([message] if message is not None else [])
        return bool(found)

    try:
        wait_until(is_read, lambda: f"no record with auto.offset.reset={reset}")
    finally:
        consumer.close()
    if error := found[0].error():
        raise confluent_kafka.KafkaException(error)
    return found[0].offset() or 0


def commit(broker: Broker, topic: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic}
    )
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.seed_row("4.10")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_with_a_valid_commit_auto_offset_reset_does_not_matter(
    broker: Broker, topic: str, protocol: str, reset: str
) -> None:
    commit(broker, topic, 5)
    assert first_offset(broker, topic, protocol, reset) == 5


@pytest.mark.seed_row("4.10")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("state", ["no commit", "below the log", "above the log"])
def test_without_a_valid_commit_auto_offset_reset_decides(
    broker: Broker, client: Confluent, topic: str, protocol: str, state: str
) -> None:
    start = 3
    client.delete_records(topic, start)
    if state != "no commit":
        commit(broker, topic, 1 if state == "below the log" else 99)
    assert first_offset(broker, topic, protocol, "earliest") == start
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        first_offset(broker, topic, protocol, "error")
    (error,) = refused.value.args
    assert error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_latest_without_a_commit_begins_with_what_comes_next(
    broker: Broker, client: Confluent, topic: str, protocol: str
) -> None:
    consumer = consumer_of(broker, topic, protocol, "latest")
    seen: list[int] = []

    def reads() -> bool:
        # A record more each time: the end is looked up some time after the assignment.
        client.produce(topic, RECORDS[:1], partition=0)
        message = consumer.poll(0.1)
        if message is not None:
            assert not message.error()
            seen.append(message.offset() or 0)
        return bool(seen)

    try:
        wait_until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()), str)
        wait_until(reads, lambda: "nothing read")
        assert seen[0] >= len(RECORDS)
    finally:
        consumer.close()
