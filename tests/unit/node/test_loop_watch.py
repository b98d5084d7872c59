"""A node's log and metrics say when its loop stalled, and what ran."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from odradek.core.stalls import Stalls
from odradek.node.loop_watch import LoopWatch
from odradek.testing.broker import Broker
from tests.unit.broker.metrics_scrape import scrape

SECONDS = 0.5  # longer than the interval of the watch
SECONDS_MAX = 120


def on_loop(broker: Broker, call: Callable[[], None]) -> None:
    assert broker._loop is not None

    async def run() -> None:
        call()
        await asyncio.sleep(0.1)  # the timer of the watch comes after this turn

    asyncio.run_coroutine_threadsafe(run(), broker._loop).result(SECONDS_MAX)


def block() -> None:
    time.sleep(SECONDS)  # what a node must never do


def test_a_stall_is_in_the_log_and_in_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as broker, caplog.at_level(logging.WARNING, "odradek.loop"):
        stalls = broker.node.broker.slices.stalls
        on_loop(broker, block)
        on_loop(broker, lambda: stalls.run("upkeep of logs", block))
        found = scrape(broker)
        assert found.value("odradek_loop_stall_ms_max") >= 100
        assert found.value("odradek_loop_stalls_total") >= 2
    lines = [each.getMessage() for each in caplog.records if "stalled" in each.getMessage()]
    assert any("ran=unknown" in line for line in lines)
    assert any("upkeep of logs" in line for line in lines)


def test_the_same_cause_is_not_reported_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as broker, caplog.at_level(logging.WARNING, "odradek.loop"):
        stalls = broker.node.broker.slices.stalls
        for _ in range(5):
            on_loop(broker, lambda: stalls.note("Produce", 100_000))
    lines = [each.getMessage() for each in caplog.records if "ran=Produce" in each.getMessage()]
    assert len(lines) == 1


def test_a_collection_that_had_begun_before_the_watch_is_not_measured() -> None:
    """Another thread collects while a node starts; without a beginning there is no duration."""

    async def watch() -> int:
        stalls = Stalls(lambda: 0)
        watch = LoopWatch(stalls, lambda: 0)
        watch.start()
        for phase in ("stop", "start", "stop", "stop"):
            watch._on_collection(phase, {"generation": 2})
        watch.stop()
        return stalls.count

    assert asyncio.run(watch()) == 0


def test_the_watch_goes_on_after_a_timer_whose_time_had_come_when_it_was_set() -> None:
    """On a busy machine uvloop makes no timer of it: it has no ``when``."""

    class HurriedLoop(uvloop.Loop):
        def call_at(self, when: float, *arguments: Any, **context: Any) -> Any:  # type: ignore[override]
            return super().call_at(self.time(), *arguments, **context)

    looks: list[int] = []

    def requests() -> int:
        looks.append(0)
        return 0

    async def run() -> None:
        watch = LoopWatch(Stalls(time.monotonic_ns), requests)
        watch.start()
        while len(looks) < 3:
            await asyncio.sleep(0)
        watch.stop()

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(asyncio.wait_for(run(), SECONDS_MAX))
