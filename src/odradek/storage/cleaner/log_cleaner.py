"""Keeps the logs of one log directory clean: chooses, hands out the work, takes the result in.

For the owner of the logs, on its thread::

    cleaner.mend_checkpoint(logs)                          # once, before anything is appended
    to_clean = cleaner.select(logs, now_ms)
    future = cleaner.start_cleaning(to_clean, now_ms)
    # later, when the future is done and back on this thread
    plan = cleaner.on_cleaned(partition, future, now_ms)   # swaps; a few renames
    # in a thread that may wait for the disk, one plan after the other
    plan.run()

While a log is being cleaned it is read and appended to as ever. If it is truncated, deleted or
moved meanwhile, tell the cleaner first; the result is thrown away then. Retention waits
(``may_delete``): both take segments from the start of the log.

A log that cannot be cleaned is set aside until the broker starts again, so that the others are.
"""

from collections.abc import Collection, Iterable
from concurrent.futures import Future
from pathlib import PurePath
from typing import NamedTuple

from odradek.core.ids import TopicPartition
from odradek.storage.checkpoints import (
    CLEANER_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from odradek.storage.cleaner.cleaning import remove_cleaned_files
from odradek.storage.cleaner.selection import LogToClean, after_cut, mended, select
from odradek.storage.cleaner.swap import SwapPlan, can_swap, swap_all
from odradek.storage.cleaner.task import (
    CleanerSettings,
    CleaningResult,
    CleaningTask,
    plan_cleaning,
)
from odradek.storage.cleaner.worker import Submit
from odradek.storage.disk import Disk
from odradek.storage.log import Log


class _Cleaning(NamedTuple):
    log: Log
    task: CleaningTask


class LogCleaner:
    def __init__(
        self, disk: Disk, log_dir: PurePath, submit: Submit, settings: CleanerSettings
    ) -> None:
        self.settings = settings
        self._disk = disk
        self._submit = submit
        self._path = log_dir / CLEANER_CHECKPOINT
        # Durable: the checkpoint. All else is forgotten with the process.
        self.checkpoint = read_offset_checkpoint(disk, self._path)
        self.uncleanable: dict[TopicPartition, BaseException] = {}
        self._in_progress: dict[TopicPartition, _Cleaning] = {}
        self._abandoned: set[TopicPartition] = set()

    def select(self, logs: Iterable[Log], now_ms: int) -> LogToClean | None:
        """Return the log to clean next, if one is due."""
        logs = list(logs)
        self.mend_checkpoint(logs)
        excluded = self._in_progress.keys() | self.uncleanable.keys()
        return select(logs, self.checkpoint, now_ms, excluded=excluded)

    def mend_checkpoint(self, logs: Iterable[Log]) -> None:
        """Replace the offsets that are not within their log, on disk too."""
        self._write_checkpoint(mended(logs, self.checkpoint))

    def _write_checkpoint(self, checkpoint: dict[TopicPartition, int]) -> None:
        if checkpoint != self.checkpoint:
            write_offset_checkpoint(self._disk, self._path, checkpoint)
            self.checkpoint = checkpoint

    def may_delete(self, partition: TopicPartition) -> bool:
        """Whether retention may take segments from a log now."""
        return partition not in self._in_progress

    def start_cleaning(self, to_clean: LogToClean, now_ms: int) -> Future[CleaningResult]:
        log = to_clean.log
        assert log.partition not in self._in_progress
        task = plan_cleaning(to_clean, self.settings, now_ms=now_ms)
        future = self._submit(task)
        self._in_progress[log.partition] = _Cleaning(log, task)
        return future

    def on_cleaned(
        self, partition: TopicPartition, future: Future[CleaningResult], now_ms: int
    ) -> SwapPlan | None:
        """Take in what became of a cleaning; None if the log stays as it is."""
        log, task = self._in_progress.pop(partition)
        is_abandoned = partition in self._abandoned
        self._abandoned.discard(partition)
        error = future.exception()
        if error is not None:
            if not is_abandoned:
                self.uncleanable[partition] = error
            return None
        result = future.result()
        if is_abandoned or not can_swap(log, result):
            remove_cleaned_files(self._disk, task)
            return None
        swap_all(log, result, now_ms)
        self.checkpoint[partition] = result.clean_end_offset
        return SwapPlan(self._disk, log.folder, self._path, dict(self.checkpoint))

    def on_truncated(self, partition: TopicPartition, offset: int) -> None:
        """Take note that a log is about to be cut; what is cut off is dirty when it comes again."""
        self.abandon(partition)
        self._write_checkpoint(after_cut(self.checkpoint, partition, offset))

    def abandon(self, partition: TopicPartition) -> None:
        """Throw away what is being made of a log."""
        if partition in self._in_progress:
            self._abandoned.add(partition)

    def retain(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all logs but these: the others were deleted or moved."""
        for gone in self.checkpoint.keys() - set(partitions):
            del self.checkpoint[gone]
            self.abandon(gone)
        for gone in self.uncleanable.keys() - set(partitions):
            del self.uncleanable[gone]
