"""A memory-mapped array of fixed-size entries: what the offset index and the time index share.

The file is a flat array without header or checksum. An index that still grows is preallocated,
with zeros behind its entries. When its segment is closed it is trimmed to its entries, so whoever
opens a file takes ``size // entry size`` for the number of entries. After an unclean stop that
number is wrong; ``check`` of the two indexes notices the zeros, and recovery rebuilds the file.

Nothing is touched on disk before the first use: the 20,000 indexes of 10,000 idle logs are free.

hot path: ``_append`` and ``_count_up_to`` are part of appends and of reads.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath
from struct import Struct
from typing import ClassVar, Final

from odradek.core.errors import CorruptionError
from odradek.storage.disk import Disk, File, Mapping

_WARM_BYTES: Final = 8192
_RESERVED_BYTES: Final = 4096


class IndexFile:
    """Entries of two integers each, both ascending. Subclasses give them a meaning."""

    ENTRY: ClassVar[Struct]
    __slots__ = (
        "_changes",
        "_count",
        "_disk",
        "_mapping",
        "_reserved",
        "_size",
        "_synced_changes",
        "base_offset",
        "bytes_max",
        "path",
    )

    def __init__(self, disk: Disk, path: PurePath, base_offset: int, *, bytes_max: int) -> None:
        assert bytes_max >= self.ENTRY.size
        self.path = path
        self.base_offset = base_offset
        self.bytes_max = bytes_max
        self._disk = disk
        self._mapping: Mapping | None = None
        self._count = -1  # unknown until the file is first used; then kept even while unmapped
        self._size = 0  # of the file, where its entries are known
        self._reserved = 0  # up to here storing into the mapping cannot run out of disk
        self._changes = self._synced_changes = 0

    @property
    def entries(self) -> int:
        if self._count < 0:
            self._map()
        return self._count

    @property
    def capacity(self) -> int:
        """How many entries the file has room for as it is now."""
        if self._count < 0:
            self._map()
        return self._size // self.ENTRY.size

    def _at(self, slot: int) -> tuple[int, int]:
        mapping = self._mapping or self._map()
        assert 0 <= slot < self._count
        first, second = self.ENTRY.unpack_from(mapping.buffer, slot * self.ENTRY.size)
        return first, second

    def _has_room(self, entries: int) -> bool:
        """Whether so many entries more fit into the file as it is now."""
        if self._mapping is None:
            self._map()
        return (self._count + entries) * self.ENTRY.size <= self._size

    def _append(self, first: int, second: int) -> None:
        mapping, entry = self._mapping or self._map(), self.ENTRY
        position = self._count * entry.size
        end = position + entry.size
        assert end <= self._size, f"{self.path} is full"
        if end > self._reserved:
            self._reserve(end)
        # The buffer is taken after reserving, which may make the disk unmap what looks idle.
        buffer = mapping.buffer
        assert not position or entry.unpack_from(buffer, position - entry.size)[0] < first
        entry.pack_into(buffer, position, first, second)
        self._changes += 1
        self._count += 1

    def _count_up_to(self, field: int, target: int) -> int:
        """Return how many entries have a ``field`` (0 or 1) of at most ``target``.

        Almost every search is for the end of the log, so the last entry is tried first and then the
        last two pages. A binary search over all entries steps on pages that nothing else keeps in
        memory, and the event loop stands still until the disk has delivered them.
        """
        if self._count == 0:
            return 0  # and the file of an idle log stays unopened
        buffer = (self._mapping or self._map()).buffer
        count, size, unpack_from = self._count, self.ENTRY.size, self.ENTRY.unpack_from

        def value(slot: int) -> int:
            number: int = unpack_from(buffer, slot * size)[field]
            return number

        if count == 0 or value(count - 1) <= target:
            return count
        low, high = max(count - _WARM_BYTES // size, 0), count
        if low and value(low) > target:
            low, high = 0, low
        return bisect_right(range(count), target, low, high, key=value)

    def _cut(self, count: int) -> None:
        """Keep the first ``count`` entries; the others stay in the file until they are trimmed."""
        assert 0 <= count <= self.entries
        self._count = count

    def reset(self) -> None:
        """Drop all entries and preallocate again; also makes the file if there is none."""
        self._unmap()
        with self._file(create=True) as file:
            self._changes += 1
            self._count = self._reserved = 0
            file.truncate(0)
            self._size = self._whole(self.bytes_max)
            file.truncate(self._size)

    def grow(self) -> None:
        """Preallocate: make it the index of a segment that is appended to."""
        self.resize(self.bytes_max)

    def trim(self) -> None:
        """Cut the file to its entries: make it the index of a segment that is closed.

        An index that was never used has nothing to trim and is left alone.
        """
        if self._count >= 0:
            self.resize(self._count * self.ENTRY.size)

    def resize(self, size: int) -> None:
        """Give the file room for ``size`` bytes of whole entries; what has no room is dropped."""
        size = self._whole(size)
        count = self.entries
        if size == self._size:
            return
        self._unmap()
        with self._file() as file:
            self._changes += 1
            file.truncate(size)
        self._size = size
        self._count = min(count, size // self.ENTRY.size)
        self._reserved = min(self._reserved, self._count * self.ENTRY.size)

    def _whole(self, size: int) -> int:
        return size - size % self.ENTRY.size

    def _check_size(self) -> None:
        """Raise CorruptionError if the file is missing or ends within an entry.

        One without entries, which idle logs have by the thousand, is not opened for that.
        """
        if self._count < 0:
            try:
                self._size = self._disk.size(self.path)
            except FileNotFoundError as error:
                raise CorruptionError(f"{self.path}: missing") from error
            if self._size == 0:
                self._count = 0
        if self._size % self.ENTRY.size:
            raise CorruptionError(
                f"{self.path}: {self._size} bytes are no multiple of {self.ENTRY.size}"
            )

    def sync(self) -> None:
        """Return when the entries and the size of the file are on stable storage; in any thread."""
        changes = self.unsynced_changes
        if changes is not None:
            self._disk.sync_file(self.path)  # what was stored into the mapping is part of the file
            self.on_synced(changes)

    @property
    def unsynced_changes(self) -> int | None:
        """How often the file was changed, for ``on_synced``; None if all of that is on disk."""
        return self._changes if self._changes > self._synced_changes else None

    def on_synced(self, changes: int) -> None:
        """Take note that the file was synced when it had been changed so often."""
        self._synced_changes = max(self._synced_changes, changes)

    def close(self, *, trim: bool = False) -> None:
        if trim:
            self.trim()
        self._unmap()

    def rename(self, path: PurePath) -> None:
        """Rename the file; an index that was never used may have none."""
        self._unmap()
        if self._disk.exists(self.path):
            self._disk.rename(self.path, path)
        self.path = path

    def relocate(self, path: PurePath) -> None:
        """Go on under a new path, because the folder was renamed."""
        self._unmap()
        self.path = path

    def remove(self) -> None:
        self._unmap()
        self._disk.remove(self.path)
        self._count = -1
        self._synced_changes = self._changes

    def _map(self) -> Mapping:
        is_new = not self._disk.exists(self.path)
        with self._file(create=is_new) as file:
            if is_new:
                self._changes += 1
                file.truncate(self._whole(self.bytes_max))
            self._size = file.size
            mapping = self._mapping = file.map(writable=True)
        if self._count < 0:
            self._count = 0 if is_new else self._size // self.ENTRY.size
            self._reserved = self._count * self.ENTRY.size
        return mapping

    def _unmap(self) -> None:
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None

    def _reserve(self, end: int) -> None:
        """Write zeros up to the page boundary at or after ``end``.

        The file is sparse. On a full disk, storing into a page with no block behind it is a SIGBUS
        and the end of the broker, while a write is an OSError. Whole pages, because a block may be
        smaller than a page.
        """
        end = min(end + -end % _RESERVED_BYTES, self._size)
        with self._file() as file:
            file.write(self._reserved, [bytes(end - self._reserved)])
        self._reserved = end

    @contextmanager
    def _file(self, *, create: bool = False) -> Iterator[File]:
        """Open the file for a moment: only the mapping is worth a descriptor."""
        file = self._disk.open(self.path, create=create)
        try:
            yield file
        finally:
            file.close()
