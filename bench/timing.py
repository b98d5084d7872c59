"""Timing that survives a noisy machine: the best of several short rounds."""

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

ROUNDS = 7
ROUND_SECONDS = 0.05


class Row(NamedTuple):
    operation: str
    implementation: str
    value: float
    unit: str


def microseconds(call: Callable[[], object]) -> float:
    """Return the µs one call takes in the best of the rounds."""
    count = 1
    while (seconds := _round(call, count)) < ROUND_SECONDS / 5:
        count *= 2 if seconds > ROUND_SECONDS / 50 else 10
    count = max(1, int(count * ROUND_SECONDS / seconds))
    gc.disable()
    try:
        return min(_round(call, count) for _ in range(ROUNDS)) / count * 1e6
    finally:
        gc.enable()


def _round(call: Callable[[], object], count: int) -> float:
    repeat = range(count)
    start = time.perf_counter()
    for _ in repeat:
        call()
    return time.perf_counter() - start
