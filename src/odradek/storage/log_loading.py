"""Opening all the logs of a node when it starts.

After a clean stop a log is only looked at: a listing of its folder, the end of its last segment.
After an unclean one it is recovered. That computes, so where there is much to check, it is done by
worker processes: each opens a log, recovers it and closes it cleanly, after which opening it here
is the cheap kind. Each step finds or opens one log, so that the caller can do other things in
between; one that recovers a log by itself, or waits for processes, takes its time. Until the last
step the logs are not used.

What is not as it should be never stops the rest:

- a folder that is no log's is left alone, and reported; Kafka refuses to start;
- a ``-delete`` folder is what a stop left of a deletion; the caller removes it;
- a ``-stray`` folder is left for the operator, and reported;
- a log that cannot be opened is *failed*: it answers KAFKA_STORAGE_ERROR, and is tried again at
  the next start. If it was the disk's fault, the whole directory is offline;
- of two logs of one partition, one is taken aside as ``-stray``: that in a directory which was
  not shut down cleanly, or else the later one in the order of ``log.dirs``. Kafka refuses to start.
  A crash while a replica moves between directories leaves two, and both are whole.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from random import Random
from typing import Final, NamedTuple

from odradek.core.ids import TopicPartition, Uuid
from odradek.core.slices import Steps
from odradek.storage.disk import Disk, OsDisk
from odradek.storage.log_dir_files import read_partition_metadata
from odradek.storage.log_directory import METADATA_TOPIC, FailedLog, LogDirectory, StoredLog
from odradek.storage.log_folders import FolderKind, new_folder_name, parse_folder_name
from odradek.storage.recovery import LogSettings, RecoveryReport, open_log
from odradek.storage.recovery_loss import Loss
from odradek.storage.segment import LOG_SUFFIX
from odradek.storage.space_reserve import FULL_ERRORS

RECOVERY_INLINE_BYTES_MAX: Final = 32 << 20
"""Checked in less time than it takes to start a process."""

PROBLEMS_MAX: Final = 1000

# Errors that are about one path. Any other is about the disk.
_PATH_ERRORS: Final = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
    }
)

SettingsFor = Callable[[str], LogSettings]
IsStray = Callable[[TopicPartition, Uuid | None], bool]


class LoadingProgress(NamedTuple):
    logs: int
    """All there are to open."""
    opened: int
    failed: int
    recovered: int
    checked_bytes: int


class RecoveryTask(NamedTuple):
    """All that a worker process needs to know to recover one log."""

    partition: TopicPartition
    folder: PurePath
    settings: LogSettings
    now_ms: int
    log_start_offset: int
    recovery_point: int
    first_dirty_offset: int


def recover_folder(task: RecoveryTask) -> RecoveryReport:
    """Recover the log in a folder and close it cleanly; for a process of its own."""
    log, report = open_log(
        task.partition,
        OsDisk(),
        task.folder,
        task.settings,
        now_ms=task.now_ms,
        random=Random(0),  # noqa: S311 - only for jitter, of segments that are not made here
        clean=False,
        log_start_offset=task.log_start_offset,
        recovery_point=task.recovery_point,
        first_dirty_offset=task.first_dirty_offset,
    )
    log.close()
    return report


class _Candidate(NamedTuple):
    """A folder that should hold a log."""

    directory: LogDirectory
    folder: PurePath
    partition: TopicPartition
    is_future: bool


class LogLoading:
    """Loads the logs of several directories into ``directory.logs``, or ``directory.failed``."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[LogDirectory],
        settings_for: SettingsFor,
        *,
        now_ms: int,
        random: Random,
        processes: int = 1,
        is_stray: IsStray | None = None,
        on_progress: Callable[[LoadingProgress], None] | None = None,
    ) -> None:
        self.problems: list[str] = []
        """For the operator, one line each."""
        self.losses: list[Loss] = []
        """What recovery had to give up."""
        self.leftovers: list[tuple[LogDirectory, PurePath]] = []
        """Folders to remove."""
        self.progress = LoadingProgress(0, 0, 0, 0, 0)
        self._disk = disk
        self._directories = directories
        self._settings_for = settings_for
        self._now_ms = now_ms
        self._random = random
        self._processes = processes
        self._is_stray = is_stray
        self._on_progress = on_progress
        self._claimed: set[tuple[TopicPartition, bool]] = set()

    def run_in_steps(self) -> Iterator[None]:
        begun = [directory for directory in self._directories if self._begin(directory)]
        # Where a partition has two logs, one of them often is in a directory that was offline for a
        # while. Such a directory was not shut down cleanly, the one that went on perhaps was.
        begun.sort(key=lambda directory: directory.clean_shutdown is None)
        candidates: list[_Candidate] = []
        for directory in begun:
            try:
                for candidate in self._find_candidates(directory):
                    candidates.append(candidate)
                    yield
            except OSError as error:
                self._take_offline(directory, error)
        self._note(logs=len(candidates))
        recovered = yield from self._recover_in_processes(candidates)
        for candidate in candidates:
            yield
            if candidate.directory.is_online and candidate.partition not in (
                candidate.directory.failed
            ):
                self._open(candidate, is_recovered=candidate.folder in recovered)

    def _begin(self, directory: LogDirectory) -> bool:
        try:
            if directory.is_online:
                for problem in directory.begin_loading():
                    self._report(problem)
        except OSError as error:
            self._take_offline(directory, error)
        return directory.is_online

    # Finding.

    def _find_candidates(self, directory: LogDirectory) -> Iterator[_Candidate]:
        for name in self._disk.names(directory.path):
            folder = directory.path / name
            if not self._disk.is_folder(folder):
                continue
            parsed = parse_folder_name(name)
            if parsed is None:
                self._report(f"{folder} is not the folder of a log; left alone")
            elif parsed.kind is FolderKind.DELETE:
                self.leftovers.append((directory, folder))
            elif parsed.kind is FolderKind.STRAY:
                self._report(f"{folder} was taken aside; move it away, or remove it")
            elif parsed.partition.topic != METADATA_TOPIC:
                is_future = parsed.kind is FolderKind.FUTURE
                candidate = _Candidate(directory, folder, parsed.partition, is_future)
                if self._claim(candidate):
                    yield candidate

    def _claim(self, candidate: _Candidate) -> bool:
        """Return whether it is the first of its kind, and take it aside if not."""
        partition, directory = candidate.partition, candidate.directory
        has_current = (partition, False) in self._claimed and self._disk.is_folder(
            directory.path / str(partition)
        )
        claim = partition, candidate.is_future
        if claim in self._claimed or (candidate.is_future and has_current):
            self._take_aside(candidate, "there is another log of this partition")
            return False
        self._claimed.add(claim)
        return True

    def _take_aside(self, candidate: _Candidate, reason: str) -> None:
        name = new_folder_name(candidate.partition, FolderKind.STRAY, self._random)
        self._disk.rename(candidate.folder, candidate.folder.with_name(name))
        self._report(f"{candidate.folder}: {reason}; renamed to {name}")

    # Recovering.

    def _recover_in_processes(self, candidates: Sequence[_Candidate]) -> Steps[set[PurePath]]:
        """Let other processes recover logs; return the folders that can be opened cleanly now."""
        if self._processes < 2 or not isinstance(self._disk, OsDisk):
            return set()
        unclean = [c for c in candidates if c.directory.clean_shutdown is None]
        unchecked_bytes = 0
        for candidate in unclean:
            yield
            unchecked_bytes += self._unchecked_bytes(candidate)
        if unchecked_bytes <= RECOVERY_INLINE_BYTES_MAX:
            return set()
        # Imported for those who have much to recover: it takes several milliseconds.
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context

        recovered: set[PurePath] = set()
        directories = len({candidate.directory.path for candidate in unclean})
        # Not forked: this process may have threads, and a fork of their locks can hang.
        with ProcessPoolExecutor(
            min(self._processes * directories, len(unclean)), mp_context=get_context("spawn")
        ) as pool:
            running = {pool.submit(recover_folder, self._task(c)): c for c in unclean}
            for future in as_completed(running):
                candidate = running[future]
                try:
                    report = future.result()
                except BrokenProcessPool:
                    continue  # killed, perhaps for want of memory; it is recovered here instead
                except Exception as error:
                    self._fail(candidate, error)
                else:
                    recovered.add(candidate.folder)
                    self._note_recovery(report)
        return recovered

    def _unchecked_bytes(self, candidate: _Candidate) -> int:
        try:
            names = [n for n in self._disk.names(candidate.folder) if n.endswith(LOG_SUFFIX)]
            last = names[-1:]  # mostly the only one past the recovery point
            return sum(self._disk.size(candidate.folder / name) for name in last)
        except OSError:
            return 0  # opening it will fail too, and say so

    def _task(self, candidate: _Candidate) -> RecoveryTask:
        directory, partition = candidate.directory, candidate.partition
        return RecoveryTask(
            partition,
            candidate.folder,
            self._settings_for(partition.topic),
            self._now_ms,
            log_start_offset=directory.log_starts.written.get(partition, 0),
            recovery_point=directory.recovery_points.written.get(partition, 0),
            first_dirty_offset=directory.cleaner_offsets.get(partition, 0),
        )

    # Opening.

    def _open(self, candidate: _Candidate, *, is_recovered: bool) -> None:
        directory = candidate.directory
        try:
            topic_id = read_partition_metadata(self._disk, candidate.folder)
            if self._is_stray is not None and self._is_stray(candidate.partition, topic_id):
                self._take_aside(candidate, f"no log of topic id {topic_id} belongs on this node")
                return
            clean = is_recovered or directory.clean_shutdown is not None
            task = self._task(candidate)
            log, report = open_log(
                task.partition,
                self._disk,
                task.folder,
                task.settings,
                now_ms=self._now_ms,
                random=self._random,
                clean=clean,
                log_start_offset=task.log_start_offset,
                recovery_point=task.recovery_point,
                first_dirty_offset=task.first_dirty_offset,
            )
            log.update_high_watermark(directory.high_watermarks.written.get(task.partition, 0))
        except Exception as error:  # bad bytes may find a bug of ours; the others must go on
            if isinstance(error, OSError) and directory.reserve.make_room(error):
                self._open(candidate, is_recovered=is_recovered)
            else:
                self._fail(candidate, error)
            return
        stored = StoredLog(log, directory, topic_id, is_future=candidate.is_future)
        directory.logs[candidate.partition] = stored
        if not clean:
            self._note_recovery(report)
        self._note(opened=self.progress.opened + 1)

    def _fail(self, candidate: _Candidate, error: Exception) -> None:
        directory, folder = candidate.directory, candidate.folder
        if isinstance(error, OSError) and error.errno not in _PATH_ERRORS | FULL_ERRORS:
            self._take_offline(directory, error)
            return
        if isinstance(error, OSError) and error.errno in FULL_ERRORS:
            directory.on_io_error(error)
        reason = f"{folder} cannot be opened: {type(error).__name__}: {error}"
        directory.failed[candidate.partition] = FailedLog(folder, reason, candidate.is_future)
        self._report(reason)
        self._note(failed=self.progress.failed + 1)

    def _take_offline(self, directory: LogDirectory, error: OSError) -> None:
        if directory.is_online:
            self._report(f"{directory.path} is offline: {error}")
        directory.fail(error)

    # Reporting.

    def _report(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def _note_recovery(self, report: RecoveryReport) -> None:
        if report.loss is not None and len(self.losses) < PROBLEMS_MAX:
            self.losses.append(report.loss)
        self._note(
            recovered=self.progress.recovered + 1,
            checked_bytes=self.progress.checked_bytes + report.checked_bytes,
        )

    def _note(self, **changes: int) -> None:
        self.progress = self.progress._replace(**changes)
        if self._on_progress is not None:
            self._on_progress(self.progress)
