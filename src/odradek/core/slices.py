"""Work that takes longer than a turn of the event loop may, done a slice at a time.

The work is a generator that yields often, at points where all state may be looked at by others,
and returns its result. The first slice runs at once: small work is done before ``run`` returns,
and costs no more than a call. What is left over goes on in later turns, in turn with other
work of its kind, one slice for all of it in a turn.

A slice is measured with the clock and not counted in steps, because what a step costs is decided
by the one who sends the request. No step may take long by itself.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from odradek.core.stalls import STALL_US_MIN, Stalls

T = TypeVar("T")
Steps = Generator[None, None, T]

SLICE_US_MAX: Final = 10_000
"""A fifth of what a turn may take: a step that is longer than most does not break the limit."""


class Handle(Protocol):
    """A call that is to come; ``asyncio.Handle`` is one."""

    def cancel(self) -> None: ...


CallSoon = Callable[[Callable[[], None]], Handle]
"""Calls back in the next turn of the loop."""


class _Work(NamedTuple):
    steps: Steps[Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]


def raise_on_loop(error: Exception) -> None:
    """Let an error that nobody expects reach the loop's handler, which logs it."""
    raise error


class Slices:
    """All such work of one node, on its event loop."""

    def __init__(self, now_us: Callable[[], int], call_soon: CallSoon) -> None:
        self._now_us = now_us
        self._call_soon = call_soon
        self._waiting: deque[_Work] = deque()
        self._turn: Handle | None = None
        self.stalls = Stalls(now_us)
        """Turns of this loop that took too long; others report theirs here as well."""

    def run(
        self,
        steps: Steps[T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None] = raise_on_loop,
    ) -> None:
        """Do the work, and call ``done`` with its result.

        What it raises in its first slice is raised here; ``failed`` gets what it raises later.
        """
        began_us = self._now_us()
        work = _Work(steps, done, failed)
        if not self._advance(work, began_us + SLICE_US_MAX):
            self._look_for_stall(work, began_us)  # else whoever called measures it

    def stop(self) -> None:
        """Drop what is not done yet."""
        self._waiting.clear()
        if self._turn is not None:
            self._turn.cancel()

    def _look_for_stall(self, work: _Work, began_us: int) -> None:
        took_us = self._now_us() - began_us
        if took_us >= STALL_US_MIN:
            self.stalls.note(_name(work.steps), took_us)

    def _advance(self, work: _Work, end_us: int) -> bool:
        """Do a slice; return whether that was the last."""
        while self._now_us() < end_us:
            try:
                next(work.steps)
            except StopIteration as ended:
                outcome = ended.value
                break
        else:
            self._waiting.append(work)
            self._schedule()
            return False
        work.done(outcome)
        return True

    def _schedule(self) -> None:
        if self._turn is None:
            self._turn = self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        if not self._waiting:
            return
        work = self._waiting.popleft()
        if self._waiting:
            self._schedule()
        began_us = self._now_us()
        try:
            self._advance(work, began_us + SLICE_US_MAX)
        except Exception as error:
            work.failed(error)
        self._look_for_stall(work, began_us)


def _name(steps: Steps[Any]) -> str:
    """Return module and function of a piece of work."""
    code = getattr(steps, "gi_code", None)
    if code is None:
        return "work in slices"
    module = code.co_filename.rpartition("/")[2].removesuffix(".py")
    return f"{module}.{code.co_qualname}"
