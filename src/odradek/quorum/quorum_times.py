"""How long commits and elections take: averages and maxima of the last minute, for metrics."""

from collections import deque
from typing import Final, NamedTuple

SAMPLES_MAX: Final = 1_000
SPAN_MS: Final = 60_000


class Latency(NamedTuple):
    average_ms: float
    max_ms: int


class Latencies:
    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)

    def record(self, begun_ms: int, now_ms: int) -> None:
        self._samples.append((now_ms, now_ms - begun_ms))

    def recent(self, now_ms: int) -> Latency:
        """Return the figures of the last minute; zero if there was nothing to measure."""
        recent = [took for at, took in self._samples if at > now_ms - SPAN_MS]
        if not recent:
            return Latency(0.0, 0)
        return Latency(sum(recent) / len(recent), max(recent))


class QuorumTimes:
    def __init__(self) -> None:
        self.commits = Latencies()
        self.elections = Latencies()
        self._append: tuple[int, int] | None = None  # where it ends, and when it was made
        self._leaderless_since_ms: int | None = None

    def on_appended(self, end_offset: int, now_ms: int) -> None:
        """Measure one append at a time: those meanwhile wait for the same flush, or for less."""
        if self._append is None:
            self._append = end_offset, now_ms

    def on_committed(self, offset: int, now_ms: int) -> None:
        if self._append is not None and offset >= self._append[0]:
            self.commits.record(self._append[1], now_ms)
            self._append = None

    def on_leader(self, leader_id: int | None, now_ms: int) -> None:
        """Take note that a leader is known, or that none is any more."""
        since_ms = self._leaderless_since_ms
        if leader_id is None:
            self._append = None  # it may never be committed
            if since_ms is None:
                self._leaderless_since_ms = now_ms
        elif since_ms is not None:
            self.elections.record(since_ms, now_ms)
            self._leaderless_since_ms = None
