"""``kafka_network_…``: requests by API, their errors and times; how idle the event loop is."""

from collections.abc import Iterator, Sequence
from operator import add
from typing import TYPE_CHECKING, Final

from odradek.broker.clock import thread_cpu_us
from odradek.broker.metrics.family import Family, Kind, Sample, gauge
from odradek.broker.metrics.histogram import BOUNDS_US, Reading, Window, quantiles
from odradek.broker.metrics.requests import RequestStats
from odradek.core.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

Named = list[tuple[str, RequestStats]]
QUANTILES: Final = {
    "0.50": 0.5,
    "0.75": 0.75,
    "0.95": 0.95,
    "0.98": 0.98,
    "0.99": 0.99,
    "0.999": 0.999,
}
"""As the JMX exporter writes them."""

QUANTILE_SPAN_MS: Final = 300_000
IDLE_SPAN_MS: Final = 60_000
_REQUESTS: Final = "kafka_network_requestmetrics_"
_TIMES: Final = {
    "totaltimems": "From a request's arrival at the dispatcher to its answer, in ms.",
    "localtimems": "The part of it that the handler took, in ms.",
    "remotetimems": "The part of it that was spent waiting, in ms.",
}


class Summaries:
    """Quantiles of the last minutes, and sums and counts since the start."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._windows: dict[str, Window] = {}

    def samples(
        self, key: str, labels: dict[str, str], counts: Sequence[int], sum_us: int, now_ms: int
    ) -> Iterator[Sample]:
        """Return the samples of one summary; ``key`` tells it from the others."""
        window = self._windows.get(key)
        if window is None:
            start = Reading(self._start_ms, (0,) * len(counts))
            window = self._windows[key] = Window(start, QUANTILE_SPAN_MS)
        recent = quantiles(window.growth(counts, now_ms).values, list(QUANTILES.values()))
        for text, value_us in zip(QUANTILES, recent, strict=True):
            yield Sample({**labels, "quantile": text}, value_us / 1000)
        yield Sample(labels, sum(counts), "_count")
        yield Sample(labels, sum_us / 1000, "_sum")


class RequestFamilies:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        start_ms = broker.metrics.started_ms
        self._summaries = Summaries(start_ms)
        self._busy = Window(Reading(start_ms, (0,)), IDLE_SPAN_MS)
        # The thread may have done other things before: what it did is known from now on.
        now_ms = broker.clock.monotonic_ms()
        self._cpu = Window(Reading(now_ms, (thread_cpu_us(),)), IDLE_SPAN_MS)

    def collect(self) -> Iterator[Family]:
        stats = self._by_name()
        yield _counts(stats)
        yield _errors(stats)
        for name, help_text in _TIMES.items():
            samples = [
                sample for request, each in stats for sample in self._times(name, request, each)
            ]
            yield Family(_REQUESTS + name, help_text, Kind.SUMMARY, samples)
        yield gauge(
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "The share of time in which the event loop had no use for a core: 0 to 1.",
            self._idle(self._cpu, thread_cpu_us()),
        )
        yield gauge(
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "The share of time in which the event loop handled no request: 0 to 1.",
            self._idle(self._busy, self._busy_us()),
        )

    def _by_name(self) -> Named:
        """Return the counts by API; fetches count twice, as in Kafka: also by who asks."""
        metrics = self._broker.metrics
        found = {each.api.name: each for each in metrics.requests.values()}
        consumers, followers = found.get("Fetch"), metrics.follower_fetches
        if consumers is not None:
            everybody = RequestStats(consumers.api)
            everybody.add(consumers)
            everybody.add(followers)
            found |= {
                "Fetch": everybody,
                "FetchConsumer": consumers,
                "FetchFollower": followers,
            }
        return sorted(found.items())

    def _busy_us(self) -> int:
        metrics = self._broker.metrics
        return metrics.follower_fetches.local_sum_us + sum(
            each.local_sum_us for each in metrics.requests.values()
        )

    def _times(self, name: str, request: str, stats: RequestStats) -> Iterator[Sample]:
        counts, sum_us = _TOTALS[name](stats)
        now_ms = self._broker.clock.monotonic_ms()
        key, labels = f"{name} {request}", {"request": request}
        yield from self._summaries.samples(key, labels, counts, sum_us, now_ms)

    def _idle(self, window: Window, busy_us: int) -> float:
        now_ms = self._broker.clock.monotonic_ms()
        growth = window.growth([busy_us], now_ms)
        elapsed_us = max(now_ms - growth.at_ms, 1) * 1000
        return min(max(1 - growth.values[0] / elapsed_us, 0.0), 1.0)


def _counts(stats: Named) -> Family:
    samples = [
        Sample({"request": name, "version": str(version)}, count)
        for name, each in stats
        for version, count in enumerate(each.versions)
        if count
    ]
    return Family(_REQUESTS + "requests", "Requests that were answered.", Kind.COUNTER, samples)


def _errors(stats: Named) -> Family:
    samples = [
        Sample({"request": name, "error": _error_name(code)}, count)
        for name, each in stats
        for code, count in sorted(each.errors.items())
    ]
    help_text = "Error codes in answers, at any depth; NONE is not counted."
    return Family(_REQUESTS + "errors", help_text, Kind.COUNTER, samples)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


Totals = tuple[list[int], int]


def _total(stats: RequestStats) -> Totals:
    counts = list(map(add, stats.at_once.counts, stats.waited_total.counts))
    return counts, stats.at_once.sum_us + stats.waited_total.sum_us


def _local(stats: RequestStats) -> Totals:
    counts = list(map(add, stats.at_once.counts, stats.waited_local.counts))
    return counts, stats.local_sum_us


def _remote(stats: RequestStats) -> Totals:
    counts = list(stats.waited_remote.counts)
    counts[0] += sum(stats.at_once.counts)  # they did not wait at all
    return counts, stats.waited_remote.sum_us


_TOTALS: Final = {"totaltimems": _total, "localtimems": _local, "remotetimems": _remote}
assert _TOTALS.keys() == _TIMES.keys()
assert len(BOUNDS_US) < 128, "a scrape walks over all buckets of all APIs"
