"""How far the queries of a pipeline are, from what Spark tells of its micro-batches. Pure.

Counts are of this run: Spark keeps none from one start to the next. An expectation on a step that
several sinks use is counted by each of them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.core.ids import TopicPartition
from odradek.spark.offsets import parse_offsets
from odradek.spark.pipeline.expectations import (
    CORRUPT_COUNT,
    DEAD_LETTER_COUNT,
    EXPECTATION_PREFIX,
    FAILED,
    ROWS,
)

Progress = Mapping[str, Any]


@dataclass
class Count:
    rows: int = 0
    failed: int = 0


@dataclass
class QueryProgress:
    """One query, since it was started."""

    query: str
    batches: int = 0
    last_batch: int | None = None
    input_rows: int = 0
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    batch_ms: int = 0
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    lag: dict[TopicPartition, int] = field(default_factory=dict)
    expectations: dict[str, Count] = field(default_factory=dict)
    corrupt_records: int = 0
    dead_letters: int = 0
    _last_seen: str = ""

    def take(self, recent: Iterable[Progress]) -> bool:
        """Count what is new of the progress that Spark remembers, oldest first."""
        is_new = False
        for progress in recent:
            # ISO times of one length are in the order of their texts.
            moment = f"{progress['timestamp']} {progress['batchId']:019}"
            if moment > self._last_seen:
                self._last_seen = moment
                self._count(progress)
                is_new = True
        return is_new

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())

    def _count(self, progress: Progress) -> None:
        durations = progress.get("durationMs") or {}
        # Without a batch Spark tells every ten seconds that it is there.
        if "addBatch" in durations:
            self.batches += 1
            self.last_batch = int(progress["batchId"])
            self.batch_ms = int(durations.get("triggerExecution", 0))
        self.input_rows += int(progress.get("numInputRows") or 0)
        self.input_rows_per_second = _rate(progress.get("inputRowsPerSecond"))
        self.processed_rows_per_second = _rate(progress.get("processedRowsPerSecond"))
        for source in progress.get("sources") or ():
            self._locate(source)
        for name, counts in (progress.get("observedMetrics") or {}).items():
            self._observe(name, counts)

    def _locate(self, source: Mapping[str, Any]) -> None:
        ends = _offsets(source.get("endOffset"))
        latest = _offsets(source.get("latestOffset"))
        if ends:
            self.offsets = ends
            self.lag = {each: max(0, latest.get(each, end) - end) for each, end in ends.items()}

    def _observe(self, name: str, counts: Mapping[str, Any]) -> None:
        rows, failed = int(counts.get(ROWS) or 0), int(counts.get(FAILED) or 0)
        if name == CORRUPT_COUNT:
            self.corrupt_records += failed
        elif name == DEAD_LETTER_COUNT:
            self.dead_letters += failed
        elif name.startswith(EXPECTATION_PREFIX):
            count = self.expectations.setdefault(name.removeprefix(EXPECTATION_PREFIX), Count())
            count.rows += rows
            count.failed += failed

    def as_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "batches": self.batches,
            "last_batch": self.last_batch,
            "input_rows": self.input_rows,
            "input_rows_per_second": round(self.input_rows_per_second, 1),
            "processed_rows_per_second": round(self.processed_rows_per_second, 1),
            "batch_ms": self.batch_ms,
            "offsets": {str(each): offset for each, offset in sorted(self.offsets.items())},
            "lag": {str(each): lag for each, lag in sorted(self.lag.items())},
            "corrupt_records": self.corrupt_records,
            "dead_letters": self.dead_letters,
            "expectations": {
                name: {"rows": count.rows, "failed": count.failed}
                for name, count in self.expectations.items()
            },
        }


def _rate(value: object) -> float:
    """Return a rate; Spark has none where no time has passed, or none that is a number."""
    return float(value) if isinstance(value, int | float) and value == value else 0.0


def _offsets(given: object) -> dict[TopicPartition, int]:
    """Return offsets that a source told: they come as a mapping, or as its JSON."""
    try:
        parsed = json.loads(given) if isinstance(given, str) else given
        return parse_offsets(parsed) if isinstance(parsed, dict) else {}
    except ValueError:
        return {}
