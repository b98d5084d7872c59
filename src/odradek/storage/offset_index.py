"""Sparse map from offset to byte position within one segment (``.index``).

A flat array of 8-byte entries, big-endian::

    relative offset int32    offset - base_offset of the segment
    position        int32    where the batch with that offset begins in the .log file

Both ascend strictly. Offsets are relative so that four bytes are enough. The batch at position 0
never has an entry, so (0, 0) is always preallocated space. There is no checksum: after an unclean
stop the index is rebuilt from its segment. ``index_file`` has the life of the file.

hot path: ``append`` and ``lookup``.
"""

from struct import Struct
from typing import ClassVar, Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.storage.index_file import IndexFile

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class IndexEntry(NamedTuple):
    offset: int
    position: int


class OffsetIndex(IndexFile):
    __slots__ = ()
    ENTRY: ClassVar = Struct(">ii")

    @property
    def is_full(self) -> bool:
        return not self._has_room(1)

    @property
    def last_offset(self) -> int:
        """The offset of the last entry; the base offset if there is none."""
        count = self.entries
        return self.base_offset + self._at(count - 1)[0] if count else self.base_offset

    def entry(self, slot: int) -> IndexEntry:
        relative, position = self._at(slot)
        return IndexEntry(self.base_offset + relative, position)

    def can_append(self, offset: int) -> bool:
        """Whether ``offset`` is near enough to the base offset to be stored."""
        return 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def append(self, offset: int, position: int) -> None:
        relative = offset - self.base_offset
        assert 0 <= relative <= RELATIVE_OFFSET_MAX
        assert position > 0
        self._append(relative, position)

    def lookup(self, target_offset: int) -> IndexEntry:
        """Return the last entry at or before ``target_offset``.

        A target before the first entry yields the start of the segment, so a caller can
        always scan forward from ``position`` without a special case.
        """
        slot = self._count_up_to(0, target_offset - self.base_offset) - 1
        if slot < 0:
            return IndexEntry(self.base_offset, 0)
        return self.entry(slot)

    def upper_bound(self, entry: IndexEntry, count: int) -> IndexEntry | None:
        """Return the first entry at least ``count`` bytes behind ``entry``, if there is one.

        Its offset is beyond everything that a read of ``count`` bytes from ``entry`` returns.
        """
        slot = self._count_up_to(1, entry.position + count - 1)
        return self.entry(slot) if slot < self.entries else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or behind ``offset``."""
        self._cut(self._count_up_to(0, offset - self.base_offset - 1))

    def check(self, log_size: int) -> None:
        """Look at the end of the index; takes no longer for a large one.

        Raises:
            CorruptionError: It cannot be the index of a log of ``log_size`` bytes. Rebuild it.
        """
        self._check_size()
        count = self.entries
        if count == 0:
            return
        relative, position = self._at(count - 1)
        if relative < 0 or not 0 < position < log_size:
            raise CorruptionError(
                f"{self.path}: last entry ({relative}, {position}) in a log of {log_size} bytes"
            )
        before = self._at(count - 2) if count > 1 else (-1, 0)
        if before[0] >= relative or before[1] >= position:
            raise CorruptionError(
                f"{self.path}: last entry ({relative}, {position}) after {before}"
            )
