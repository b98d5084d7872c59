"""A clock per node: the steady one is the world's, the wall is off, drifts and jumps.

Implements ``odradek.core.clock.Clock``.
"""

from collections.abc import Callable
from typing import Final

EPOCH_SECONDS: Final = 1_750_000_000
"""What a wall without offset shows when the world begins: a day of June 2025."""


class SimClock:
    def __init__(self, time: Callable[[], float]) -> None:
        """``time`` is the world's, in seconds."""
        self._time = time
        self._since = time()  # when the drift was last changed
        self._wall = EPOCH_SECONDS + self._since  # what the wall showed then
        self._rate = 1.0
        self.step_us = 0
        """What one look at the clock for how long things take counts as: work costs time, then."""
        self._counted_us = 0

    def now_ms(self) -> int:
        return int(self._wall_now() * 1000)

    def monotonic_ms(self) -> int:
        return int(self._time() * 1000)

    def monotonic_us(self) -> int:
        now_us = int(self._time() * 1_000_000)
        if not self.step_us and now_us >= self._counted_us:
            return now_us
        self._counted_us = max(now_us, self._counted_us + self.step_us)
        return self._counted_us

    def jump(self, seconds: float) -> None:
        """Set the wall, back if negative, as an operator or NTP does."""
        self._wall += seconds

    def drift(self, parts_per_million: float) -> None:
        """Let the wall run faster from now on, or slower if negative."""
        self._wall, self._since = self._wall_now(), self._time()
        self._rate = 1 + parts_per_million / 1_000_000

    @property
    def offset_seconds(self) -> float:
        """How far the wall is ahead of one that is right."""
        return self._wall_now() - EPOCH_SECONDS - self._time()

    def _wall_now(self) -> float:
        return self._wall + (self._time() - self._since) * self._rate
