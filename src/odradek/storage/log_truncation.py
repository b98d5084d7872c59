"""Cuts logs so that a crash at any moment leaves the log before it, or the log after it.

A checkpoint must never be ahead of its log, so it is lowered first. The cut is synced before it
counts. Otherwise, once the log has grown again into another segment, a crash could bring back the
old records in this one and keep the new ones in that, and the replica would differ from its leader
without a trace.
"""

from odradek.storage.log_directory import StoredLog


def truncate_to(stored: StoredLog, offset: int, now_ms: int) -> bool:
    """Drop all records from ``offset`` on; return whether there were any."""
    log = stored.log
    with stored.directory.guard:
        if offset >= log.log_end_offset:
            return log.truncate_to(offset, now_ms)
        holding = log.segments.holding(offset) or log.segments[0]
        _before_truncation(stored, offset, min(holding.base_offset, offset))
        log.truncate_to(offset, now_ms)
        log.flush()
    return True


def truncate_fully_and_start_at(stored: StoredLog, offset: int, now_ms: int) -> None:
    """Drop everything; the next record gets ``offset``."""
    log = stored.log
    with stored.directory.guard:
        _before_truncation(stored, offset, min(log.segments[0].base_offset, offset))
        log.truncate_fully_and_start_at(offset, now_ms)
        log.flush()


def _before_truncation(stored: StoredLog, offset: int, recovery_point: int) -> None:
    stored.truncations += 1
    directory, log = stored.directory, stored.log
    if directory.cleaner is not None and not stored.is_future:
        directory.cleaner.on_truncated(log.partition, offset)
    directory.lower_checkpoints(
        log.partition,
        min(log.recovery_point, recovery_point),
        min(log.log_start_offset, offset),
    )
