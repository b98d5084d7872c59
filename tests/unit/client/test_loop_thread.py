"""A coroutine on a loop of its own: whoever waits for it may be interrupted at any moment."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from types import FrameType
from typing import Any

import pytest

from odradek.client.blocking import loop_thread
from odradek.client.blocking.loop_thread import LoopThread
from odradek.client.errors import ClosedError

SECONDS_MAX = 60


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    started = LoopThread("of-a-test")
    yield started
    started.stop()


class Work:
    """Something that goes on until it is cancelled."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.has_ended = threading.Event()

    async def __call__(self) -> None:
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended.set()


class Interrupter:
    """Interrupts ``LoopThread.run`` before one of the steps that lead to its waiting."""

    def __init__(self, thread: LoopThread, step: int) -> None:
        self._loop = thread.loop
        self._steps_left = step
        self.is_too_late = False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is Future.result.__code__:
            self.is_too_late = True
        if self.is_too_late or frame.f_code.co_filename != loop_thread.__file__:
            return None
        frame.f_trace_opcodes = True
        is_step = event in ("line", "opcode")
        self._steps_left -= is_step
        if is_step and not self._steps_left:
            self.settle()
            raise KeyboardInterrupt
        return self

    def settle(self) -> None:
        """Have the loop do all that it has to do now."""
        for _ in range(3):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result(SECONDS_MAX)


def test_an_interrupt_leaves_nothing_running_whenever_it_comes(thread: LoopThread) -> None:
    for step in count(1):
        work, interrupter = Work(), Interrupter(thread, step)
        coroutine = work()
        sys.settrace(interrupter)
        try:
            with pytest.raises((KeyboardInterrupt, TimeoutError)):
                thread.run(coroutine, 0.01)
        finally:
            sys.settrace(None)
        interrupter.settle()
        assert work.has_begun.is_set() == work.has_ended.is_set(), step
        coroutine.close()  # where it was never begun
        if interrupter.is_too_late:
            break
    assert step > 3


def test_the_end_of_the_time_cancels_it(thread: LoopThread) -> None:
    work = Work()
    with pytest.raises(TimeoutError):
        thread.run(work(), 0.01)
    # It may have been given up before it began: then it never does.
    thread.run(asyncio.sleep(0))
    assert work.has_begun.is_set() == work.has_ended.is_set()


def test_what_it_comes_to_is_told(thread: LoopThread) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    assert thread.run(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ZeroDivisionError):
        thread.run(fail())


def test_a_future_can_be_cancelled(thread: LoopThread) -> None:
    work = Work()
    future = thread.submit(work())
    assert work.has_begun.wait(SECONDS_MAX)
    assert future.cancel()
    assert work.has_ended.wait(SECONDS_MAX)


def test_a_loop_that_ends_tells_who_waits(thread: LoopThread) -> None:
    work = Work()

    def end() -> None:
        work.has_begun.wait(SECONDS_MAX)
        thread.stop_soon()

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(ClosedError):
        thread.run(work(), SECONDS_MAX)
    ending.join()
