"""Work of the log store that waits for the disk, and therefore belongs in other threads."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath

from odradek.storage.checkpoint_file import CheckpointWrite, disk_for_thread
from odradek.storage.config import LONG_MAX
from odradek.storage.flush_plan import FlushPlan
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory, StoredLog


class WorkCount:
    """How much work was handed out and is not done yet."""

    def __init__(self) -> None:
        self.under_way = 0


class Work:
    """A piece of work: ``run`` it in any thread, then tell ``done`` what it raised, if anything."""

    def __init__(self, count: WorkCount, directory: LogDirectory) -> None:
        self.directory = directory
        self._count = count
        count.under_way += 1

    def run(self) -> None:
        raise NotImplementedError

    def done(self, error: BaseException | None, now_ms: int) -> None:
        """Take note of the outcome; on the owner's thread, once.

        ``now_ms`` is the store's own time, by which its deadlines go.
        """
        self._count.under_way -= 1
        if error is None:
            self._apply(now_ms)
        elif isinstance(error, OSError):
            self._on_io_error(error)
        else:
            raise error

    def _apply(self, now_ms: int) -> None:
        """Take note of success."""

    def _on_io_error(self, error: OSError) -> None:
        self.directory.on_io_error(error)


class FlushWork(Work):
    """Syncs files of a log. If that fails, nothing more than before counts as flushed."""

    def __init__(self, count: WorkCount, stored: StoredLog, plan: FlushPlan) -> None:
        super().__init__(count, stored.directory)
        self.plan = plan
        self._stored = stored
        self._log = stored.log
        self._truncations = stored.truncations
        stored.is_flushing = True

    def run(self) -> None:
        self.plan.run()

    @property
    def _is_current(self) -> bool:
        """Whether the log is still where it was, and was not cut since the plan was made."""
        stored = self._stored
        return (
            self.directory.logs.get(self._log.partition) is stored
            and stored.log is self._log
            and stored.truncations == self._truncations
        )

    def done(self, error: BaseException | None, now_ms: int) -> None:
        self._stored.is_flushing = False
        super().done(error, now_ms)

    def _apply(self, now_ms: int) -> None:
        if self._is_current:
            self._log.on_flushed(self.plan)
            self._stored.last_flush_ms = now_ms

    def _on_io_error(self, error: OSError) -> None:
        # The folder of a log that was deleted or moved meanwhile is not there under its old name.
        if self._is_current or not isinstance(error, FileNotFoundError):
            self.directory.on_io_error(error)


class CheckpointWork(Work):
    def __init__(self, count: WorkCount, directory: LogDirectory, plan: CheckpointWrite) -> None:
        super().__init__(count, directory)
        self.plan = plan

    def run(self) -> None:
        self.plan.run()

    def _apply(self, now_ms: int) -> None:  # noqa: ARG002
        self.plan.file.on_written(self.plan)

    def _on_io_error(self, error: OSError) -> None:
        self.plan.file.on_failed(self.plan)
        super()._on_io_error(error)


class SpaceProbe(Work):
    """Finds out whether a full directory has space again."""

    def run(self) -> None:
        self.directory.reserve.probe()

    def done(self, error: BaseException | None, now_ms: int) -> None:
        self.directory.is_probing = False
        super().done(error, now_ms)

    def _apply(self, now_ms: int) -> None:  # noqa: ARG002
        self.directory.shortage = None


class RemovalWork(Work):
    """Removes files and folders that nothing refers to any more."""

    def __init__(
        self,
        count: WorkCount,
        directory: LogDirectory,
        *,
        files: Sequence[PurePath] = (),
        folders: Sequence[PurePath] = (),
    ) -> None:
        super().__init__(count, directory)
        self.files = files
        self.folders = folders

    def run(self) -> None:
        disk = disk_for_thread(self.directory.disk)
        for path in self.files:
            disk.remove(path)
        for path in self.folders:
            # The folder's new name comes first: a crash must not bring back the log it was, with
            # half of its files.
            disk.sync_folder(path.parent)
            disk.remove_folder(path)


def next_flush(stored: StoredLog, now_ms: int) -> FlushPlan | None:
    """Plan the flush that is due, if one is.

    Without a ``flush.ms`` only closed segments are synced, soon after they were closed, so that
    the recovery point follows the log and a recovery never has much to check.
    """
    log = stored.log
    flush_ms = log.config.flush_ms
    if flush_ms != LONG_MAX:
        return log.plan_flush() if now_ms - stored.last_flush_ms >= flush_ms else None
    is_rolled = log.segments.active.base_offset > log.recovery_point
    return log.plan_flush(is_active_left_out=True) if is_rolled else None


def release_files(log: Log) -> None:
    """Close a log's files as they are; whatever its disk says to that."""
    for segment in log.segments:
        with suppress(OSError):
            segment.close()
