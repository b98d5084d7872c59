"""A limit on how fast the cleaner reads and writes (``log.cleaner.io.max.bytes.per.second``)."""

import time
from collections.abc import Callable
from math import inf
from typing import Final

SLEEP_SECONDS_MIN: Final = 0.05
"""Shorter sleeps are saved up: the system cannot keep them."""


class Throttle:
    """Sleeps as long as it takes to stay under a rate. Time not used is not saved for later."""

    def __init__(
        self,
        bytes_per_second_max: float = inf,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert bytes_per_second_max > 0
        self._bytes_per_second_max = bytes_per_second_max
        self._monotonic = monotonic
        self._sleep = sleep
        self._paid_until = monotonic()

    def spend(self, count: int) -> None:
        """Take note of ``count`` bytes read or written."""
        if self._bytes_per_second_max == inf:
            return
        now = self._monotonic()
        # What was spent before is paid for now, so that time that passed since counts.
        if self._paid_until - now >= SLEEP_SECONDS_MIN:
            self._sleep(self._paid_until - now)
            now = self._monotonic()
        self._paid_until = max(self._paid_until, now) + count / self._bytes_per_second_max
