"""A clock that tests can move on: the real one, and an offset that only grows.

The wall clock alone can be set as well, also back, as an operator or NTP does it (``step_wall``).

Time jumps. What a broker does every so often it does once for a whole jump, and whoever has not
been heard of since (a member of a group, a transaction) is given up if the jump is longer than its
timeout, as on a machine that was asleep. Not moved: the deadlines of connections and of clients,
which have clocks of their own.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from odradek.broker.clock import SystemClock
from odradek.core.clock import Clock


class TestClock:
    """Implements ``odradek.core.clock.Clock``; a broker has one as ``broker.clock``."""

    __test__ = False  # for pytest: it is no test

    def __init__(
        self,
        block: Callable[[], None] = lambda: None,
        wait: Callable[[], Awaitable[None]] | None = None,
        real: Clock | None = None,
    ) -> None:
        """``block`` and ``wait`` have what became due done, for a caller of either kind."""
        self._real = real or SystemClock()
        self._offset_ms = 0
        self._wall_offset_ms = 0
        self._block = block
        self._wait = wait

    def now_ms(self) -> int:
        return self._real.now_ms() + self._offset_ms + self._wall_offset_ms

    def monotonic_ms(self) -> int:
        return self._real.monotonic_ms() + self._offset_ms

    def monotonic_us(self) -> int:
        return self._real.monotonic_us() + self._offset_ms * 1000

    def advance(self, time: float | timedelta) -> None:
        """Move on by so many seconds; return when the broker has done what became due.

        That is: requests that waited until now are answered; old segments are out of their logs
        (``retention.ms``; a broker looks every 5 minutes, the first time after 30 seconds), files
        and folders whose time has come are removed, checkpoints are written. Compaction, where it
        is on, is begun and not waited for.
        """
        self._move(time)
        self._block()

    async def advance_async(self, time: float | timedelta) -> None:
        """Do the same as ``advance`` without blocking the event loop."""
        self._move(time)
        if self._wait is not None:
            await self._wait()

    def step_wall(self, time: float | timedelta) -> None:
        """Set the wall clock by so many seconds, back if negative; the steady clock goes on.

        Nothing becomes due by that: a broker's deadlines go by the steady clock. How old records,
        producers and offsets are goes by the wall clock, at the next look.
        """
        self._wall_offset_ms += _milliseconds(time)

    def _move(self, time: float | timedelta) -> None:
        time_ms = _milliseconds(time)
        if time_ms < 0:
            raise ValueError(
                f"{time_ms / 1000} seconds: a clock goes forward; step_wall sets it back"
            )
        self._offset_ms += time_ms


def _milliseconds(time: float | timedelta) -> int:
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    return round(seconds * 1000)
