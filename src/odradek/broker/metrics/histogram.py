"""How long things took, as counts in fixed buckets. Hot path: one bisection per observation.

Bounds are a fourth of a power of two apart, so a quantile is at most 19 % off whatever the times
are, and nothing has to be sampled or thrown away. Counts only ever grow; what happened lately is
the difference to counts that were read before, which a :class:`Window` keeps. So the price of
quantiles that follow the load is paid by whoever asks for them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import add
from typing import Final, NamedTuple

_PER_OCTAVE: Final = 4
_OCTAVES: Final = 28
BOUNDS_US: Final = sorted({round(2 ** (i / _PER_OCTAVE)) for i in range(_PER_OCTAVE * _OCTAVES)})
"""Upper ends of the buckets, inclusive: 1 µs to 225 s. One more bucket is for all that is above."""


class Histogram:
    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0

    def record(self, us: int) -> None:
        self.counts[bisect_left(BOUNDS_US, us)] += 1
        self.sum_us += us

    def add(self, other: "Histogram") -> None:
        self.counts = list(map(add, self.counts, other.counts))
        self.sum_us += other.sum_us


def quantiles(counts: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """Return the value in µs below which each of the wanted shares lies; 0 if nothing was counted.

    ``wanted`` must rise.
    """
    total = sum(counts)
    found: list[float] = []
    slot, before = 0, 0
    for share in wanted:
        rank = share * total
        while slot < len(BOUNDS_US) and before + counts[slot] < rank:
            before += counts[slot]
            slot += 1
        found.append(_within(slot, rank - before, counts[slot]) if total else 0.0)
    return found


def _within(slot: int, rank: float, count: int) -> float:
    """Return a value inside a bucket, as if what it counts were spread evenly."""
    if slot == len(BOUNDS_US):
        return float(BOUNDS_US[-1])
    low = BOUNDS_US[slot - 1] if slot else 0
    return low + (BOUNDS_US[slot] - low) * (rank / count if count else 1)


class Reading(NamedTuple):
    at_ms: int
    values: Sequence[int]


class Window:
    """Tells how much totals have grown in the last ``span_ms`` to twice ``span_ms``.

    It is told the totals at every scrape and keeps two readings that are at least a span apart. How
    often and by how many it is asked makes no difference.
    """

    def __init__(self, start: Reading, span_ms: int) -> None:
        self._span_ms = span_ms
        self._older = self._newer = start

    def growth(self, totals: Sequence[int], now_ms: int) -> Reading:
        """Return the growth, and since when."""
        if now_ms - self._newer.at_ms >= self._span_ms:
            self._older = self._newer
            self._newer = Reading(now_ms, tuple(totals))
        older = self._older
        grown = [now - then for now, then in zip(totals, older.values, strict=True)]
        return Reading(older.at_ms, grown)
