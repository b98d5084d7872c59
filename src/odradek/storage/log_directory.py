"""One log directory: whose it is, how it was left, and whether it can still be trusted.

::

    .lock                               held by the node that uses the directory
    meta.properties                     cluster, node and directory id (``log_dir_files``)
    .reserve                            space for what must be written (``space_reserve``)
    .kafka_cleanshutdown                there only between a clean stop and the next start
    recovery-point-offset-checkpoint    per log: all before it is on stable storage
    replication-offset-checkpoint       per log: its high watermark
    log-start-offset-checkpoint         per log that starts within a segment
    cleaner-offset-checkpoint           per log: where the cleaner goes on
    <topic>-<partition>/                a log (``log_folders``)

An I/O error takes the directory offline until the node is started again, as in Kafka: nobody knows
what the disk kept and what it lost, and a second fsync that succeeds says nothing about the first
that failed. From then on its logs answer KAFKA_STORAGE_ERROR, and the next start recovers them,
because an offline directory is never said to be cleanly shut down. Running out of descriptors
(EMFILE) counts too.

A disk without space loses nothing: what did not fit was refused and taken back. So a directory that
is only *full* refuses writes with KAFKA_STORAGE_ERROR, which producers try again, and goes on with
everything else. Retention and deletions make space, without their delays; what must be written for
that has a reserve (``space_reserve``). When the disk has space again, writes are accepted again.
Kafka takes it offline like a broken one, and exits if it was the last.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from random import Random
from types import TracebackType
from typing import Final, NamedTuple, Protocol

from odradek.core.errors import ApiError, CorruptionError, ErrorCode, OdradekError
from odradek.core.ids import TopicPartition, Uuid
from odradek.storage.checkpoint_file import CheckpointFile, Offsets
from odradek.storage.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offset_checkpoint,
)
from odradek.storage.disk import TEMPORARY_SUFFIX, Disk, Lock, OsDisk
from odradek.storage.log import Log
from odradek.storage.log_dir_files import (
    META_PROPERTIES,
    CleanShutdown,
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from odradek.storage.log_folders import parse_folder_name
from odradek.storage.segment import LOG_SUFFIX
from odradek.storage.space_reserve import FULL_ERRORS, ReservedDisk, SpaceReserve

LOCK_FILE: Final = ".lock"
METADATA_TOPIC: Final = "__cluster_metadata"
"""Belongs to the metadata quorum, which opens it itself."""

UNSYNCED_REMOVALS_MAX: Final = 1000
LOGS_NAMED_MAX: Final = 5

# POSIX locks do not hold against the process that has them; worse, opening and closing the file a
# second time would drop the first lock. So a second try must not get as far as the file.
_locked_here: Final[set[PurePath]] = set()


class DirectoryRefusedError(OdradekError):
    """A log directory must not be used like this; the operator has to do what the message says."""


class Cleaner(Protocol):
    """What must be known to whoever cleans the logs of a directory (``cleaner.LogCleaner``)."""

    def may_delete(self, partition: TopicPartition) -> bool:
        """Whether retention may take segments from a log now."""

    def on_truncated(self, partition: TopicPartition, offset: int) -> None:
        """Take note that a log is about to be cut."""

    def abandon(self, partition: TopicPartition) -> None:
        """Take note that a log is about to go."""


class StoredLog:
    """A log, and where it is."""

    __slots__ = (
        "directory",
        "is_flushing",
        "is_future",
        "last_flush_ms",
        "log",
        "topic_id",
        "truncations",
    )

    def __init__(
        self, log: Log, directory: "LogDirectory", topic_id: Uuid | None, *, is_future: bool = False
    ) -> None:
        self.log = log
        self.directory = directory
        self.topic_id = topic_id
        self.is_future = is_future
        self.is_flushing = False
        self.last_flush_ms = 0
        """By the clock of the store's deadlines."""
        self.truncations = 0  # a flush that was planned before one says nothing about what followed


class FailedLog(NamedTuple):
    """A log that could not be opened."""

    folder: PurePath
    reason: str
    is_future: bool


class LogDirectory:
    """Made by ``open`` or, if not even that was possible, offline from the start."""

    def __init__(
        self,
        disk: Disk,
        path: PurePath,
        directory_id: Uuid | None,
        lock: Lock | None,
        reserve_bytes: int = 0,
    ) -> None:
        self.disk = disk
        self.path = path
        self.directory_id = directory_id
        self.error: OSError | None = None
        """Why it is offline."""
        self.shortage: OSError | None = None
        """What found no space, until there is some again."""
        self.times_full = 0
        self.is_cordoned = False
        """Whether new logs are to go elsewhere (KIP-1066)."""
        self.is_finished = False
        """Whether it was shut down cleanly, and said so."""
        self.is_probing = False
        self.reserve = SpaceReserve(disk, path, reserve_bytes, self.on_io_error)
        reserved = ReservedDisk(disk, self.reserve)
        self.clean_shutdown: CleanShutdown | None = None
        """How it was left before this start; None if not cleanly."""
        # A partition's current and future log are never in one directory.
        self.logs: dict[TopicPartition, StoredLog] = {}
        self.failed: dict[TopicPartition, FailedLog] = {}
        # Renamed away, but a crash may undo that.
        self._unsynced_removals: set[TopicPartition] = set()
        self.guard = IoGuard(self)
        self.writing_guard = IoGuard(self, is_writing=True)
        self.recovery_points = CheckpointFile(reserved, path / RECOVERY_POINT_CHECKPOINT)
        self.high_watermarks = CheckpointFile(reserved, path / HIGH_WATERMARK_CHECKPOINT)
        self.log_starts = CheckpointFile(reserved, path / LOG_START_CHECKPOINT)
        self.cleaner_offsets: Offsets = {}
        """As they were at the start; the cleaner keeps them."""
        self.cleaner: Cleaner | None = None
        """Set by whoever makes one."""
        self._lock = lock

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: PurePath,
        *,
        cluster_id: str,
        node_id: int,
        random: Random,
        format_new: bool = False,
        reserve_bytes: int = 0,
    ) -> "LogDirectory":
        """Lock a directory and make sure that it is this node's.

        ``format_new``: write ``meta.properties`` where there is none, as formatting does. Only
        into a directory without logs: where there are some, the file was lost.

        Raises:
            DirectoryRefusedError: It is another node's, or in use, or not formatted.
        """
        if not disk.exists(path):
            disk.make_folder(path)
        lock = _lock(disk, path)
        try:
            meta = _checked_meta(disk, path, cluster_id, node_id, random, format_new)
        except BaseException:
            _unlock(path, lock)
            raise
        directory = cls(disk, path, meta.directory_id, lock, reserve_bytes)
        try:
            directory.reserve.fill()
        except OSError as error:
            directory.on_io_error(error)
        return directory

    @property
    def is_online(self) -> bool:
        return self.error is None

    @property
    def is_full(self) -> bool:
        """Online, but without space for more records."""
        return self.shortage is not None and self.error is None

    @property
    def is_writable(self) -> bool:
        return self.error is None and self.shortage is None

    @property
    def checkpoint_files(self) -> tuple[CheckpointFile, ...]:
        return self.recovery_points, self.high_watermarks, self.log_starts

    def on_io_error(self, error: OSError) -> None:
        """Take the directory offline, or stop writes if it is only full; the first error stays."""
        if error.errno in FULL_ERRORS:
            self.times_full += self.shortage is None
            self.shortage = self.shortage or error
        else:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """Take the directory offline; the first error stays."""
        self.error = self.error or error

    def refusal(self) -> ApiError:
        if self.error is not None:
            problem = f"log directory {self.path} is offline: {self.error}"
        else:
            assert self.shortage is not None
            problem = (
                f"log directory {self.path} is full ({self.shortage.strerror}): writes are refused "
                "until there is space again, reads go on. Delete records or topics, or add space"
            )
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, problem)

    # Starting and stopping.

    def read_previous_broker_epoch(self) -> int | None:
        """Return the broker epoch of the last stop if it was clean; before the logs are loaded."""
        if not self.is_online:
            return None
        try:
            clean = read_clean_shutdown(self.disk, self.path)
        except (CorruptionError, OSError):
            return None  # loading says what is wrong with it
        return None if clean is None else clean.broker_epoch

    def begin_loading(self) -> list[str]:
        """Read how the directory was left, and take that back; return what is wrong with it.

        A crash from here on, while loading too, is an unclean stop.
        """
        problems: list[str] = []
        try:
            self.clean_shutdown = read_clean_shutdown(self.disk, self.path)
        except CorruptionError as error:
            problems.append(f"{error}; taken for an unclean stop")
        remove_clean_shutdown(self.disk, self.path)
        for file in self.checkpoint_files:
            self.disk.remove(file.path.with_name(file.path.name + TEMPORARY_SUFFIX))
            try:
                file.load()
            except CorruptionError as error:
                problems.append(f"{error}; taken for empty")
        try:
            path = self.path / CLEANER_CHECKPOINT
            self.cleaner_offsets = read_offset_checkpoint(self.disk, path)
        except CorruptionError as error:
            problems.append(f"{error}; taken for empty")
        return problems

    def finish(self, broker_epoch: int) -> None:
        """Say that all is on stable storage, if that is so."""
        if self.is_online and not self.failed:
            self.write_checkpoints()
            self.disk.sync_folder(self.path)
            reserved = ReservedDisk(self.disk, self.reserve)
            write_clean_shutdown(reserved, self.path, broker_epoch)
            self.is_finished = True

    def unlock(self) -> None:
        if self._lock is not None:
            _unlock(self.path, self._lock)
            self._lock = None

    # Names.

    def on_renamed_away(self, partition: TopicPartition) -> None:
        """Take note that a log's folder has another name now, which is not synced."""
        self._unsynced_removals.add(partition)
        if len(self._unsynced_removals) > UNSYNCED_REMOVALS_MAX:
            self.sync_names()

    def make_removal_durable(self, partition: TopicPartition) -> None:
        """Make sure that the log of a partition that was here cannot come back.

        Wanted when there is to be another in another directory: of the two that a crash would
        leave, the next start could choose the wrong one.
        """
        if partition in self._unsynced_removals:
            self.sync_names()

    def sync_names(self) -> None:
        self.disk.sync_folder(self.path)
        self._unsynced_removals.clear()

    # Checkpoints.

    def offsets_of_recovery_points(self) -> Offsets:
        offsets = {at: stored.log.recovery_point for at, stored in self.logs.items()}
        return self._with_failed(offsets, self.recovery_points)

    def offsets_of_high_watermarks(self) -> Offsets:
        offsets = {at: stored.log.high_watermark for at, stored in self.logs.items()}
        return self._with_failed(offsets, self.high_watermarks)

    def offsets_of_log_starts(self) -> Offsets:
        offsets = {
            at: stored.log.log_start_offset
            for at, stored in self.logs.items()
            if stored.log.log_start_offset > stored.log.segments[0].base_offset
        }
        return self._with_failed(offsets, self.log_starts)

    def _with_failed(self, offsets: dict[TopicPartition, int], file: CheckpointFile) -> Offsets:
        """Keep the entries of logs that could not be opened: another start may do better."""
        for partition in self.failed:
            if partition in file.written:
                offsets[partition] = file.written[partition]
        return offsets

    def write_checkpoints(self) -> None:
        """Write those that the logs account for, here and now."""
        self.recovery_points.write_now(self.offsets_of_recovery_points())
        self.log_starts.write_now(self.offsets_of_log_starts())
        self.high_watermarks.write_now(self.offsets_of_high_watermarks())

    def forget(self, partition: TopicPartition) -> None:
        """Make sure that no checkpoint speaks of a log that is about to be made anew.

        Its predecessor's start offset would, after a crash, be taken for that of the new log, which
        would then be thrown away for ending before it starts.
        """
        for file in self.checkpoint_files:
            if file.largest(partition) is not None:
                without = {at: o for at, o in file.latest.items() if at != partition}
                file.write_now(without)
        if self.cleaner is not None:
            self.cleaner.on_truncated(partition, 0)

    def lower_checkpoints(
        self, partition: TopicPartition, recovery_point: int, log_start_offset: int
    ) -> None:
        """Make sure that no checkpoint is ahead of a log that is about to be cut.

        Done before, because a crash half-way through must find all of it to be checked. And a log
        that starts over before its old start must not be thrown away for ending before it.
        """
        for file, offsets, most in (
            (self.recovery_points, self.offsets_of_recovery_points, recovery_point),
            (self.log_starts, self.offsets_of_log_starts, log_start_offset),
        ):
            largest = file.largest(partition)
            if largest is not None and largest > most:
                file.write_now({**offsets(), partition: most})


class IoGuard:
    """Stands around what touches the files of a directory: ``with directory.guard: …``.

    Refuses with KAFKA_STORAGE_ERROR when the directory is offline, and makes an OSError the end
    of its being online, or of its taking records. One object for all uses, because appends go
    through it. ``is_writing`` is for what takes space, and refuses also when there is none.
    """

    __slots__ = ("_directory", "_is_writing")

    def __init__(self, directory: LogDirectory, *, is_writing: bool = False) -> None:
        self._directory = directory
        self._is_writing = is_writing

    def __enter__(self) -> None:
        directory = self._directory
        if directory.error is not None or (self._is_writing and directory.shortage is not None):
            raise directory.refusal()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            self._directory.on_io_error(error)
            raise self._directory.refusal() from error


def open_directories(
    disk: Disk,
    paths: Sequence[PurePath],
    *,
    cluster_id: str,
    node_id: int,
    random: Random,
    format_new: bool,
    reserve_bytes: int = 0,
) -> list[LogDirectory]:
    """Open them all; those whose disk fails are offline.

    Raises:
        DirectoryRefusedError: One is refused, or none is usable. Then none is locked.
    """
    directories: list[LogDirectory] = []
    try:
        for path in paths:
            try:
                directory = LogDirectory.open(
                    disk,
                    path,
                    cluster_id=cluster_id,
                    node_id=node_id,
                    random=random,
                    format_new=format_new,
                    reserve_bytes=reserve_bytes,
                )
            except OSError as error:
                directory = LogDirectory(disk, path, None, None)
                directory.fail(error)
            directories.append(directory)
        _check_directories(directories)
    except BaseException:
        for directory in directories:
            directory.unlock()
        raise
    return directories


def _check_directories(directories: Sequence[LogDirectory]) -> None:
    by_id: dict[Uuid, LogDirectory] = {}
    for directory in directories:
        if directory.directory_id is None:
            continue
        other = by_id.setdefault(directory.directory_id, directory)
        if other is not directory:
            raise DirectoryRefusedError(
                f"{other.path} and {directory.path} have the same directory.id, "
                f"{directory.directory_id}: one is a copy of, or a link to, the other. Remove one"
            )
    if not any(directory.is_online for directory in directories):
        errors = "; ".join(f"{directory.path}: {directory.error}" for directory in directories)
        raise DirectoryRefusedError(f"no log directory can be used: {errors or 'none is given'}")


def _lock(disk: Disk, path: PurePath) -> Lock:
    if isinstance(disk, OsDisk) and path in _locked_here:
        raise _in_use(path)
    try:
        lock = disk.lock(path / LOCK_FILE)
    except BlockingIOError as error:
        raise _in_use(path) from error
    if isinstance(disk, OsDisk):
        _locked_here.add(path)
    return lock


def _unlock(path: PurePath, lock: Lock) -> None:
    lock.release()
    _locked_here.discard(path)


def _in_use(path: PurePath) -> DirectoryRefusedError:
    return DirectoryRefusedError(
        f"{path} is in use: another node, or a Kafka, holds {path / LOCK_FILE}. "
        "Stop that one, or give this node log.dirs of its own"
    )


def _refuse_logs(disk: Disk, path: PurePath) -> None:
    """Refuse a directory that should be formatted and holds logs.

    With a new cluster id they would be nobody's: listed by no topic, or not by this one's id.
    """
    logs = [*logs_in(disk, path, with_metadata=True)]
    if logs:
        named = ", ".join(logs[:LOGS_NAMED_MAX])
        more = f" and {len(logs) - LOGS_NAMED_MAX} more" if len(logs) > LOGS_NAMED_MAX else ""
        raise DirectoryRefusedError(
            f"{path / META_PROPERTIES} is missing, but the directory holds logs: {named}{more}. "
            "Restore the file, from a backup or with the cluster.id and node.id that it had; to "
            "start over, move the logs away first"
        )


def logs_in(disk: Disk, path: PurePath, *, with_metadata: bool = False) -> Iterator[str]:
    """Iterate over the folders of logs that have one in them.

    Formatting leaves a folder of the metadata log with nothing but a snapshot in it.
    """
    for name in disk.names(path):
        parsed = parse_folder_name(name)
        if parsed is None or not disk.is_folder(path / name):
            continue
        if not with_metadata and parsed.partition.topic == METADATA_TOPIC:
            continue
        if any(LOG_SUFFIX in PurePath(file).suffixes for file in disk.names(path / name)):
            yield name


def _checked_meta(
    disk: Disk, path: PurePath, cluster_id: str, node_id: int, random: Random, format_new: bool
) -> MetaProperties:
    """Return what ``meta.properties`` says, which always has a directory id (KIP-858)."""
    file = path / META_PROPERTIES
    try:
        found = read_meta_properties(disk, path)
    except CorruptionError as error:
        raise DirectoryRefusedError(
            f"{error}. Mend the file, or move the directory away"
        ) from error
    if found is None:
        if not format_new:
            raise DirectoryRefusedError(f"{file} is missing: format the directory first")
        _refuse_logs(disk, path)
        disk.sync_folder(path.parent)  # it may have been made a moment ago, by us or by another
        found = MetaProperties(cluster_id=cluster_id, node_id=node_id)
    for name, theirs, ours in (
        ("cluster.id", found.cluster_id, cluster_id),
        ("node.id", found.node_id, node_id),
    ):
        if theirs != ours:
            raise DirectoryRefusedError(
                f"{file} says {name}={theirs}, this node has {name}={ours}. "
                "Correct the node's settings, or give it a directory of its own"
            )
    if found.directory_id is None:
        found = MetaProperties(
            version=found.version,
            cluster_id=found.cluster_id,
            node_id=found.node_id,
            directory_id=Uuid.random(random),
        )
        write_meta_properties(disk, path, found)
    return found
