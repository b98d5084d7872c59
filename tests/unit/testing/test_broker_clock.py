"""Time that a test moves on, and what a broker does about it."""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from threading import Thread

import pytest

from odradek.broker.clock import SystemClock
from odradek.protocol.generated.fetch import FetchResponse
from odradek.protocol.generated.produce import ProduceResponse
from odradek.testing.broker import Broker
from odradek.testing.clock import TestClock
from tests.broker_connection import BrokerConnection
from tests.record_requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    earliest_offset,
    fetch_request,
    fetched,
    produce_request,
    values_in,
)

HOUR_MS = 3_600_000
LOGS = 50  # more than one tick of upkeep looks at


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(memory=True) as started:
        yield started


@pytest.fixture
def connection(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        yield opened


def test_both_clocks_move_and_go_on() -> None:
    clock, real = TestClock(), SystemClock()
    clock.advance(timedelta(hours=1))
    clock.advance(0.5)
    ahead_ms = HOUR_MS + 500
    before = real.now_ms() + ahead_ms, real.monotonic_ms() + ahead_ms
    seen = clock.now_ms(), clock.monotonic_ms()
    after = real.now_ms() + ahead_ms, real.monotonic_ms() + ahead_ms
    assert before[0] <= seen[0] <= after[0]
    assert before[1] <= seen[1] <= after[1]


def test_the_wall_clock_alone_can_be_set_back() -> None:
    clock, real = TestClock(), SystemClock()
    steady_ms = clock.monotonic_ms()
    clock.step_wall(timedelta(hours=-1))
    assert steady_ms <= clock.monotonic_ms() <= real.monotonic_ms()
    assert clock.now_ms() <= real.now_ms() - HOUR_MS
    assert clock.now_ms() >= real.now_ms() - HOUR_MS - 60_000


def test_it_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="forward"):
        TestClock().advance(-1)


def test_records_past_their_retention_are_gone_when_advance_returns(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("short", retention_ms="1000")
    broker.create_topic("long")
    for topic in ("short", "long"):
        connection.ask(produce_request(topic, b"a", b"b"), ProduceResponse, PRODUCE_VERSION)
    assert earliest_offset(connection, "short") == 0
    broker.clock.advance(3600)
    assert earliest_offset(connection, "short") == 2
    assert earliest_offset(connection, "long") == 0


def test_all_logs_are_seen_to_however_many(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("t", partitions=LOGS, retention_ms="1000")
    store = broker.node.broker.store
    request = produce_request("t", b"x")
    (data,) = request.topic_data[0].partition_data
    for index in range(LOGS):
        data.index = index
        connection.ask(request, ProduceResponse, PRODUCE_VERSION)
    broker.clock.advance(3600)
    logs = [stored.log for stored in store.directories[0].logs.values()]
    assert [log.log_start_offset for log in logs if log.partition.topic == "t"] == [1] * LOGS


def test_new_records_have_the_new_time(broker: Broker, connection: BrokerConnection) -> None:
    broker.create_topic("t", message_timestamp_type="LogAppendTime")
    broker.clock.advance(timedelta(days=1))
    answer = connection.ask(produce_request("t", b"x"), ProduceResponse, PRODUCE_VERSION)
    appended_ms = answer.responses[0].partition_responses[0].log_append_time_ms
    assert appended_ms >= SystemClock().now_ms() + 23 * HOUR_MS


def test_who_waits_is_answered_when_the_time_has_come(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("t")
    answers: list[FetchResponse] = []

    def fetch() -> None:
        request = fetch_request(["t"], max_wait_ms=HOUR_MS)
        answers.append(connection.ask(request, FetchResponse, FETCH_VERSION))

    waiting = Thread(target=fetch)
    waiting.start()
    while not len(broker.node.broker.delayed):
        time.sleep(0.001)
    broker.clock.advance(HOUR_MS / 1000 - 60)
    assert not answers
    broker.clock.advance(61)
    waiting.join(120)
    assert values_in(answers[0]) == []


def test_upkeep_goes_on_after_an_advance(broker: Broker, connection: BrokerConnection) -> None:
    """The timer was armed anew, once: time that passes by itself still counts."""
    broker.create_topic("t", flush_ms="10")
    broker.clock.advance(3600)
    connection.ask(produce_request("t", b"x"), ProduceResponse, PRODUCE_VERSION)
    (log,) = (
        stored.log
        for stored in broker.node.broker.store.directories[0].logs.values()
        if stored.log.partition.topic == "t"
    )
    deadline = time.monotonic() + 120
    while log.recovery_point < 1:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_it_can_be_set_before_the_start() -> None:
    broker = Broker(topics=["t"], memory=True)
    broker.clock.advance(3600)
    with broker, BrokerConnection(broker.port) as connection:
        connection.ask(produce_request("t", b"x"), ProduceResponse, PRODUCE_VERSION)
        assert fetched(connection, "t") == [b"x"]
        assert broker.node.clock.now_ms() > SystemClock().now_ms() + HOUR_MS // 2


@pytest.mark.parametrize("own_thread", [True, False])
def test_an_event_loop_is_not_blocked(own_thread: bool) -> None:
    async def story() -> int:
        async with Broker(memory=True, own_thread=own_thread) as broker:
            await broker.create_topic_async("short", retention_ms="1000")
            await asyncio.to_thread(produce_and_close, broker.port)
            await broker.clock.advance_async(3600)
            return await asyncio.to_thread(earliest_and_close, broker.port)

    assert asyncio.run(story()) == 1


def produce_and_close(port: int) -> None:
    with BrokerConnection(port) as connection:
        connection.ask(produce_request("short", b"x"), ProduceResponse, PRODUCE_VERSION)


def earliest_and_close(port: int) -> int:
    with BrokerConnection(port) as connection:
        return earliest_offset(connection, "short")
