"""How far the queries of a pipeline are, from what Spark tells of its micro-batches. Pure.

Rates, lag and times are those of the last batch, counts are since the epoch began (``totals``). An
expectation on a step that several sinks use is counted by each of them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.core.ids import TopicPartition
from odradek.spark.offsets import parse_offsets
from odradek.spark.pipeline.expectations import ROWS, SOURCE_COUNT
from odradek.spark.pipeline.totals import Totals

Progress = Mapping[str, Any]


@dataclass
class QueryProgress:
    """One query, since it was started; its totals are older."""

    query: str
    totals: Totals = field(default_factory=Totals)
    last_batch: int | None = None
    input_rows_per_second: float = 0.0
    processed_rows_per_second: float = 0.0
    batch_ms: int = 0
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    lag: dict[TopicPartition, int] = field(default_factory=dict)
    """Of partitions whose end is known."""
    _last_seen: str = ""

    def take(self, recent: Iterable[Progress]) -> bool:
        """Take what is new of the progress that Spark remembers, oldest first."""
        is_new = False
        for progress in recent:
            # ISO times of one length are in the order of their texts.
            moment = f"{progress['timestamp']} {progress['batchId']:019}"
            if moment > self._last_seen:
                self._last_seen = moment
                self._take_one(progress)
                is_new = True
        return is_new

    @property
    def total_lag(self) -> int | None:
        """None: nobody has said where the partitions end."""
        return sum(self.lag.values()) if self.lag else None

    @property
    def needs_ends(self) -> bool:
        """Spark repeats a batch of an earlier run without asking its source for what is new."""
        return bool(self.offsets) and not self.lag

    def measure(self, ends: Mapping[TopicPartition, int]) -> None:
        """Take the lag from where partitions end."""
        self.lag = {
            each: max(0, ends[each] - offset)
            for each, offset in self.offsets.items()
            if each in ends
        }

    def _take_one(self, progress: Progress) -> None:
        observed = progress.get("observedMetrics") or {}
        read = int(progress.get("numInputRows") or 0)
        rows = int(observed[SOURCE_COUNT].get(ROWS) or 0) if SOURCE_COUNT in observed else read
        # A query that reads its source several times over is not faster for that.
        share = rows / read if read else 1.0
        self.input_rows_per_second = share * _rate(progress.get("inputRowsPerSecond"))
        self.processed_rows_per_second = share * _rate(progress.get("processedRowsPerSecond"))
        for source in progress.get("sources") or ():
            self._locate(source)
        durations = progress.get("durationMs") or {}
        # Without a batch Spark tells every ten seconds that it is there.
        if "addBatch" in durations:
            self.last_batch = int(progress["batchId"])
            self.batch_ms = int(durations.get("triggerExecution", 0))
            self.totals = self.totals.of_query(str(progress["id"]))
            self.totals.count_batch(self.last_batch, rows, observed)

    def _locate(self, source: Mapping[str, Any]) -> None:
        ends = _offsets(source.get("endOffset"))
        if ends:
            self.offsets = ends
            self.measure(_offsets(source.get("latestOffset")))

    def as_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "last_batch": self.last_batch,
            "input_rows_per_second": round(self.input_rows_per_second, 1),
            "processed_rows_per_second": round(self.processed_rows_per_second, 1),
            "batch_ms": self.batch_ms,
            "offsets": {str(each): offset for each, offset in sorted(self.offsets.items())},
            "lag": {str(each): lag for each, lag in sorted(self.lag.items())},
            **self.totals.as_json(),
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
