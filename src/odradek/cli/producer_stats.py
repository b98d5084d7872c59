"""Figures of a producer under load, as ``kafka-producer-perf-test`` prints them."""

from collections.abc import Callable, Sequence
from typing import Final

MIB: Final = 1024 * 1024
SAMPLES_MAX: Final = 500_000
_PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)


class Figures:
    """Counts records, bytes and latencies since some time."""

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.count = 0
        self.size = 0
        self.latency_sum = 0
        self.latency_max = 0

    def add(self, latency_ms: int, size: int) -> None:
        self.count += 1
        self.size += size
        self.latency_sum += latency_ms
        if latency_ms > self.latency_max:
            self.latency_max = latency_ms

    def per_second(self, now_ms: int) -> tuple[float, float]:
        """Return records and mebibytes a second."""
        elapsed_ms = max(now_ms - self.start_ms, 1)
        return 1000.0 * self.count / elapsed_ms, 1000.0 * self.size / elapsed_ms / MIB

    @property
    def latency_mean(self) -> float:
        return self.latency_sum / self.count if self.count else 0.0


class ProducerStats:
    """Reports every so often on what was delivered lately, and in the end on all of it."""

    def __init__(
        self,
        records: int,
        start_ms: int,
        interval_ms: int,
        report: Callable[[str], None],
        *,
        is_steady_state: bool = False,
    ) -> None:
        """Expect so many records; more may come, their latencies are not sampled any more."""
        self.total = Figures(start_ms)
        self.is_silent = False
        self._window = Figures(start_ms)
        self._interval_ms = interval_ms
        self._report = report
        self._is_steady_state = is_steady_state
        self._sampling = records // min(records, SAMPLES_MAX)
        self._samples: list[int] = []

    def add(self, latency_ms: int, size: int, now_ms: int) -> None:
        """Take in that a record of so many bytes was delivered."""
        if self.total.count % self._sampling == 0 and len(self._samples) <= SAMPLES_MAX:
            self._samples.append(latency_ms)
        self.total.add(latency_ms, size)
        self._window.add(latency_ms, size)
        if now_ms - self._window.start_ms >= self._interval_ms:
            self._end_window(now_ms)

    def _end_window(self, now_ms: int) -> None:
        window = self._window
        if self._is_steady_state and window.count == self.total.count:
            self._report("In steady state.")
        if not self.is_silent:
            records, mebibytes = window.per_second(now_ms)
            self._report(
                f"{window.count} records sent, {records:.1f} records/sec ({mebibytes:.2f} MB/sec),"
                f" {window.latency_mean:.1f} ms avg latency,"
                f" {window.latency_max:.1f} ms max latency."
            )
        self._window = Figures(now_ms)

    def report_total(self, now_ms: int) -> None:
        total = self.total
        records, mebibytes = total.per_second(now_ms)
        shares = percentiles(self._samples, _PERCENTILES)
        self._report(
            f"{total.count}{' steady state' if self._is_steady_state else ''} records sent,"
            f" {records:.6f} records/sec ({mebibytes:.2f} MB/sec),"
            f" {total.latency_mean:.2f} ms avg latency, {total.latency_max:.2f} ms max latency,"
            f" {shares[0]} ms 50th, {shares[1]} ms 95th, {shares[2]} ms 99th,"
            f" {shares[3]} ms 99.9th."
        )


def percentiles(values: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Return the values below which such shares of all values are; 0 where there are none."""
    ranked = sorted(values)
    if not ranked:
        return [0] * len(shares)
    return [ranked[min(int(share * len(ranked)), len(ranked) - 1)] for share in shares]
