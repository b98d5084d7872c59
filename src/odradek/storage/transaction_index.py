"""The aborted transactions whose abort marker is in one segment (``.txnindex``).

A flat array of 34-byte entries, big-endian::

    version            int16    0
    producer id        int64
    first offset       int64    of the transaction; it may lie in an earlier segment
    last offset        int64    of the transaction: its abort marker
    last stable offset int64    of the log, when the marker had been appended

Sorted by last offset. Most segments have no aborted transaction and then no such file: it is made
by the first append. There is no checksum: after an unclean stop it is rebuilt with its segment.
"""

from bisect import bisect_left
from pathlib import PurePath
from struct import Struct
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.storage.disk import Buffer, Disk, File

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    __slots__ = (
        "_changes",
        "_count",
        "_disk",
        "_file",
        "_synced_changes",
        "base_offset",
        "path",
    )

    def __init__(self, disk: Disk, path: PurePath, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self._disk = disk
        self._file: File | None = None
        self._count = -1  # unknown until first used; 0 also says that there may be no file
        self._changes = self._synced_changes = 0

    @property
    def entries(self) -> int:
        if self._count < 0:
            self._count = 0
            if self._disk.exists(self.path):
                self._count = self._opened().size // _ENTRY.size
        return self._count

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction that ended behind all the others."""
        count = self.entries
        assert transaction.last_offset >= self.base_offset
        assert count == 0 or transaction.last_offset > _end(self._data(), count - 1)
        # At the end of the whole entries, not of the file: what a failed write left is overwritten.
        file = self._opened(create=count == 0)
        self._changes += 1
        file.write(count * _ENTRY.size, [_ENTRY.pack(_VERSION, *transaction)])
        self._count = count + 1

    def collect(
        self, fetch_offset: int, upper_bound_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions with records from ``fetch_offset`` to the upper bound.

        The upper bound is exclusive. The second value says that the search is complete: no later
        segment can have more. That is so once an abort left the last stable offset at or behind the
        upper bound, because no transaction that was still open then can begin before it.
        """
        found = []
        data = self._data()
        # What ended before the fetch cannot have moved the last stable offset past it either.
        for slot in range(self._count_before(data, fetch_offset), self.entries):
            transaction = self._at(data, slot)
            if transaction.first_offset < upper_bound_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def all(self) -> list[AbortedTransaction]:
        data = self._data()
        return [self._at(data, slot) for slot in range(self.entries)]

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions that ended at or behind ``offset``."""
        keep = self._count_before(self._data(), offset)
        if keep < self.entries:
            self._resize(keep)

    def reset(self) -> None:
        """Drop all transactions."""
        if self._disk.exists(self.path):
            self._resize(0)
        self._count = 0

    def check(self) -> None:
        """Read all entries; there are few.

        Raises:
            CorruptionError: This is no transaction index of this segment. Rebuild it.
        """
        if not self._disk.exists(self.path):
            return
        size = self._opened().size
        if size % _ENTRY.size:
            raise CorruptionError(f"{self.path}: {size} bytes are no multiple of {_ENTRY.size}")
        end = self.base_offset - 1
        for transaction in self.all():
            if transaction.last_offset <= end or transaction.first_offset > transaction.last_offset:
                raise CorruptionError(f"{self.path}: {transaction} after offset {end}")
            end = transaction.last_offset

    def sync(self) -> None:
        """Return when the file is on stable storage; in any thread."""
        changes = self.unsynced_changes
        if changes is not None:
            self._disk.sync_file(self.path)
            self.on_synced(changes)

    @property
    def unsynced_changes(self) -> int | None:
        """How often the file was changed, for ``on_synced``; None if all of that is on disk."""
        return self._changes if self._changes > self._synced_changes else None

    def on_synced(self, changes: int) -> None:
        """Take note that the file was synced when it had been changed so often."""
        self._synced_changes = max(self._synced_changes, changes)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def rename(self, path: PurePath) -> None:
        """Rename the file, if there is one."""
        self.close()
        if self._disk.exists(self.path):
            self._disk.rename(self.path, path)
        self.path = path

    def relocate(self, path: PurePath) -> None:
        """Go on under a new path, because the folder was renamed."""
        self.close()
        self.path = path

    def remove(self) -> None:
        self.close()
        self._disk.remove(self.path)
        self._count = 0
        self._synced_changes = self._changes

    def _opened(self, *, create: bool = False) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, create=create)
        return self._file

    def _resize(self, count: int) -> None:
        self._changes += 1
        self._opened().truncate(count * _ENTRY.size)
        self._count = count

    def _data(self) -> Buffer:
        count = self.entries
        return self._opened().read(0, count * _ENTRY.size) if count else b""

    def _count_before(self, data: Buffer, offset: int) -> int:
        """Return how many transactions ended before ``offset``."""
        return bisect_left(range(self.entries), offset, key=lambda slot: _end(data, slot))

    def _at(self, data: Buffer, slot: int) -> AbortedTransaction:
        version, *fields = _ENTRY.unpack_from(data, slot * _ENTRY.size)
        if version != _VERSION:
            raise CorruptionError(f"{self.path}: entry {slot} has unknown version {version}")
        return AbortedTransaction(*fields)


def _end(data: Buffer, slot: int) -> int:
    last_offset: int = _ENTRY.unpack_from(data, slot * _ENTRY.size)[3]
    return last_offset
