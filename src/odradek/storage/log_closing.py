"""Closes the logs of a directory for a clean stop: all synced, indexes trimmed, state saved.

Threads sync side by side. A log to which nothing was written since the start has nothing to trim
and nothing to sync: ten thousand of them take a moment. One whose records are synced already needs
no sync for its trimmed indexes: if they are not on disk, the next start makes them anew.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from odradek.storage.disk import Disk, OsDisk
from odradek.storage.flush_plan import FlushPlan
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory

THREADS_MIN: Final = 8
"""Fewer would wait one after the other for what a file system commits at once."""


def close_logs(disk: Disk, directory: LogDirectory, *, threads: int) -> None:
    plans: list[tuple[Log, FlushPlan]] = []
    for stored in directory.logs.values():
        plan = _closed_with_reserve(directory, stored.log)
        if plan is not None:
            plans.append((stored.log, plan))
    if threads > 1 and len(plans) > 1 and isinstance(disk, OsDisk):
        with ThreadPoolExecutor(min(max(threads, THREADS_MIN), len(plans))) as pool:
            list(pool.map(lambda closing: closing[1].run(), plans))
    else:
        for _, plan in plans:
            plan.run()
    for log, plan in plans:
        log.on_flushed(plan)


def _closed_with_reserve(directory: LogDirectory, log: Log) -> FlushPlan | None:
    while True:
        try:
            return _closed(log)
        except OSError as error:
            if not directory.reserve.make_room(error):
                raise


def _closed(log: Log) -> FlushPlan | None:
    """Close a log's files; return what to sync, None if all is synced already."""
    # Not synced: its checksum finds a torn one, and the state is rebuilt from the batches.
    log.producer_states.take_snapshot(sync=False)
    for segment in log.segments:
        segment.close(trim=segment is log.segments.active)
    if log.log_end_offset <= log.recovery_point:
        return None
    return log.plan_flush()
