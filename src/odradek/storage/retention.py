"""Which segments are old enough to go.

A segment goes as a whole, from the oldest on, and only below the high watermark. It goes when its
largest timestamp is older than ``retention.ms``, when the log without it is still larger than
``retention.bytes``, or when the log starts behind it. A small partition that never fills a
segment therefore keeps old records longer, until ``segment.ms`` rolls it; but when every record in
the log is too old, the active segment is rolled and goes too.
"""

from collections.abc import Callable

from odradek.storage.config import UNLIMITED
from odradek.storage.log import Log
from odradek.storage.segment import Segment


def delete_old_segments(log: Log, now_ms: int) -> int:
    """Take out of the log what its config says is too old or too much; return how many segments."""
    deleted = 0
    if log.config.delete:
        deleted += _delete_while(log, now_ms, _older_than(log, now_ms))
        deleted += _delete_while(log, now_ms, _over_size(log))
    return deleted + _delete_while(log, now_ms, _before_log_start(log))


def _older_than(log: Log, now_ms: int) -> Callable[[Segment, int], bool]:
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return lambda _segment, _end: False
    return lambda segment, _end: now_ms - segment.largest_timestamp_ms() > retention_ms


def _over_size(log: Log) -> Callable[[Segment, int], bool]:
    excess = log.segments.bytes - log.config.retention_bytes
    if log.config.retention_bytes == UNLIMITED:
        return lambda _segment, _end: False

    def is_over(segment: Segment, _end: int) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return is_over


def _before_log_start(log: Log) -> Callable[[Segment, int], bool]:
    return lambda _segment, end_offset: end_offset <= log.log_start_offset


def _delete_while(log: Log, now_ms: int, is_due: Callable[[Segment, int], bool]) -> int:
    due: list[Segment] = []
    for slot, segment in enumerate(log.segments):
        is_active = slot + 1 == len(log.segments)
        end_offset = log.log_end_offset if is_active else log.segments[slot + 1].base_offset
        # An empty active segment is what a log without records consists of.
        if (is_active and segment.size == 0) or end_offset > log.high_watermark:
            break
        if not is_due(segment, end_offset):
            break
        due.append(segment)
    if not due:
        return 0
    if due[-1] is log.segments.active:
        log.roll(now_ms)
    following = log.segments.after(due[-1])
    assert following is not None
    log.advance_log_start_offset(following.base_offset)
    log.discard(due, now_ms)
    return len(due)
