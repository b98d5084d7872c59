"""The snapshots in the folder of the metadata log: found, read, written, and deleted in time.

Writing: into a ``.part`` file, fsync, rename, fsync of the folder. So a file with the final name is
whole, unless the disk rots; at a start a damaged one is passed over for the one before it if the
log reaches back that far, and removed.

A snapshot replaces the log before its end offset. Retention therefore deletes from the oldest
snapshot on, together with the segments before the next one, and always leaves the newest.
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
from odradek.storage.disk import Disk
from odradek.storage.log import Log
from odradek.storage.retention import delete_old_segments

HEAD_BYTES_MAX: Final = 32 * 1024
"""The first batch: a header and the voters."""

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

    @property
    def earliest(self) -> OffsetAndEpoch | None:
        return self._ids[0] if self._ids else None

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return self._ids[-1] if self._ids else None

    def load(self, log_start_offset: int) -> LoadedSnapshot | None:
        """Find the newest sound snapshot and remove what is of no use, half-written ones too.

        Raises:
            CorruptionError: The log does not begin at 0, and nothing says what was before.
        """
        names = self._disk.names(self._folder)
        found = sorted(filter(None, map(parse_snapshot_name, names)))
        usable = [each for each in found if each.offset >= log_start_offset]
        problems: list[str] = []
        newest = self._newest_sound(usable, problems)
        if newest is None and log_start_offset > 0:
            why = "; ".join(problems) or "there is none"
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

    def _newest_sound(
        self, ids: list[OffsetAndEpoch], problems: list[str]
    ) -> LoadedSnapshot | None:
        for snapshot_id in reversed(ids):
            try:
                content = SnapshotReader(self._disk.read(self._path(snapshot_id)))
            except CorruptionError as error:
                problems.append(f"{snapshot_name(snapshot_id)}: {error}")
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
        self._ids.append(plan.id)

    def clean(self, log: Log, *, retention_bytes: int, retention_ms: int, now_ms: int) -> None:
        """Delete the oldest snapshots, and the log before the next, while there is too much."""
        while len(self._ids) > 1:
            is_over = self._is_over(log, retention_bytes) or self._is_old(retention_ms, now_ms)
            if not is_over:
                return
            oldest, following = self._ids[:2]
            log.advance_log_start_offset(following.offset)
            delete_old_segments(log, now_ms)
            self._disk.remove(self._path(oldest))
            del self._ids[0]
            self._facts.pop(oldest, None)

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
