"""A quorum without a leader is logged once, after longer than an election takes."""

import logging
from collections.abc import Callable

import pytest

from odradek.core.event import Event
from odradek.quorum.leader_watch import PATIENCE_MS, LeaderWatch


class Time:
    """A clock, and the one timer that is set."""

    def __init__(self) -> None:
        self.at_ms = 1_000
        self.leader_id: int | None = None
        self.due: tuple[int, Callable[[], None]] | None = None

    def monotonic_ms(self) -> int:
        return self.at_ms

    now_ms = monotonic_us = monotonic_ms

    def call_later(self, seconds: float, call: Callable[[], None]) -> "Time":
        self.due = (self.at_ms + int(seconds * 1_000), call)
        return self

    def cancel(self) -> None:
        self.due = None

    def go_on(self, ms: int) -> None:
        self.at_ms += ms
        if self.due is not None and self.due[0] <= self.at_ms:
            (_, call), self.due = self.due, None
            call()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "odradek.quorum")
    return caplog


def told(caplog: pytest.LogCaptureFixture) -> list[Event]:
    found = [each.msg for each in caplog.records if isinstance(each.msg, Event)]
    caplog.clear()
    return found


def watch() -> tuple[Time, LeaderWatch]:
    time = Time()
    return time, LeaderWatch(time, time.call_later, lambda: (1, 2, 3), lambda: time.leader_id)


def test_an_election_is_not_reported(lines: pytest.LogCaptureFixture) -> None:
    time, watching = watch()
    time.leader_id = None
    watching.look()
    time.go_on(PATIENCE_MS - 1)
    time.leader_id = 2
    watching.look()
    time.go_on(PATIENCE_MS)
    assert told(lines) == []


def test_a_quorum_without_a_leader_is_reported_once_and_its_end(
    lines: pytest.LogCaptureFixture,
) -> None:
    time, watching = watch()
    time.leader_id = None
    watching.look()
    time.go_on(PATIENCE_MS - 1)
    time.leader_id = None
    watching.look()
    time.go_on(1)
    (lost,) = told(lines)
    assert lost.name.startswith("no leader of the metadata quorum")
    assert lost.fields == {"voters": ["1", "2", "3"], "majority": 2, "for_ms": PATIENCE_MS}
    time.leader_id = None
    watching.look()
    time.go_on(60_000)
    assert told(lines) == []
    time.leader_id = 2
    watching.look()
    (found,) = told(lines)
    assert found.fields == {"leader_id": 2, "after_ms": PATIENCE_MS + 60_000}
    time.leader_id = 3
    watching.look()
    assert told(lines) == []


def test_a_leader_is_found_although_nobody_looks(lines: pytest.LogCaptureFixture) -> None:
    time, watching = watch()
    for _ in range(2):  # each time it is news
        time.leader_id = None
        watching.look()
        time.go_on(PATIENCE_MS)
        time.leader_id = 2
        time.go_on(PATIENCE_MS)
    assert [each.name[:9] for each in told(lines)] == ["no leader", "the metad"] * 2
    assert time.due is None


def test_a_leader_that_was_followed_again_in_silence_is_no_trouble(
    lines: pytest.LogCaptureFixture,
) -> None:
    time, watching = watch()
    watching.look()
    time.leader_id = 2  # and nobody looked
    time.go_on(PATIENCE_MS)
    assert told(lines) == []


def test_a_node_that_stops_reports_nothing(lines: pytest.LogCaptureFixture) -> None:
    time, watching = watch()
    time.leader_id = None
    watching.look()
    watching.stop()
    time.go_on(PATIENCE_MS)
    assert told(lines) == []
