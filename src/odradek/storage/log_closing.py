"""Closes the logs of a directory for a clean stop: all synced, indexes trimmed, state saved.

Threads sync side by side. An idle log needs no sync: its records are on disk, and if its trimmed
indexes are not, the next start notices and makes them anew. So ten thousand of them take seconds.
"""

from concurrent.futures import ThreadPoolExecutor

from odradek.storage.disk import Disk, OsDisk
from odradek.storage.flush_plan import FlushPlan
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory


def close_logs(disk: Disk, directory: LogDirectory, now_ms: int, *, threads: int) -> None:
    plans: list[tuple[Log, FlushPlan]] = []
    for stored in directory.logs.values():
        plan = _closed(stored.log)
        if plan is not None:
            plans.append((stored.log, plan))
    if threads > 1 and len(plans) > 1 and isinstance(disk, OsDisk):
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda closing: closing[1].run(), plans))
    else:
        for _, plan in plans:
            plan.run()
    for log, plan in plans:
        log.on_flushed(plan, now_ms)


def _closed(log: Log) -> FlushPlan | None:
    """Close a log's files; return what to sync, None if all is synced already."""
    snapshot = log.producer_states.take_snapshot(sync=False)
    for segment in log.segments:
        segment.close(trim=segment is log.segments.active)
    if snapshot is None and log.log_end_offset <= log.recovery_point:
        return None
    plan = log.plan_flush()
    paths = plan.paths if snapshot is None else [*plan.paths, snapshot]
    return plan._replace(folder=log.folder, paths=paths)
