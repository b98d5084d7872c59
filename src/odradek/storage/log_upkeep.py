"""What has to be done for logs from time to time, although nobody asks for it.

::

    retention            every log.retention.check.interval.ms: old segments out of the logs
    producers            every producer.id.expiration.check.interval.ms: idle ones forgotten
    flushing, removing   every second, or more often for a small flush.ms: what is due, and the
                         segments that were closed since; files of segments that were discarded
    checkpoints          high watermarks every replica.high.watermark.checkpoint.interval.ms,
                         recovery points and log starts every log.flush.(start.)offset.checkpoint.
                         interval.ms
    deleted folders      when they are due
    space                every second while a directory is full: whether it has some again

Two clocks: when something is due again goes by the steady one (``monotonic_ms``), or a wall clock
that is set back would stop all upkeep for as long as the step; how old records and producers are
goes by the wall clock, which ``tick`` is told, because their own times do.

What waits for the disk goes out as ``Work`` for other threads. Ten thousand logs are not looked at
in one go, because clients would feel it: a pass over all of them takes as many ticks as there are
slices. A pass goes by the logs there were when it began.

Only so much work is under way at a time. Past ``WORK_MAX`` nothing new is handed out until some
of it is done, so ``tick`` again after each ``done``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.core.clock import Instant
from odradek.core.errors import ApiError
from odradek.storage.checkpoint_file import CheckpointFile, CheckpointWrite, Offsets
from odradek.storage.config import LONG_MAX
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory, StoredLog
from odradek.storage.log_work import (
    CheckpointWork,
    FlushWork,
    RemovalWork,
    SpaceProbe,
    Work,
    WorkCount,
    next_flush,
    release_files,
)
from odradek.storage.retention import delete_old_segments

NEVER_MS: Final = LONG_MAX
AT_ONCE_MS: Final = 0
WORK_MAX: Final = 64
REMOVALS_MAX: Final = 10_000
"""Folders that wait to be removed; past this many the first of them do not wait any longer."""

FLUSH_CHECK_MS: Final = 1000
FLUSH_CHECK_MS_MIN: Final = 10
SPACE_CHECK_MS: Final = 1000

# How many logs one tick looks at. Retention may have to read the end of a time index.
_RETENTION_LOGS_MAX: Final = 20
_PRODUCERS_LOGS_MAX: Final = 100
_FLUSH_LOGS_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The settings of all logs together, in Kafka's names and with Kafka's defaults."""

    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_initial_task_delay_ms: int = 30_000
    log_retention_check_interval_ms: int = 300_000
    num_recovery_threads_per_data_dir: int = 2
    """Here: processes that recover logs, and threads that sync them when the node stops."""
    producer_id_expiration_check_interval_ms: int = 600_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000


class _Removal(NamedTuple):
    due_ms: int
    number: int  # so that no two compare equal and the rest is never compared
    directory: LogDirectory
    folder: PurePath

    def hurried(self, now_ms: int) -> "_Removal":
        """Return it as due, if its directory needs the space now."""
        return self._replace(due_ms=now_ms) if self.directory.is_full else self


class _Round:
    """A pass over all logs, every so often and a slice at a time."""

    def __init__(self, interval_ms: int, logs_max: int, deadline_ms: int) -> None:
        self.interval_ms = interval_ms
        self.logs_max = logs_max
        self.deadline_ms = deadline_ms
        self._left: list[StoredLog] = []

    def take_slice(self, now_ms: int, all_logs: Callable[[], list[StoredLog]]) -> list[StoredLog]:
        if not self._left and now_ms >= self.deadline_ms:
            self._left = all_logs()
            self.deadline_ms = now_ms + self.interval_ms
        taken, self._left = self._left[-self.logs_max :], self._left[: -self.logs_max]
        return taken

    def put_back(self, logs: Sequence[StoredLog]) -> None:
        self._left += logs

    def next_deadline_ms(self) -> int:
        return AT_ONCE_MS if self._left else self.deadline_ms


class _Checkpoint:
    """Writes one checkpoint file of a directory again and again."""

    def __init__(
        self,
        directory: LogDirectory,
        file: CheckpointFile,
        offsets: Callable[[], Offsets],
        interval_ms: int,
        deadline_ms: int,
    ) -> None:
        self.directory = directory
        self.deadline_ms = deadline_ms
        self._file = file
        self._offsets = offsets
        self._interval_ms = interval_ms

    def next_deadline_ms(self) -> int:
        # While it is written, the next write waits for that one to be done.
        is_waiting = self._file.is_writing or not self.directory.is_online
        return NEVER_MS if is_waiting else self.deadline_ms

    def next_write(self, now_ms: int) -> CheckpointWrite | None:
        """Plan to write it; None if the file would be the same."""
        # An interval of 0 means once, as for every task of Kafka's scheduler.
        self.deadline_ms = now_ms + self._interval_ms if self._interval_ms > 0 else NEVER_MS
        offsets = self._offsets()
        return None if offsets == self._file.written else self._file.plan_write(offsets)


class LogUpkeep:
    def __init__(
        self,
        directories: Sequence[LogDirectory],
        config: StoreConfig,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.count = WorkCount()
        self._directories = directories
        self._monotonic_ms = monotonic_ms
        now_ms = monotonic_ms()
        start_ms = now_ms + config.log_initial_task_delay_ms
        self._retention = _Round(
            config.log_retention_check_interval_ms, _RETENTION_LOGS_MAX, start_ms
        )
        producers_ms = config.producer_id_expiration_check_interval_ms
        # Kafka lets the first of these checks wait an interval, not the initial delay.
        self._producers = _Round(producers_ms, _PRODUCERS_LOGS_MAX, now_ms + producers_ms)
        self._flushing = _Round(FLUSH_CHECK_MS, _FLUSH_LOGS_MAX, now_ms + FLUSH_CHECK_MS)
        self._checkpoints = [
            _Checkpoint(directory, file, offsets, interval_ms, now_ms + max(interval_ms, 0))
            for directory in directories
            for file, offsets, interval_ms in _checkpoints_of(directory, config)
        ]
        self._removals: list[_Removal] = []
        self._removals_made = 0
        self._probe_ms = NEVER_MS
        self._released: list[LogDirectory] = []

    def tick(self, now_ms: int) -> list[Work]:
        """Do what is due and does not wait; return what does. ``now_ms`` is the wall clock's."""
        due_ms = self._monotonic_ms()
        self._look_for_offline()
        work: list[Work] = [*self._due_probes(due_ms)]
        work += [*self._due_checkpoints(due_ms), *self._due_removals(due_ms)]
        for stored in self._slice(self._retention, due_ms):
            _retain(stored, now_ms)
        for stored in self._slice(self._producers, due_ms):
            stored.log.producer_states.remove_expired(now_ms)
        work += self._due_for_logs(Instant(now_ms, due_ms))
        return work

    def next_deadline_ms(self) -> int:
        """Return when to ``tick`` next, by the steady clock, if no work is done before."""
        if self.count.under_way >= WORK_MAX:
            return NEVER_MS
        rounds = self._retention, self._producers, self._flushing
        deadlines = [each.next_deadline_ms() for each in rounds]
        deadlines += [checkpoint.next_deadline_ms() for checkpoint in self._checkpoints]
        deadlines += [removal.due_ms for removal in self._removals[:1]]
        return min(*deadlines, self._probe_ms)

    # What the store tells it.

    def on_settings(self, log: Log) -> None:
        """Look at the logs often enough for this one's ``flush.ms``; never less often again."""
        interval_ms = max(log.config.flush_ms, FLUSH_CHECK_MS_MIN)
        if interval_ms < self._flushing.interval_ms:
            self._flushing.interval_ms = interval_ms
            due_ms = self._monotonic_ms() + interval_ms
            self._flushing.deadline_ms = min(self._flushing.deadline_ms, due_ms)

    def remove_later(self, directory: LogDirectory, folder: PurePath, delay_ms: int) -> None:
        self._removals_made += 1
        due_ms = self._monotonic_ms() + delay_ms
        heappush(self._removals, _Removal(due_ms, self._removals_made, directory, folder))

    def checkpoint_soon(self, directory: LogDirectory) -> None:
        """Write the checkpoints at the next tick, because a log is gone from them."""
        for checkpoint in self._checkpoints:
            if checkpoint.directory is directory:
                checkpoint.deadline_ms = self._monotonic_ms()

    # What is due.

    @property
    def _has_room(self) -> bool:
        return self.count.under_way < WORK_MAX

    def _look_for_offline(self) -> None:
        """Let go of the files of a directory that went offline."""
        for directory in self._directories:
            if not directory.is_online and directory not in self._released:
                self._released.append(directory)
                for stored in directory.logs.values():
                    release_files(stored.log)

    def _due_probes(self, now_ms: int) -> Iterator[Work]:
        """Look whether full directories have space again, and have retention make some."""
        full = [directory for directory in self._directories if directory.is_full]
        if not full:
            self._probe_ms = NEVER_MS
        elif self._probe_ms == NEVER_MS or now_ms >= self._probe_ms:
            if self._probe_ms == NEVER_MS:
                self._retention.deadline_ms = now_ms
            self._probe_ms = now_ms + SPACE_CHECK_MS
            for directory in full:
                if not directory.is_probing:
                    directory.is_probing = True
                    yield SpaceProbe(self.count, directory)

    def _due_checkpoints(self, now_ms: int) -> Iterator[Work]:
        for checkpoint in self._checkpoints:
            if self._has_room and checkpoint.next_deadline_ms() <= now_ms:
                plan = checkpoint.next_write(now_ms)
                if plan is not None:
                    yield CheckpointWork(self.count, checkpoint.directory, plan)

    def _due_removals(self, now_ms: int) -> Iterator[Work]:
        removals = self._removals
        if any(removal.directory.is_full for removal in removals):
            removals[:] = [each.hurried(now_ms) for each in removals]
            heapify(removals)
        while (
            removals
            and self._has_room
            and (removals[0].due_ms <= now_ms or len(removals) > REMOVALS_MAX)
        ):
            _, _, directory, folder = heappop(removals)
            if directory.is_online:
                yield RemovalWork(self.count, directory, folders=[folder])

    def _due_for_logs(self, now: Instant) -> Iterator[Work]:
        logs = self._slice(self._flushing, now.monotonic_ms)
        while logs:
            if not self._has_room:
                self._flushing.put_back(logs)
                return
            stored = logs.pop()
            with suppress(ApiError):  # of the guard: the directory is offline now
                yield from self._due_for_log(stored, now)

    def _due_for_log(self, stored: StoredLog, now: Instant) -> Iterator[Work]:
        log, directory = stored.log, stored.directory
        if log.deleted:
            # Who still reads them has them open; space is what is wanted on a full disk.
            segments = log.take_deletable(NEVER_MS if directory.is_full else now.wall_ms)
            files = [path for segment in segments for path in segment.paths()]
            if files:
                yield RemovalWork(self.count, directory, files=files)
        if log.log_end_offset > log.recovery_point:
            plan = None
            with directory.guard:
                plan = None if stored.is_flushing else next_flush(stored, now.monotonic_ms)
            if plan is not None:
                yield FlushWork(self.count, stored, plan)

    def _slice(self, round_: _Round, now_ms: int) -> list[StoredLog]:
        """Return the next logs of a pass, without those that went meanwhile."""
        taken = round_.take_slice(now_ms, self._all_logs)
        return [
            stored
            for stored in taken
            if stored.directory.is_online
            and stored.directory.logs.get(stored.log.partition) is stored
        ]

    def _all_logs(self) -> list[StoredLog]:
        return [stored for directory in self._directories for stored in directory.logs.values()]


def _checkpoints_of(
    directory: LogDirectory, config: StoreConfig
) -> list[tuple[CheckpointFile, Callable[[], Offsets], int]]:
    return [
        (
            directory.high_watermarks,
            directory.offsets_of_high_watermarks,
            config.replica_high_watermark_checkpoint_interval_ms,
        ),
        (
            directory.recovery_points,
            directory.offsets_of_recovery_points,
            config.log_flush_offset_checkpoint_interval_ms,
        ),
        (
            directory.log_starts,
            directory.offsets_of_log_starts,
            config.log_flush_start_offset_checkpoint_interval_ms,
        ),
    ]


def _retain(stored: StoredLog, now_ms: int) -> None:
    cleaner = stored.directory.cleaner
    if cleaner is not None and not cleaner.may_delete(stored.log.partition):
        return  # its segments are being read and replaced; the next pass sees to it
    # Where the disk is full, rolling an active segment may fail again. What the closed segments of
    # other logs free will do for the next pass.
    with suppress(ApiError), stored.directory.guard:
        delete_old_segments(stored.log, now_ms)
