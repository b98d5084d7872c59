"""Turns that take too long are counted once, with the name of what ran."""

from odradek.core.slices import Slices, Steps
from odradek.core.stalls import STALL_US_MIN, WINDOW_MS, Stalls


class Clock:
    def __init__(self) -> None:
        self.now_us = 10 * WINDOW_MS * 1_000

    def __call__(self) -> int:
        return self.now_us


class NoHandle:
    def cancel(self) -> None:
        pass


def watched() -> tuple[Clock, Stalls, list[tuple[str, int]]]:
    clock, seen = Clock(), list[tuple[str, int]]()
    stalls = Stalls(clock)
    stalls.on_stall = lambda what, took_ms: seen.append((what, took_ms))
    return clock, stalls, seen


def test_the_longest_turn_is_forgotten_after_a_while() -> None:
    clock, stalls, seen = watched()
    assert stalls.ms_max == 0
    stalls.note("Produce", 80_000)
    stalls.note("Fetch", 60_000)
    assert (stalls.ms_max, stalls.count) == (80, 2)
    clock.now_us += WINDOW_MS * 1_000
    assert stalls.ms_max == 80
    stalls.note("Fetch", 70_000)
    clock.now_us += WINDOW_MS * 1_000
    assert stalls.ms_max == 70
    clock.now_us += 3 * WINDOW_MS * 1_000
    assert (stalls.ms_max, stalls.count) == (0, 3)
    assert seen == [("Produce", 80), ("Fetch", 60), ("Fetch", 70)]


def test_a_timer_that_came_late_for_a_known_reason_is_no_second_stall() -> None:
    _, stalls, seen = watched()
    stalls.note("Produce", 120_000)
    stalls.on_late(100_000)
    stalls.on_late(100_000)
    stalls.on_late(STALL_US_MIN - 1)
    assert seen == [("Produce", 120), ("unknown", 100)]


def test_a_call_that_takes_long_is_reported_even_if_it_fails() -> None:
    clock, stalls, seen = watched()

    def take(us: int) -> None:
        clock.now_us += us

    stalls.run("upkeep", lambda: take(STALL_US_MIN - 1))
    stalls.run("upkeep", lambda: take(STALL_US_MIN))
    assert seen == [("upkeep", 50)]


def test_a_step_that_takes_long_is_reported_with_the_name_of_the_work() -> None:
    clock, seen = Clock(), list[tuple[str, int]]()
    calls = []

    def call_soon(call: object) -> NoHandle:
        calls.append(call)
        return NoHandle()

    slices = Slices(clock, call_soon)
    slices.stalls.on_stall = lambda what, took_ms: seen.append((what, took_ms))

    def work() -> Steps[None]:
        yield
        clock.now_us += 75_000
        yield

    slices.run(work(), lambda _none: None)
    ((what, took_ms),) = seen
    assert what.endswith("work")
    assert took_ms == 75
