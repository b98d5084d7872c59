"""All the logs of a node, over several log directories. Kafka calls this the log manager.

A plain object with one owner: it has no thread, and no clock but the one it is given. It begins
with directories that are locked; ``load_in_steps`` opens their logs. It ends with ``close``, which
blocks. In between, the owner calls ``tick`` at ``next_deadline_ms`` and has the work it returns
carried out by threads (``log_upkeep``)::

    for work in store.tick(now_ms):
        error = await in_a_thread(work.run)     # None, or what it raised
        work.done(error, monotonic_ms)

Whoever uses a log does so within its guard, so that an I/O error takes the directory offline and
comes out as KAFKA_STORAGE_ERROR (``log_directory``)::

    with store.directory_of(partition).writing_guard:
        result = log.append_as_leader(…)

Truncation goes through the store, because a checkpoint must never be ahead of its log, and so do
deletion and moves between directories, which change folders:

- deleting renames the folder to ``-delete`` and removes it ``file.delete.delay.ms`` later;
- a replica moves by a second, *future* log in another directory, which is filled like a follower's
  and, once it has all, replaces the current one (``log_move``). The future folder gets its final
  name before the current one loses it: a crash in between leaves two logs, and both are whole.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePath
from random import Random

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.storage.disk import Disk
from odradek.storage.log import Log
from odradek.storage.log_closing import close_logs
from odradek.storage.log_creation import LogCreation
from odradek.storage.log_deletion import LogDeletion
from odradek.storage.log_dir_description import DirectoryDescription, VolumeSpace, describe
from odradek.storage.log_dir_files import write_partition_metadata
from odradek.storage.log_directory import IoGuard, LogDirectory, StoredLog
from odradek.storage.log_folders import FolderKind, folder_name, new_folder_name
from odradek.storage.log_loading import (
    PROBLEMS_MAX,
    IsStray,
    LoadingProgress,
    LogLoading,
    SettingsFor,
)
from odradek.storage.log_move import LogMoves
from odradek.storage.log_placement import LogPlacement
from odradek.storage.log_truncation import truncate_fully_and_start_at, truncate_to
from odradek.storage.log_upkeep import LogUpkeep, StoreConfig
from odradek.storage.log_work import FlushWork, Work, release_files
from odradek.storage.recovery import LogSettings, create_log, open_log
from odradek.storage.recovery_loss import Loss
from odradek.storage.stored_logs import StoredLogs


class LogStore:
    def __init__(
        self,
        disk: Disk,
        directories: Sequence[LogDirectory],
        settings_for: SettingsFor,
        *,
        config: StoreConfig,
        random: Random,
        now_ms: int,
        monotonic_ms: Callable[[], int] | None = None,
    ) -> None:
        self.directories = directories
        self.problems: list[str] = []
        """What the operator should know; one line each."""
        self.losses: list[Loss] = []
        """What recovery had to give up at the start."""
        self._disk = disk
        self._settings_for = settings_for
        self._config = config
        self._random = random
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms or (lambda: self._now_ms)
        self._upkeep = LogUpkeep(directories, config, self._monotonic_ms)
        self._logs = StoredLogs(directories)
        self._placement = LogPlacement(directories)
        self._deletion = LogDeletion(disk, self._logs, self._upkeep, random)
        self._told_offline: list[LogDirectory] = []
        self._told_full: list[LogDirectory] = []
        self._creation: LogCreation | None = None
        self.moves = LogMoves(self, self._logs.current, self._logs.future)
        self.previous_broker_epoch = _previous_broker_epoch(directories)
        """The broker epoch of the last stop, if that was clean in all directories (KIP-966).

        A broker registers with it before it opens its logs.
        """

    def load_in_steps(
        self,
        is_stray: IsStray | None = None,
        on_progress: Callable[[LoadingProgress], None] | None = None,
    ) -> Generator[None, None, None]:
        """Open all logs, as ``log_loading`` says, a log in each step."""
        loading = LogLoading(
            self._disk,
            self.directories,
            self._settings_for,
            now_ms=self._now_ms,
            random=self._random,
            processes=self._config.num_recovery_threads_per_data_dir,
            is_stray=is_stray,
            on_progress=on_progress,
        )
        yield from loading.run_in_steps()
        self.problems, self.losses = loading.problems, loading.losses
        for directory, folder in loading.leftovers:
            self._upkeep.remove_later(directory, folder, 0)
        for directory in self.directories:
            for stored in directory.logs.values():
                self._add(stored)

    # Finding.

    @property
    def logs(self) -> list[Log]:
        """The current logs that can be used."""
        return [stored.log for stored in self._logs.current.values() if stored.directory.is_online]

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, None if there is none on this node.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR: its directory is offline, or it could not be opened.
        """
        return self._logs.find(partition, is_future=False)

    def get_future(self, partition: TopicPartition) -> Log | None:
        """As ``get``, of the log that is to take its place."""
        return self._logs.find(partition, is_future=True)

    def guard(self, partition: TopicPartition, *, is_future: bool = False) -> IoGuard:
        """Return what to use the log in; another one once the log has moved."""
        return self._logs.get(partition, is_future=is_future).directory.guard

    def directory_of(self, partition: TopicPartition, *, is_future: bool = False) -> LogDirectory:
        return self._logs.get(partition, is_future=is_future).directory

    def topic_id(self, partition: TopicPartition) -> Uuid | None:
        return self._logs.get(partition).topic_id

    def take_full_changes(self) -> tuple[list[LogDirectory], list[LogDirectory]]:
        """Return the directories that are full, and that have space, since the last call."""
        full = [each for each in self.directories if each.is_full and each not in self._told_full]
        freed = [each for each in self._told_full if not each.is_full]
        self._told_full = [each for each in self.directories if each.is_full]
        return full, freed

    def take_offline_directories(self) -> list[LogDirectory]:
        """Return the directories that went offline since the last call, for the controller."""
        new = [d for d in self.directories if not d.is_online and d not in self._told_offline]
        self._told_offline += new
        return new

    # Making.

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Make several logs; they are durable when the block is left, and wait for that together.

        Do not wait for anything inside, and delete nothing. A directory that fails at the end is
        offline then, and its new logs with it; one that fails at once ``create`` avoids, as ever.
        """
        creation = LogCreation(self._disk)
        try:
            with self._creating_in(creation):
                yield
        finally:
            creation.finish()

    @contextmanager
    def plan_creation(self) -> Iterator[LogCreation]:
        """As ``creating``, but the caller has what is yielded ``run`` and ``done`` afterwards.

        Until then the logs are there, and nobody may append to them, move or delete them.
        """
        creation = LogCreation(self._disk)
        with self._creating_in(creation):
            yield creation

    @contextmanager
    def _creating_in(self, creation: LogCreation) -> Iterator[None]:
        assert self._creation is None, "within another"
        self._creation = creation
        try:
            yield
        finally:
            self._creation = None

    def create(
        self,
        partition: TopicPartition,
        topic_id: Uuid,
        *,
        now_ms: int,
        settings: LogSettings | None = None,
        directory_id: Uuid | None = None,
        is_new: bool = True,
    ) -> Log:
        """Return the log of a partition, a new one if there is none.

        It goes to the directory with this id or else to the one with the fewest logs; if that
        fails, to the next. ``is_new`` is false if this node should have it: then there may be
        one in a directory that is offline, and none is made.

        Raises:
            ApiError: INCONSISTENT_TOPIC_ID: there is one, of another topic of this name;
                KAFKA_STORAGE_ERROR; INVALID_TOPIC_EXCEPTION.
        """
        existing = self._logs.current.get(partition)
        if existing is not None:
            with existing.directory.guard:
                _check_topic_id(existing, topic_id)
            return existing.log
        self._logs.refuse_failed(partition, is_future=False)
        self._logs.refuse_if_too_many()
        if not is_new:
            self._logs.refuse_if_offline(partition)
        settings = settings or self._settings_for(partition.topic)
        name = folder_name(partition)
        for directory in self.directories:
            with suppress(ApiError), directory.guard:
                directory.make_removal_durable(partition)
        for directory in self._placement.take_places(partition, directory_id):
            with suppress(ApiError), directory.writing_guard:
                log = self._create_in(directory, name, partition, topic_id, settings, now_ms)
                self._add(StoredLog(log, directory, topic_id))
                return log
        self.refuse_if_full()
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{partition}: no log directory could take it"
        )

    def _create_in(
        self,
        directory: LogDirectory,
        name: str,
        partition: TopicPartition,
        topic_id: Uuid | None,
        settings: LogSettings,
        now_ms: int,
        log_start_offset: int = 0,
    ) -> Log:
        directory.forget(partition)
        folder = directory.path / name
        self._take_aside(folder, partition)
        try:
            log = self._make_log(
                directory, folder, partition, topic_id, settings, now_ms, log_start_offset
            )
        except OSError:
            # Half a log must not stay: the partition may get a log in another directory, and the
            # next start would find two.
            if self._creation is not None:
                self._creation.forget(directory, folder)
            with suppress(OSError):
                self._disk.remove_folder(folder)
            raise
        return log

    def _take_aside(self, folder: PurePath, partition: TopicPartition) -> None:
        """Make room for a folder where one of its name was put since the start."""
        if self._disk.exists(folder):
            stray = new_folder_name(partition, FolderKind.STRAY, self._random)
            self._disk.rename(folder, folder.with_name(stray))

    def _make_log(
        self,
        directory: LogDirectory,
        folder: PurePath,
        partition: TopicPartition,
        topic_id: Uuid | None,
        settings: LogSettings,
        now_ms: int,
        log_start_offset: int,
    ) -> Log:
        self._disk.make_folder(folder)
        if topic_id is not None and self._creation is not None:
            self._creation.add(directory, folder, topic_id)
        elif topic_id is not None:
            write_partition_metadata(self._disk, folder, topic_id)
        log = create_log(
            partition,
            self._disk,
            folder,
            settings,
            now_ms=now_ms,
            random=self._random,
            log_start_offset=log_start_offset,
        )
        # Without this, files that are synced later could vanish together with their folder.
        if topic_id is None or self._creation is None:
            directory.sync_names()
        return log

    @property
    def has_space(self) -> bool:
        """Whether there is a directory that could take a new log."""
        return any(directory.is_writable for directory in self.directories)

    def refuse_if_full(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if no directory can take a new log, for want of space."""
        full = [directory for directory in self.directories if directory.is_full]
        if full and not self.has_space:
            raise full[0].refusal()

    def prefer(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Remember where a log is to be made, should it be made and the directory be online."""
        self._placement.prefer(partition, directory)

    def _add(self, stored: StoredLog) -> None:
        stored.last_flush_ms = self._monotonic_ms()
        self._logs.add(stored)
        self._upkeep.on_settings(stored.log)

    def update_settings(self, topic: str, partitions: Iterable[int]) -> None:
        """Look again what the settings of a topic's logs are."""
        settings = self._settings_for(topic)
        for number in partitions:
            for stored in self._logs.of(TopicPartition(topic, number)):
                stored.log.reconfigure(settings.config)
                self._upkeep.on_settings(stored.log)

    # Cutting and deleting.

    def truncate_to(
        self, partition: TopicPartition, offset: int, now_ms: int, *, is_future: bool = False
    ) -> bool:
        """Drop all records from ``offset`` on; return whether there were any.

        Synced before it returns, as ``log_truncation`` says why.
        """
        if not is_future:
            self.moves.before_truncation(partition, offset, now_ms, fully=False)
        return truncate_to(self._logs.get(partition, is_future=is_future), offset, now_ms)

    def truncate_fully_and_start_at(
        self, partition: TopicPartition, offset: int, now_ms: int, *, is_future: bool = False
    ) -> None:
        """Drop everything, synced as well; the next record gets ``offset``."""
        if not is_future:
            self.moves.before_truncation(partition, offset, now_ms, fully=True)
        stored = self._logs.get(partition, is_future=is_future)
        truncate_fully_and_start_at(stored, offset, now_ms)

    def delete(self, partition: TopicPartition, *, is_stray: bool = False) -> bool:
        """Take the logs of a partition out of use, and remove them later; strays are kept aside.

        Return whether there were any. Also works where the disk is full.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR: there may be one in a directory that is offline.
        """
        kind = FolderKind.STRAY if is_stray else FolderKind.DELETE
        found = self._deletion.delete(partition, kind)
        if not found:
            self._logs.refuse_if_offline(partition)
        return found

    # Moving between directories.

    def check_future_name(self, partition: TopicPartition) -> None:
        """Refuse a name that has no room for what marks a future log.

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION.
        """
        new_folder_name(partition, FolderKind.FUTURE, self._random)

    def create_future(self, partition: TopicPartition, directory_id: Uuid, now_ms: int) -> Log:
        """Make an empty log in another directory, to be filled from the current one.

        Raises:
            ApiError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, or INVALID_TOPIC_EXCEPTION because
                the name of a future folder would be too long.
        """
        current = self._logs.get(partition)
        assert partition not in self._logs.future, "abandon that one first"
        assert directory_id != current.directory.directory_id, "it is there already"
        self._logs.refuse_if_too_many()
        places = self._placement.places(directory_id)
        if not places:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"no directory {directory_id} is online")
        (directory,) = places
        name = new_folder_name(partition, FolderKind.FUTURE, self._random)
        settings = self._settings_for(partition.topic)
        with directory.writing_guard:
            start = current.log.log_start_offset
            log = self._create_in(
                directory, name, partition, current.topic_id, settings, now_ms, start
            )
            self._add(StoredLog(log, directory, current.topic_id, is_future=True))
        return log

    def replace_current_with_future(self, partition: TopicPartition, now_ms: int) -> Log:
        """Let the future log take the place of the current one, which is deleted; return it.

        It is a new object, and the old ones are dead. What is not flushed yet is flushed here, so
        have it flushed before (``plan_flush``) to keep this short.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR. If only the old directory failed, the move is done.
        """
        stored = self._logs.get(partition, is_future=True)
        current = self._logs.current.get(partition)
        directory = stored.directory
        with directory.guard:
            folder = directory.path / folder_name(partition)
            self._take_aside(folder, partition)
            stored.log = self._moved(stored, folder, now_ms)
            stored.last_flush_ms = self._monotonic_ms()
            self._disk.sync_folder(directory.path)
        if current is not None:
            stored.log.update_high_watermark(current.log.high_watermark)
        self._logs.promote(stored)
        if current is not None:
            with current.directory.guard:
                self._deletion.discard(current, FolderKind.DELETE)
                current.directory.make_removal_durable(partition)
        return stored.log

    def _moved(self, stored: StoredLog, folder: PurePath, now_ms: int) -> Log:
        """Close a log, rename its folder and open it again."""
        old = stored.log
        # With a sync, as what it replaces may have been synced already.
        old.close()
        self._disk.rename(old.folder, folder)
        log, _ = open_log(
            old.partition,
            self._disk,
            folder,
            self._settings_for(old.partition.topic),
            now_ms=now_ms,
            random=self._random,
            clean=True,
            log_start_offset=old.log_start_offset,
        )
        log.update_high_watermark(old.high_watermark)
        return log

    def abandon_future(self, partition: TopicPartition) -> None:
        """Give up moving a replica."""
        stored = self._logs.get(partition, is_future=True)
        with stored.directory.guard:
            self._deletion.discard(stored, FolderKind.DELETE)

    # From time to time.

    def plan_flush(self, partition: TopicPartition, *, is_future: bool = False) -> FlushWork | None:
        """Return the work to be done before an append counts as flushed, None if all is."""
        stored = self._logs.get(partition, is_future=is_future)
        if stored.log.log_end_offset <= stored.log.recovery_point:
            return None
        with stored.directory.guard:
            return FlushWork(self._upkeep.count, stored, stored.log.plan_flush())

    def tick(self, now_ms: int) -> list[Work]:
        """Do what is due; return what is to be done in threads. See ``log_upkeep``.

        ``now_ms`` is the wall clock's: ages of records go by it.
        """
        self._now_ms = now_ms
        return [*self._upkeep.tick(now_ms), *self.moves.tick(now_ms)]

    def next_deadline_ms(self) -> int:
        """Return when to ``tick`` next, by the clock of deadlines."""
        moves_ms = self.moves.next_deadline_ms()
        return min(self._upkeep.next_deadline_ms(), moves_ms)

    def on_clock_set_back(self, step_ms: int, now_ms: int) -> None:
        """Hear that the wall clock shows ``now_ms`` because it was set back."""
        for stored in self._logs:
            stored.log.on_clock_set_back(step_ms, now_ms)

    def report(self, problem: str) -> None:
        """Add a line for the operator."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def describe(
        self, space_of: Callable[[PurePath], VolumeSpace] | None = None
    ) -> list[DirectoryDescription]:
        """Return what is in each directory; ``space_of`` asks the file system."""
        return [describe(directory, self._logs.current, space_of) for directory in self.directories]

    # Stopping.

    def close(self, broker_epoch: int) -> None:
        """Stop cleanly: sync and close all logs, write the checkpoints, then say so.

        Blocks. A directory in which anything of this fails is recovered at the next start.
        """
        threads = self._config.num_recovery_threads_per_data_dir
        try:
            for directory in self.directories:
                with suppress(ApiError), directory.guard:
                    close_logs(self._disk, directory, threads=threads)
                    directory.finish(broker_epoch)
        finally:
            self.abandon()

    @property
    def is_closed_cleanly(self) -> bool:
        """Whether ``close`` could say of all directories that everything in them is on disk."""
        return all(directory.is_finished for directory in self.directories)

    def abandon(self) -> None:
        """Stop as a crash would, but give the locks back."""
        for directory in self.directories:
            for stored in directory.logs.values():
                release_files(stored.log)
            directory.unlock()

    def check_invariants(self) -> None:
        self._logs.check_invariants()


def _previous_broker_epoch(directories: Sequence[LogDirectory]) -> int | None:
    epochs = {each.read_previous_broker_epoch() for each in directories}
    return epochs.pop() if len(epochs) == 1 else None


def _check_topic_id(stored: StoredLog, topic_id: Uuid) -> None:
    """Refuse another topic of the same name; give an id to a log that has none yet."""
    if stored.topic_id is None:
        write_partition_metadata(stored.log.disk, stored.log.folder, topic_id)
        stored.topic_id = topic_id
    elif stored.topic_id != topic_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{stored.log.partition} here is of topic id {stored.topic_id}, not {topic_id}; "
            "it must be deleted first",
        )
