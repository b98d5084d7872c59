"""Connections in the log: which level, and never more lines than a second may have."""

import asyncio
import logging

import pytest

from odradek.broker.connection_events import LINES_PER_SECOND_MAX, ConnectionEvents
from odradek.core.event import Event
from odradek.net.settings import ConnectionInfo, EventKind

INFO = ConnectionInfo("SSL", "SSL", "10.0.0.1", 5, "a:1-10.0.0.1:5-0", "User:CN=alice")


class SetClock:
    def __init__(self) -> None:
        self.at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms

    def monotonic_us(self) -> int:
        return self.at_ms * 1000


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "odradek.net")
    return caplog


def events(caplog: pytest.LogCaptureFixture) -> list[Event]:
    return [record.msg for record in caplog.records if isinstance(record.msg, Event)]


def test_a_failure_is_an_error_with_its_traceback(lines: pytest.LogCaptureFixture) -> None:
    log = ConnectionEvents(SetClock())
    error = RuntimeError("boom")
    log(EventKind.FAILED, INFO, "RuntimeError: boom", error)
    log(EventKind.REJECTED, INFO, "not Kafka", None)
    log(EventKind.OPENED, INFO, "", None)
    failed, rejected = lines.records
    assert (failed.levelno, rejected.levelno) == (logging.ERROR, logging.INFO)
    assert failed.exc_info is not None
    assert failed.exc_info[1] is error
    assert events(lines)[1].fields == {
        "listener": "SSL",
        "connection_id": "a:1-10.0.0.1:5-0",
        "principal": "User:CN=alice",
        "detail": "not Kafka",
    }


def test_a_flood_costs_so_many_lines_a_second_and_is_counted(
    lines: pytest.LogCaptureFixture,
) -> None:
    clock = SetClock()
    log = ConnectionEvents(clock)

    async def flood() -> None:
        for _ in range(3):
            for _ in range(1000):
                log(EventKind.REJECTED, INFO, "not Kafka", None)
            log(EventKind.FAILED, INFO, "boom", None)  # has a budget of its own
            clock.at_ms += 1000
        log.close()
        log.close()

    asyncio.run(flood())
    names = [event.name for event in events(lines)]
    assert names.count("connection rejected") == 3 * LINES_PER_SECOND_MAX
    assert names.count("connection failed") == 3
    (told,) = [event for event in events(lines) if event.name == "connection events not written"]
    assert told.fields == {"rejected": 3000 - 3 * LINES_PER_SECOND_MAX}


def test_the_count_is_told_without_another_event(
    lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.connection_events._WINDOW_MS", 1)

    async def flood() -> None:
        log = ConnectionEvents(SetClock())
        for _ in range(LINES_PER_SECOND_MAX + 1):
            log(EventKind.EXPIRED, INFO, "idle", None)
        while events(lines)[-1].name != "connection events not written":
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(flood(), 120))
    assert events(lines)[-1].fields == {"expired": 1}
