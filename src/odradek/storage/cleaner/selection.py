"""Which log to clean next, and how far.

A log is clean up to the offset in the checkpoint. It may be cleaned up to, and not including, the
first segment that

- is the active one,
- holds or follows the last stable offset, because what is behind it is not decided, or
- has a record younger than ``min.compaction.lag.ms``.

The dirty ratio is the share of the bytes up to there that are dirty. A log is due when its ratio is
above ``min.cleanable.dirty.ratio``, or when its oldest dirty record is older than
``max.compaction.lag.ms``. Of those that are due the one with the highest ratio is next.

A checkpoint that is not within the log means that the log was deleted from or cut without it: then
all of the log is dirty. It must be replaced at once. Say it is 500 and a crash left the log with
100 records: once the log has 600, the checkpoint would pass for a good one.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.core.ids import TopicPartition
from odradek.storage.log import Log


class LogToClean(NamedTuple):
    log: Log
    first_dirty_offset: int
    upper_bound_offset: int
    """Where the first segment begins that may not be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    """Of what may be cleaned; a segment that is partly clean counts for both."""
    is_overdue: bool
    """Some of it has waited for longer than ``max.compaction.lag.ms``."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.is_overdue and self.dirty_bytes:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def select(
    logs: Iterable[Log],
    checkpoint: Mapping[TopicPartition, int],
    now_ms: int,
    *,
    excluded: Collection[TopicPartition] = (),
) -> LogToClean | None:
    """Return the filthiest log that is due; ``excluded`` are being cleaned or cannot be."""
    due = [
        candidate
        for log in logs
        if log.config.compact and log.partition not in excluded
        if (candidate := inspect(log, checkpoint.get(log.partition), now_ms)).is_due
    ]
    return max(due, key=lambda candidate: candidate.dirty_ratio, default=None)


def mended(
    logs: Iterable[Log], checkpoint: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the checkpoint with the offsets that are not within their log replaced."""
    result = dict(checkpoint)
    for log in logs:
        offset = result.get(log.partition, log.log_start_offset)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            result[log.partition] = log.log_start_offset
    return result


def after_cut(
    checkpoint: Mapping[TopicPartition, int], partition: TopicPartition, offset: int
) -> dict[TopicPartition, int]:
    """Return the checkpoint for when a log was cut at ``offset``.

    If that takes away some of the clean part, all of the log is dirty: a cut within a batch takes
    all of it, so who knows where the log ends now, and it happens once in a blue moon.
    """
    result = dict(checkpoint)
    if result.get(partition, 0) > offset:
        del result[partition]
    return result


def inspect(log: Log, checkpoint_offset: int | None, now_ms: int) -> LogToClean:
    """Return how dirty a log is; the offset is None if it was never cleaned."""
    first_dirty_offset = log.log_start_offset
    if checkpoint_offset is not None and (
        log.log_start_offset <= checkpoint_offset <= log.log_end_offset
    ):
        first_dirty_offset = checkpoint_offset
    bound = _upper_bound(log, first_dirty_offset, now_ms)
    sizes = [(segment.base_offset, segment.size) for segment in log.segments]
    first_dirty_base = _base_of_segment_with(log, first_dirty_offset)
    return LogToClean(
        log,
        first_dirty_offset,
        bound,
        clean_bytes=sum(size for base, size in sizes if base < first_dirty_offset),
        dirty_bytes=sum(size for base, size in sizes if first_dirty_base <= base < bound),
        is_overdue=_is_overdue(log, first_dirty_base, now_ms),
    )


def _base_of_segment_with(log: Log, offset: int) -> int:
    segment = log.segments.holding(offset)
    return log.segments[0].base_offset if segment is None else segment.base_offset


def _upper_bound(log: Log, first_dirty_offset: int, now_ms: int) -> int:
    """Return the base offset of the first segment that may not be cleaned."""
    active = log.segments.active
    bound = min(active.base_offset, _base_of_segment_with(log, log.last_stable_offset))
    youngest_ms = now_ms - log.config.min_compaction_lag_ms
    if log.config.min_compaction_lag_ms > 0:
        first_dirty_base = _base_of_segment_with(log, first_dirty_offset)
        for segment in log.segments:
            if segment.base_offset >= bound:
                break
            if segment.base_offset < first_dirty_base:
                continue
            if segment.largest_timestamp_ms() > youngest_ms:
                return segment.base_offset
    return bound


def _is_overdue(log: Log, first_dirty_base: int, now_ms: int) -> bool:
    oldest_ms = now_ms - max(log.config.max_compaction_lag_ms, 0)
    if oldest_ms <= 0:
        return False
    return any(
        0 < segment.first_timestamp < oldest_ms
        for segment in log.segments
        if segment.base_offset >= first_dirty_base and segment is not log.segments.active
    )
