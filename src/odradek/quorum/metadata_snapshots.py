"""The snapshots in the folder of the metadata log: found, read, written, and deleted in time.

Writing: into a ``.part`` file, fsync, rename, fsync of the folder. So a file with the final name is
whole, unless the disk rots; at a start a damaged one is passed over for the one before it if the
log reaches back that far, and removed.

A snapshot replaces the log before its end offset. Retention therefore deletes from the oldest
snapshot on, together with the segments before the next one, and always leaves the newest. It leaves
one that is being downloaded as well, for a while after the last piece that was asked for.

A snapshot that is fetched from the leader grows piece by piece in a ``.part`` file and gets its
name when all of it is there, sound and synced (``SnapshotInstall``).
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.metadata.image import ClusterImage
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.snapshots import (
    BOOTSTRAP_FILE,
    BOOTSTRAP_SNAPSHOT,
    DELETED_SUFFIX,
    PART_SUFFIX,
    QuorumRecords,
    SnapshotReader,
    parse_snapshot_name,
    read_snapshot_time,
    snapshot_batches,
    snapshot_name,
)
from odradek.raft.messages import OffsetAndEpoch
from odradek.storage.checkpoint_file import disk_for_thread
from odradek.storage.disk import Disk, File
from odradek.storage.log import Log
from odradek.storage.retention import delete_old_segments

HEAD_BYTES_MAX: Final = 32 * 1024
"""The first batch: a header and the voters."""

DOWNLOAD_LEASE_MS: Final = 60_000
"""How long a snapshot is kept after a piece of it was sent: the next piece is asked for soon."""

_UNLIMITED: Final = -1


class LoadedSnapshot(NamedTuple):
    id: OffsetAndEpoch
    content: SnapshotReader


class _Facts(NamedTuple):
    size: int
    last_contained_log_timestamp_ms: int


class MetadataSnapshots:
    def __init__(self, disk: Disk, folder: PurePath) -> None:
        self._disk = disk
        self._folder = folder
        self._ids: list[OffsetAndEpoch] = []
        self._facts: dict[OffsetAndEpoch, _Facts] = {}
        self._leases_until_ms: dict[OffsetAndEpoch, int] = {}
        self._part: _Part | None = None
        self.problems: list[str] = []
        """What was wrong with snapshots that were passed over."""

    @property
    def earliest(self) -> OffsetAndEpoch | None:
        return self._ids[0] if self._ids else None

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self._ids[-1] if self._ids else None

    def size_of(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return how many bytes a snapshot has; None if there is no such snapshot.

        The one that formatting left is never replicated: what it says, the first leader writes
        into the log.
        """
        if snapshot_id not in self._ids or snapshot_id == BOOTSTRAP_SNAPSHOT:
            return None
        return self._facts_of(snapshot_id).size

    def read_piece(
        self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int, now_ms: int
    ) -> bytes:
        """Return a piece for a follower, and keep the snapshot until it had time for the next."""
        self._leases_until_ms[snapshot_id] = now_ms + DOWNLOAD_LEASE_MS
        file = self._disk.open(self._path(snapshot_id))
        try:
            return bytes(file.read(position, min(bytes_max, file.size - position)))
        finally:
            file.close()

    def load(self, log_start_offset: int) -> LoadedSnapshot | None:
        """Find the newest sound snapshot and remove what is of no use, half-written ones too.

        Raises:
            CorruptionError: The log does not begin at 0, and nothing says what was before.
        """
        names = self._disk.names(self._folder)
        found = sorted(filter(None, map(parse_snapshot_name, names)))
        usable = [each for each in found if each.offset >= log_start_offset]
        newest = self._newest_sound(usable)
        if newest is None and log_start_offset > 0:
            why = "; ".join(self.problems) or "there is none"
            raise CorruptionError(
                f"{self._folder}: the log starts at {log_start_offset}, so a snapshot at or after "
                f"that is needed: {why}. Restore one from a backup or from another controller"
            )
        self._ids = [] if newest is None else usable[: usable.index(newest.id) + 1]
        # Only now, when it is clear that the node can do without.
        kept = set(map(snapshot_name, self._ids))
        for name in names:
            is_snapshot = parse_snapshot_name(name) is not None
            if name not in kept and (is_snapshot or name.endswith((PART_SUFFIX, DELETED_SUFFIX))):
                self._disk.remove(self._folder / name)
        return newest

    def _newest_sound(self, ids: list[OffsetAndEpoch]) -> LoadedSnapshot | None:
        for snapshot_id in reversed(ids):
            try:
                content = SnapshotReader(self._disk.read(self._path(snapshot_id)))
            except CorruptionError as error:
                self.problems.append(f"{snapshot_name(snapshot_id)}: {error}")
            else:
                return LoadedSnapshot(snapshot_id, content)
        return None

    def plan_write(
        self, image: ClusterImage, quorum: QuorumRecords, now_ms: int
    ) -> "SnapshotWrite | None":
        """Plan the snapshot of an image; None if there is one as new already.

        Only for an image of committed records: what a snapshot holds is never taken back.
        """
        offset, epoch, _ = image.provenance
        snapshot_id = OffsetAndEpoch(offset + 1, epoch)
        if epoch < 0 or (self._ids and snapshot_id.offset <= self._ids[-1].offset):
            return None
        path = self._path(snapshot_id)
        return SnapshotWrite(self._disk, path, snapshot_id, image, quorum, now_ms)

    def on_written(self, plan: "SnapshotWrite") -> None:
        if self._ids and plan.id.offset <= self._ids[-1].offset:
            self._disk.remove(plan.path)  # a newer one was installed meanwhile
        else:
            self._ids.append(plan.id)

    def store_piece(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Write a piece of a snapshot that is being fetched; position 0 begins it again.

        Raises:
            OSError: It cannot be written; nothing is left of it.
        """
        if position == 0:
            self.drop_part()
            path = self._path(snapshot_id)
            part = path.with_name(path.name + ".part")
            self._disk.remove(part)
            self._part = _Part(snapshot_id, part, self._disk.open(part, create=True))
        assert self._part is not None
        assert self._part.id == snapshot_id
        try:
            self._part.file.write(position, [data])
        except OSError:
            self.drop_part()
            raise

    def drop_part(self) -> None:
        if self._part is not None:
            self._part.file.close()
            with suppress(OSError):
                self._disk.remove(self._part.path)  # else the next start does
            self._part = None

    def plan_install(self, snapshot_id: OffsetAndEpoch) -> "SnapshotInstall":
        part = self._part
        assert part is not None
        assert part.id == snapshot_id
        part.file.close()
        self._part = None
        return SnapshotInstall(self._disk, part.path, self._path(snapshot_id), snapshot_id)

    def on_installed(self, snapshot_id: OffsetAndEpoch) -> list[PurePath]:
        """Take note that a fetched snapshot replaces all others; return the files to remove."""
        old = [self._path(each) for each in self._ids if each != snapshot_id]
        self._ids = [snapshot_id]
        self._facts.clear()
        return old

    def remove(self, files: Iterable[PurePath]) -> None:
        """Remove the files of snapshots, on any thread."""
        disk = disk_for_thread(self._disk)
        for path in files:
            disk.remove(path)

    def _is_leased(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> bool:
        until_ms = self._leases_until_ms.get(snapshot_id)
        # A wall clock that was set back must not keep a snapshot for longer than the lease.
        return until_ms is not None and now_ms < until_ms <= now_ms + DOWNLOAD_LEASE_MS

    def clean(self, log: Log, *, retention_bytes: int, retention_ms: int, now_ms: int) -> None:
        """Delete the oldest snapshots, and the log before the next, while there is too much."""
        while len(self._ids) > 1:
            is_over = self._is_over(log, retention_bytes) or self._is_old(retention_ms, now_ms)
            if not is_over:
                return
            oldest, following = self._ids[:2]
            if self._is_leased(oldest, now_ms):
                return
            if following.offset > log.high_watermark:
                return  # started, and has not heard yet how far the log is committed
            log.advance_log_start_offset(following.offset)
            delete_old_segments(log, now_ms)
            self._disk.remove(self._path(oldest))
            del self._ids[0]
            self._facts.pop(oldest, None)
            self._leases_until_ms.pop(oldest, None)

    def _is_over(self, log: Log, retention_bytes: int) -> bool:
        if retention_bytes <= _UNLIMITED:
            return False
        sizes = sum(self._facts_of(each).size for each in self._ids)
        return log.segments.bytes + sizes > retention_bytes

    def _is_old(self, retention_ms: int, now_ms: int) -> bool:
        if retention_ms <= _UNLIMITED:
            return False
        oldest = self._facts_of(self._ids[0])
        return now_ms - oldest.last_contained_log_timestamp_ms > retention_ms

    def _facts_of(self, snapshot_id: OffsetAndEpoch) -> _Facts:
        facts = self._facts.get(snapshot_id)
        if facts is None:
            path = self._path(snapshot_id)
            facts = _Facts(self._disk.size(path), self._read_time(path))
            self._facts[snapshot_id] = facts
        return facts

    def _read_time(self, path: PurePath) -> int:
        file = self._disk.open(path)
        try:
            return read_snapshot_time(file.read(0, HEAD_BYTES_MAX))
        except CorruptionError:
            return 0  # old enough to go: a newer one is there, and this one could not be loaded
        finally:
            file.close()

    def _path(self, snapshot_id: OffsetAndEpoch) -> PurePath:
        return self._folder / snapshot_name(snapshot_id)


class _Part(NamedTuple):
    id: OffsetAndEpoch
    path: PurePath
    file: File


class SnapshotInstall(NamedTuple):
    """A fetched snapshot to be checked and given its name, on any thread."""

    disk: Disk
    part: PurePath
    path: PurePath
    id: OffsetAndEpoch

    def run(self) -> LoadedSnapshot:
        """Check and sync the file, rename it, sync the folder.

        Raises:
            CorruptionError: It is not a whole snapshot; it is removed.
        """
        disk = disk_for_thread(self.disk)
        try:
            content = SnapshotReader(disk.read(self.part))
        except CorruptionError:
            disk.remove(self.part)
            raise
        disk.sync_file(self.part)
        disk.rename(self.part, self.path)
        disk.sync_folder(self.path.parent)
        return LoadedSnapshot(self.id, content)


class SnapshotWrite(NamedTuple):
    """A snapshot to be written, on any thread: the image never changes."""

    disk: Disk
    path: PurePath
    id: OffsetAndEpoch
    image: ClusterImage
    quorum: QuorumRecords
    now_ms: int

    def run(self) -> None:
        batches = snapshot_batches(
            self.image.to_records(),
            epoch=self.id.epoch,
            last_contained_log_timestamp_ms=self.image.provenance.last_timestamp_ms,
            now_ms=self.now_ms,
            quorum=self.quorum,
        )
        write_snapshot_file(disk_for_thread(self.disk), self.path, batches)


def write_snapshot_file(disk: Disk, path: PurePath, batches: Iterable[bytearray]) -> None:
    """Write a snapshot so that it has its name only when all of it is on stable storage."""
    part = path.with_name(path.name + ".part")
    disk.remove(part)
    try:
        file = disk.open(part, create=True)
        try:
            position = 0
            for batch in batches:
                file.write(position, [batch])
                position += len(batch)
            file.sync()
        finally:
            file.close()
    except OSError:
        with suppress(OSError):
            disk.remove(part)  # the space may be what is missing
        raise
    disk.rename(part, path)
    disk.sync_folder(path.parent)


def read_bootstrap(disk: Disk, log_dir: PurePath) -> list[VersionedRecord] | None:
    """Return the records with which a formatted directory wants its cluster to begin.

    Raises:
        CorruptionError: The file is damaged.
    """
    path = log_dir / BOOTSTRAP_FILE
    if not disk.exists(path):
        return None
    try:
        # Formatting writes all of them in version 0: nobody knows yet what can be read.
        return [VersionedRecord(each, 0) for each in SnapshotReader(disk.read(path)).records()]
    except CorruptionError as error:
        raise CorruptionError(f"{path}: {error}. Format the directory again") from error
