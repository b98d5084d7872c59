"""The real clock, and how to notice that somebody set it."""

import time
from typing import Final

from odradek.core.clock import Clock

STEP_MS_MIN: Final = 1_000
"""Less is rounding, or a clock that is slewed."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


class WallClockSteps:
    """Notices when the wall clock was set, by the steady clock beside it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.now_ms() - clock.monotonic_ms()

    def take_step_back_ms(self) -> int:
        """Return by how much the clock was set back since the last call; 0 if it was not."""
        ahead_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        step_ms = self._ahead_ms - ahead_ms
        if abs(step_ms) < STEP_MS_MIN:
            return 0
        self._ahead_ms = ahead_ms
        return max(step_ms, 0)


def thread_cpu_us() -> int:
    """Microseconds that the calling thread has had a core."""
    return time.thread_time_ns() // 1_000
