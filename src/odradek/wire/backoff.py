"""How long to wait before trying again: longer each time, with some chance in it (KIP-580)."""

from random import Random
from typing import Final

_JITTER: Final = 0.2


class Backoff:
    def __init__(self, first_ms: int, max_ms: int, random: Random) -> None:
        self._first_ms = first_ms
        self._max_ms = max(first_ms, max_ms)
        self._random = random
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next_ms(self) -> float:
        """Return the wait after one more failure."""
        exponent = min(self.failures, 30)
        self.failures += 1
        wait_ms = min(self._first_ms << exponent, self._max_ms)
        return wait_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER)
