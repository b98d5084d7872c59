"""Micro-batches: where a stream is, how far it may go, and what it has done.

Spark asks for the latest offset again as soon as it was told that there is nothing new, some 85
times a second. So the answer waits, up to ``kafka.fetch.max.wait.ms`` (500), for a record to come,
and is given at once when one does.

``minOffsetsPerTrigger`` and ``maxOffsetsPerTrigger`` can both be set, but Spark knows no limit of
both kinds from Python: the least is looked after here, whatever limit Spark gives, except where it
asks for everything, and where the stream ends by itself (``Trigger.AvailableNow``).

Spark asks for the initial offset twice before the first batch is done, to find its end and then to
plan it, and once more in the next run if that batch was interrupted: it keeps where a batch ends,
which is where the next one begins. ``latest`` has moved on by then, and a Python source has no
place of its own in the checkpoint. So a partition that begins at ``latest`` has nothing in the
first batch: the end that is kept is its beginning, too. A batch that is planned without having been
asked for is that one from an earlier run; all that came since is in the next.

``commitOffsetsToGroup`` commits what has been processed to a group, for others to see the lag by.
Spark does not tell of the last batch of ``Trigger.AvailableNow``; but it asks once more for what is
new, with the offsets it got to, and that is when it is committed. The stream itself never reads
those offsets, so a failure to commit them is logged and no more.
"""

import logging
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.spark.offsets import (
    AtTimestamp,
    AtTimestamps,
    Offsets,
    limit_by_rate,
    offsets_json,
    parse_offsets,
)
from odradek.spark.options import SourceOptions, check_for_stream
from odradek.spark.planning import Planner
from odradek.spark.rows import read_rows

_log = logging.getLogger(__name__)

OffsetsJson = dict[str, dict[str, int]]


class OdradekStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process on the driver; a copy of it reads in every task."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        """Check the options; nothing is asked of a broker yet."""
        check_for_stream(options)
        self._options = options
        self._schema = schema
        self._planner = Planner(options)
        self._initial: OffsetsJson | None = None
        self._at_latest: set[TopicPartition] = set()
        self._is_first = True
        self._last_trigger_ms: int | None = None
        self._is_available_now = False
        self._target: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    def initialOffset(self) -> OffsetsJson:  # noqa: N802
        if self._initial is None:
            starting = self._options.starting_for_stream
            found, self._at_latest = self._planner.resolve_start(starting, "startingOffsets")
            self._initial = offsets_json(found)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets_json(self._latest) or None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetsJson:  # noqa: N802
        starts = parse_offsets(start)
        is_first, self._is_first = self._is_first and start == self._initial, False
        self._commit(starts)
        if is_first and self._at_latest:
            ends = self._first_ends(starts)
        elif self._is_available_now:
            ends = self._ends_for_available_now(starts)
        else:
            ends = self._ends(starts, limit)
        if isinstance(limit, ReadMaxRows):
            new = ends.keys() - starts.keys()
            begins = {**starts, **(self._planner.earliest(new) if new else {})}
            ends = limit_by_rate(limit.max_rows, begins, ends)
        return offsets_json(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        starts, ends = parse_offsets(start), parse_offsets(end)
        if self._is_first and start == self._initial:
            starts = self._starts_of_interrupted(starts, ends)
        ranges = self._planner.stream_ranges(starts, ends)
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(self._options, self._schema, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(parse_offsets(end))

    # The first batch.

    def _first_ends(self, starts: Offsets) -> dict[TopicPartition, int]:
        """Return the ends of the first batch: there is no waiting for what is not to be in it."""
        fixed = starts.keys() - self._at_latest
        self._latest = self._planner.latest(starts) if fixed else dict(starts)
        return {p: end for p, end in self._latest.items() if p in fixed} | {
            p: starts[p] for p in self._at_latest
        }

    def _starts_of_interrupted(self, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        """Return where the first batch began when it was planned; partitions may be newer."""
        limit = self._options.starting_for_stream
        # Where there was no record of that time yet, there may be one now, behind that batch.
        may_be_later = isinstance(limit, AtTimestamp | AtTimestamps) and limit.or_latest
        begins = {p: start for p, start in starts.items() if p in ends}
        for partition, start in begins.items():
            if partition in self._at_latest or (may_be_later and start > ends[partition]):
                begins[partition] = ends[partition]
        return begins

    # How far to go.

    def _ends_for_available_now(self, starts: Offsets) -> dict[TopicPartition, int]:
        """Return the ends of the first call: what comes later is for the next run."""
        if self._target is None:
            self._target = self._latest = self._planner.latest(starts)
        return self._target

    def _ends(self, starts: Offsets, limit: ReadLimit) -> dict[TopicPartition, int]:
        """Return the ends, once they are worth a batch or the waiting is over."""
        access = self._planner.access
        wait_ms = access.settings.integer("fetch.max.wait.ms")
        deadline_ms = _now_ms() + wait_ms
        while True:
            ends = self._latest = self._planner.latest(starts)
            is_due = self._is_due(starts, ends, limit)
            left_ms = deadline_ms - _now_ms()
            if is_due or left_ms <= 0:
                return ends if is_due else dict(starts)
            access.wait_for_records(ends, left_ms)

    def _is_due(self, starts: Offsets, ends: Offsets, limit: ReadLimit) -> bool:
        if ends == starts:
            return False
        least = self._options.offsets_per_trigger_min
        if least is None or isinstance(limit, ReadAllAvailable):
            return True
        now_ms = _now_ms()
        last_ms = self._last_trigger_ms
        count = sum(end - starts.get(partition, 0) for partition, end in ends.items())
        is_late = last_ms is None or now_ms - last_ms >= self._options.trigger_delay_max_ms
        if count < least and not is_late:
            return False
        self._last_trigger_ms = now_ms
        return True

    def _commit(self, processed: dict[TopicPartition, int]) -> None:
        group = self._options.commit_group
        if group is None or not processed or processed == self._committed:
            return
        try:
            self._planner.access.commit(group, processed)
        except KafkaError as error:
            _log.warning("offsets are not committed to group %s: %s", group, error)
            return
        self._committed = processed


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
