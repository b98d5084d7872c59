"""Keeps what a node holds for long out of the way of Python's garbage collector.

A full collection goes through every container there is, in one turn of the loop: 90 ms with 3,000
replicated partitions, and more with each. What a start makes is frozen, and so is what has survived
a collection that took long: the next one goes through what came since.

Reference counts free frozen objects as ever, but a cycle among them is not found. All are thawed
now and then, so that no such cycle stays: the collection after that goes through everything.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

FREEZE_US_MIN: Final = 10_000
"""What survives a shorter collection is not worth freezing."""
FULL_EVERY: Final = 5
"""Collections of the middle generation before a full one; with Python's 10 it takes twice as long
when thousands of partitions come at once."""
THAW_SECONDS: Final = 6 * 3600
OLDEST_GENERATION: Final = 2


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


class FrozenHeap:
    """Freezes within its ``with`` block; the collector is the process's, so use it only there."""

    def __init__(self, now_us: Callable[[], int] = _monotonic_us) -> None:
        self._now_us = now_us
        self._collecting_since_us = 0
        self._thresholds = gc.get_threshold()
        self._timer: asyncio.TimerHandle | None = None

    def freeze(self) -> None:
        """Take all that there is for what stays."""
        gc.freeze()

    def __enter__(self) -> Self:
        self.freeze()
        gc.set_threshold(*self._thresholds[:OLDEST_GENERATION], FULL_EVERY)
        gc.callbacks.append(self._on_collection)
        self._arm()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(THAW_SECONDS, self._thaw)

    def _thaw(self) -> None:
        self._arm()
        gc.unfreeze()

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST_GENERATION:
            return
        if phase == "start":
            self._collecting_since_us = self._now_us()
        elif self._now_us() - self._collecting_since_us >= FREEZE_US_MIN:
            self.freeze()
