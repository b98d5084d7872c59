"""Snapshots of producer state: ``%020d.snapshot`` in the folder of a log, named by an offset.

A snapshot holds what was known of each producer when everything before its offset had been
applied, so that after a restart only the batches from that offset on must be read again. Kafka 4
writes and reads version 1 alone::

    position  0  version            int16   1
              2  crc                uint32  CRC-32C of everything behind it
              6  producers_count    int32
             10  producers, 46 bytes each
                   producer_id               int64
                   producer_epoch            int16
                   last_sequence             int32   -1: no batch is known
                   last_offset               int64   -1: no batch is known
                   offset_delta              int32   of the last batch: last offset - first offset
                   timestamp                 int64   of the last batch or marker
                   coordinator_epoch         int32   of the last marker, -1: none is known
                   current_txn_first_offset  int64   -1: no transaction is open

Only the last batch of a producer is kept, of the five that are remembered in memory.

A snapshot is a shortcut and never the truth: one that is damaged is deleted and the one before it
is used. Its checksum finds a torn write, so a write need not be synced to be safe. Removing one
is another matter, see ``sync_removals``.

The layout is written out here although there is a generated ``ProducerSnapshot``: that reads no
more than ``ELEMENTS_MAX`` producers, a limit meant for peers, and a busy log may have known more.
A test holds the two together.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable
from pathlib import PurePath
from struct import Struct
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.records.checksum import crc32c
from odradek.storage.disk import Disk, write_atomically

VERSION: Final = 1
SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"

_HEADER: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_ENTRIES_POSITION: Final = _HEADER.size + _COUNT.size
_NAME: Final = re.compile(r"(\d{20})\.snapshot")
_TEMPORARY_NAME: Final = re.compile(r"\d{20}\.snapshot\.tmp")


class SnapshotEntry(NamedTuple):
    """One producer in a snapshot; -1 for what is not known."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Collection[Iterable[int]]) -> bytes:
    """Return the bytes of a snapshot; the fields of an entry are those of ``SnapshotEntry``."""
    pack = _ENTRY.pack
    body = b"".join([_COUNT.pack(len(entries)), *[pack(*entry) for entry in entries]])
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """Parse a snapshot.

    Raises:
        CorruptionError: The bytes are not a snapshot, or not what was written.
    """
    if len(data) < _ENTRIES_POSITION:
        raise CorruptionError(f"producer snapshot of {len(data)} bytes is cut short")
    version, crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptionError(f"producer snapshot has unknown version {version}")
    (count,) = _COUNT.unpack_from(data, _HEADER.size)
    # Compared with the size before anything is made of it: the count may be anyone's number.
    if count * _ENTRY.size != len(data) - _ENTRIES_POSITION:
        raise CorruptionError(f"producer snapshot of {len(data)} bytes claims {count} producers")
    computed = crc32c(memoryview(data)[_HEADER.size :])
    if computed != crc:
        raise CorruptionError(
            f"producer snapshot has checksum {crc:#010x}, its bytes have {computed:#010x}"
        )
    entries = _ENTRY.iter_unpack(memoryview(data)[_ENTRIES_POSITION:])
    return [SnapshotEntry._make(entry) for entry in entries]


def _check_entries(entries: list[SnapshotEntry], offset: int) -> None:
    """Raise CorruptionError if a log never was in this state at ``offset``."""
    if len({entry.producer_id for entry in entries}) < len(entries):
        raise CorruptionError(f"producer snapshot {offset} has a producer twice")
    open_at = [e.current_txn_first_offset for e in entries if e.current_txn_first_offset >= 0]
    if len(set(open_at)) < len(open_at):
        raise CorruptionError(f"producer snapshot {offset} has two transactions at one offset")
    for entry in entries:
        sound = entry.producer_id >= 0 and entry.offset_delta >= 0 and entry.last_sequence >= -1
        if not sound or max(entry.last_offset, entry.current_txn_first_offset) >= offset:
            raise CorruptionError(f"producer snapshot {offset} has an impossible {entry}")


class SnapshotFiles:
    """The snapshots in the folder of one log, by offset."""

    def __init__(self, disk: Disk, folder: PurePath) -> None:
        self.folder = folder
        self._disk = disk
        self._offsets: list[int] = []  # ascending
        self._removals_synced = True
        self.reload()

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    @property
    def latest(self) -> int | None:
        return self._offsets[-1] if self._offsets else None

    @property
    def oldest(self) -> int | None:
        return self._offsets[0] if self._offsets else None

    def path(self, offset: int) -> PurePath:
        return self.folder / f"{offset:020d}{SUFFIX}"

    def reload(self) -> None:
        """Look again which snapshots there are."""
        self._take(self._disk.names(self.folder))

    def _take(self, names: Iterable[str]) -> None:
        matches = map(_NAME.fullmatch, names)
        self._offsets = sorted(int(match[1]) for match in matches if match)

    def read(self, offset: int) -> list[SnapshotEntry]:
        """Return the producers of which the snapshot at ``offset`` knows something.

        Raises:
            CorruptionError: It is damaged, cannot be true, or is not there any more.
        """
        try:
            data = self._disk.read(self.path(offset))
        except FileNotFoundError as error:
            raise CorruptionError(f"producer snapshot {offset} is gone") from error
        # Kafka notes a producer without an epoch when compaction has emptied its marker.
        entries = [entry for entry in decode_snapshot(data) if entry.producer_epoch >= 0]
        _check_entries(entries, offset)
        return entries

    def write(self, offset: int, data: bytes, *, sync: bool) -> PurePath:
        """Write a snapshot; without ``sync`` it may be gone or damaged after a crash."""
        path = self.path(offset)
        if sync:
            write_atomically(self._disk, path, data)
            self._removals_synced = True
        else:
            self._disk.remove(path)
            file = self._disk.open(path, create=True)
            try:
                file.write(0, [data])
            finally:
                file.close()
        if offset not in self._offsets:
            insort(self._offsets, offset)
        return path

    def delete(self, offset: int) -> None:
        self._removals_synced = False
        self._drop(offset)

    def delete_before(self, offset: int) -> None:
        for old in self._offsets[: bisect_left(self._offsets, offset)]:
            self._drop(old)

    def delete_outside(self, start: int, end: int) -> None:
        """Delete all but those with ``start < offset <= end``."""
        self.delete_before(start + 1)
        for offset in self._offsets[bisect_right(self._offsets, end) :]:
            self.delete(offset)

    def mark_for_deletion(self, offset: int) -> PurePath | None:
        """Take the snapshot out of use; return the path of the file that may be removed later."""
        if not self._forget(offset):
            return None
        self._removals_synced = False
        path = self.path(offset)
        renamed = path.with_name(path.name + DELETED_SUFFIX)
        try:
            self._disk.rename(path, renamed)
        except FileNotFoundError:
            return None
        return renamed

    def remove_strays(self, segment_base_offsets: Collection[int]) -> None:
        """Delete what has no segment, but not the newest of all: a clean shutdown wrote that.

        Also delete what an interrupted write left behind.
        """
        names = self._disk.names(self.folder)
        for name in names:
            if _TEMPORARY_NAME.fullmatch(name):
                self._disk.remove(self.folder / name)
        self._take(names)
        bases = frozenset(segment_base_offsets)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and strays[-1] > max(bases, default=-1):
            strays.pop()
        for offset in strays:
            self._drop(offset)

    def sync_removals(self) -> None:
        """Return when no snapshot that was taken from beyond the end of the log can come back.

        Say one at offset 100 is removed because the log is truncated to 80, and the log then grows
        past 100 with other batches. A crash that undid the removal would leave a snapshot that is
        sound, in range, and tells of producers that never wrote. One that retention removes told
        the truth, so those are not waited for.
        """
        if not self._removals_synced:
            self._disk.sync_folder(self.folder)
            self._removals_synced = True

    def _drop(self, offset: int) -> None:
        if self._forget(offset):
            self._disk.remove(self.path(offset))

    def _forget(self, offset: int) -> bool:
        slot = bisect_left(self._offsets, offset)
        if self._offsets[slot : slot + 1] != [offset]:
            return False
        del self._offsets[slot]
        return True
