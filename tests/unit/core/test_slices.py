"""Long work is done in slices, in turn with other work, and its end is told once."""

import asyncio
from collections.abc import Callable, Generator

import pytest

from odradek.core.slices import SLICE_US_MAX, Slices


class Clock:
    """Moves on by a bit with every look at it."""

    def __init__(self, step_us: int) -> None:
        self.now = 0
        self.step_us = step_us

    def __call__(self) -> int:
        self.now += self.step_us
        return self.now


def call_soon(call: Callable[[], None]) -> asyncio.Handle:
    return asyncio.get_running_loop().call_soon(call)


def count(name: str, steps: int, seen: list[str]) -> Generator[None, None, str]:
    for _ in range(steps):
        seen.append(name)
        yield
    return name


def test_small_work_is_done_at_once() -> None:
    done: list[str] = []
    Slices(Clock(0), call_soon).run(count("small", 1_000, []), done.append)
    assert done == ["small"]


def test_large_work_takes_turns_with_other_work() -> None:
    async def story() -> None:
        slices, seen, done = Slices(Clock(SLICE_US_MAX // 4), call_soon), list[str](), list[str]()
        slices.run(count("a", 12, seen), done.append)
        slices.run(count("b", 3, seen), done.append)
        assert done == []
        while len(done) < 2:
            await asyncio.sleep(0)
        assert done == ["b", "a"], "a does not keep b waiting"
        assert seen.count("a") == 12
        assert seen.index("b") < 6

    asyncio.run(story())


def test_an_error_is_raised_from_the_first_slice_and_told_from_a_later_one() -> None:
    def fails(after: int) -> Generator[None, None, None]:
        yield from count("", after, [])
        raise KeyError("planted")

    async def story() -> None:
        slices, errors = Slices(Clock(SLICE_US_MAX // 4), call_soon), list[Exception]()
        with pytest.raises(KeyError):
            slices.run(fails(0), lambda _: None, errors.append)
        slices.run(fails(50), lambda _: None, errors.append)
        while not errors:
            await asyncio.sleep(0)
        assert [type(error) for error in errors] == [KeyError]

    asyncio.run(story())


def test_what_is_not_done_is_dropped_at_the_end() -> None:
    async def story() -> None:
        slices, seen, done = Slices(Clock(SLICE_US_MAX), call_soon), list[str](), list[str]()
        slices.run(count("a", 100, seen), done.append)
        slices.stop()
        before = len(seen)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (len(seen), done) == (before, [])

    asyncio.run(story())
