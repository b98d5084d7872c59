"""Progress for people and programs: a table that is redrawn, lines, JSON lines, Prometheus."""

import json
import sys
from collections.abc import Mapping
from typing import Final, TextIO

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from odradek.spark.pipeline.progress import QueryProgress

PARTITIONS_SHOWN_MAX: Final = 16
_COLUMNS: Final = ("QUERY", "BATCH", "ROWS", "IN/S", "DONE/S", "BATCH MS", "LAG", "BAD", "DEAD")

Progress = Mapping[str, QueryProgress]


def row(progress: QueryProgress) -> tuple[str, ...]:
    failed = sum(count.failed for count in progress.expectations.values())
    return (
        progress.query,
        "-" if progress.last_batch is None else str(progress.last_batch),
        str(progress.input_rows),
        f"{progress.input_rows_per_second:.0f}",
        f"{progress.processed_rows_per_second:.0f}",
        str(progress.batch_ms),
        str(progress.total_lag),
        str(progress.corrupt_records + failed),
        str(progress.dead_letters),
    )


def table(progress: Progress) -> list[str]:
    """Return a line for each query, and one for each expectation and each partition that lags."""
    rows = [_COLUMNS, *(row(each) for each in progress.values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for cells in rows:
        first, *others = zip(cells, widths, strict=True)
        numbers = (text.rjust(width) for text, width in others)
        lines.append("  ".join((first[0].ljust(first[1]), *numbers)))
    return lines + _expectation_lines(progress) + _lag_lines(progress)


def _expectation_lines(progress: Progress) -> list[str]:
    return [
        f"  {each.query}: expectation '{name}': {count.failed} of {count.rows} rows failed"
        for each in progress.values()
        for name, count in each.expectations.items()
    ]


def _lag_lines(progress: Progress) -> list[str]:
    lags = [
        (each.query, partition, lag)
        for each in progress.values()
        for partition, lag in sorted(each.lag.items())
        if lag
    ]
    shown = [f"  {query}: {partition} lag {lag}" for query, partition, lag in lags]
    more = len(shown) - PARTITIONS_SHOWN_MAX
    return [*shown[:PARTITIONS_SHOWN_MAX], *([f"  … and {more} more"] if more > 0 else [])]


class Terminal:
    """A table that is drawn over itself."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._lines = 0

    def __call__(self, progress: Progress) -> None:
        lines = table(progress)
        up = f"\x1b[{self._lines}A" if self._lines else ""
        self._out.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._lines = len(lines)


class Lines:
    """A line for each micro-batch, for pipes and logs."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._seen: dict[str, int] = {}

    def __call__(self, progress: Progress) -> None:
        for name, each in progress.items():
            if each.batches != self._seen.get(name, 0):
                self._seen[name] = each.batches
                self._out.write(self._line(each) + "\n")
        self._out.flush()

    def _line(self, each: QueryProgress) -> str:
        _, batch, rows, arriving, done, batch_ms, lag, bad, dead = row(each)
        line = f"{each.query}: batch {batch}, {rows} rows, {arriving}/s in, {done}/s done"
        return f"{line}, {batch_ms} ms, lag {lag}, {bad} bad rows, {dead} dead letters"


class JsonLines:
    """A JSON object for each micro-batch, for programs."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._seen: dict[str, int] = {}

    def __call__(self, progress: Progress) -> None:
        for name, each in progress.items():
            if each.batches != self._seen.get(name, 0):
                self._seen[name] = each.batches
                self._out.write(json.dumps(each.as_json()) + "\n")
        self._out.flush()


class Metrics:
    """Prometheus text over HTTP: ``odradek_pipeline_*``, labelled by pipeline and query."""

    def __init__(self, pipeline: str, port: int, host: str = "127.0.0.1") -> None:
        """Listen; port 0 picks a free one.

        Raises:
            OSError: The port is taken.
        """
        self._pipeline = pipeline
        self._registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._server, self._thread = start_http_server(port, host, self._registry)
        self.port = self._server.server_port

    def __call__(self, progress: Progress) -> None:
        for each in progress.values():
            self._set("input_rows", "Rows read since the start", each.query, each.input_rows)
            self._set("batches", "Micro-batches since the start", each.query, each.batches)
            self._set("batch_seconds", "Last batch", each.query, each.batch_ms / 1000)
            self._set("dead_letters", "Dead letters", each.query, each.dead_letters)
            self._set("corrupt_records", "Not decoded", each.query, each.corrupt_records)
            rate = each.processed_rows_per_second
            self._set("processed_rows_per_second", "Speed", each.query, rate)
            for partition, lag in each.lag.items():
                labels = {"topic": partition.topic, "partition": str(partition.partition)}
                self._set("lag_records", "Records behind", each.query, lag, **labels)
            for name, count in each.expectations.items():
                told = "Rows that failed an expectation"
                self._set("expectation_failures", told, each.query, count.failed, expectation=name)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _set(self, name: str, text: str, query: str, value: float, **labels: str) -> None:
        gauge = self._gauges.get(name)
        if gauge is None:
            names = ("pipeline", "query", *labels)
            gauge = Gauge(f"odradek_pipeline_{name}", text, names, registry=self._registry)
            self._gauges[name] = gauge
        gauge.labels(pipeline=self._pipeline, query=query, **labels).set(value)
