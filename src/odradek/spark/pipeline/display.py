"""Progress for people and programs: a table that is redrawn, lines, JSON lines, Prometheus.

ROWS, BAD and DEAD are since the epoch began, all else is of the last micro-batch.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Final, TextIO

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from odradek.spark.pipeline.progress import QueryProgress
from odradek.spark.pipeline.totals import Count, Totals

PARTITIONS_SHOWN_MAX: Final = 16
_UNKNOWN_SIZE: Final = os.terminal_size((80, 24))
_COLUMNS: Final = ("QUERY", "BATCH", "ROWS", "IN/S", "DONE/S", "BATCH MS", "LAG", "BAD", "DEAD")
_SINCE: Final = "since the epoch began"

Progress = Mapping[str, QueryProgress]


def row(progress: QueryProgress) -> tuple[str, ...]:
    totals = progress.totals
    return (
        progress.query,
        "-" if progress.last_batch is None else str(progress.last_batch),
        str(totals.input_rows),
        f"{progress.input_rows_per_second:.0f}",
        f"{progress.processed_rows_per_second:.0f}",
        str(progress.batch_ms),
        "-" if progress.total_lag is None else str(progress.total_lag),
        str(totals.bad_rows),
        str(totals.dead_letters),
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
        f"  expectation '{name}': {count.failed} of {count.rows} rows failed"
        for name, count in farthest(each.totals for each in progress.values()).items()
    ]


def farthest(totals: Iterable[Totals]) -> dict[str, Count]:
    """Return expectations as the query has counted them that is ahead of the others.

    Each query counts for itself, the same rows: to add them up would tell of more than there are.
    """
    found: dict[str, Count] = {}
    for each in totals:
        for name, count in each.expectations.items():
            if name not in found or count.rows > found[name].rows:
                found[name] = count
    return found


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
    """A table that is drawn over itself, as much of it as there is room for."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._lines = 0

    def __call__(self, progress: Progress) -> None:
        size = self._size()
        # A line that is wrapped or scrolled away could not be drawn over.
        lines = [line[: max(1, size.columns - 1)] for line in table(progress)]
        lines = lines[: max(1, size.lines - 1)]
        up = f"\x1b[{self._lines}A" if self._lines else ""
        self._out.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._lines = len(lines)

    def note(self, text: str) -> None:
        """Write a line that stays; the table is drawn anew below it."""
        up = f"\x1b[{self._lines}A" if self._lines else ""
        self._out.write(f"{up}\x1b[2K{text}\n\x1b[J")
        self._out.flush()
        self._lines = 0

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._out.fileno())
        except (OSError, ValueError):
            return _UNKNOWN_SIZE
        # A serial line does not know.
        return size if size.columns and size.lines else _UNKNOWN_SIZE


class Lines:
    """A line for each micro-batch, for pipes and logs."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._seen: dict[str, int | None] = {}

    def __call__(self, progress: Progress) -> None:
        for name, each in progress.items():
            if each.last_batch != self._seen.get(name):
                self._seen[name] = each.last_batch
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
        self._seen: dict[str, int | None] = {}

    def __call__(self, progress: Progress) -> None:
        for name, each in progress.items():
            if each.last_batch != self._seen.get(name):
                self._seen[name] = each.last_batch
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
            totals = each.totals
            self._set("input_rows", f"Records read {_SINCE}", each.query, totals.input_rows)
            self._set("batches", f"Micro-batches {_SINCE}", each.query, totals.batches)
            self._set("dead_letters", f"Dead letters {_SINCE}", each.query, totals.dead_letters)
            told = f"Records that could not be decoded {_SINCE}"
            self._set("corrupt_records", told, each.query, totals.corrupt_records)
            self._set("batch_seconds", "Last batch", each.query, each.batch_ms / 1000)
            rate = each.processed_rows_per_second
            self._set("processed_rows_per_second", "Speed", each.query, rate)
            for partition, lag in each.lag.items():
                labels = {"topic": partition.topic, "partition": str(partition.partition)}
                self._set("lag_records", "Records behind", each.query, lag, **labels)
            for name, count in totals.expectations.items():
                told = f"Rows that failed an expectation {_SINCE}"
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
