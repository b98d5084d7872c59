"""Sparse map from timestamp to offset within one segment (``.timeindex``).

A flat array of 12-byte entries, big-endian::

    timestamp       int64    the greatest timestamp in the segment so far
    relative offset int32    where it was seen, as offset - base_offset of the segment

An entry (t, o) says that every record newer than t is behind o. Timestamps ascend strictly, offsets
do not descend. Records without a timestamp (-1) leave the index empty. One slot is kept for the
entry that is added when the segment is rolled or closed. There is no checksum: after an unclean
stop the index is rebuilt from its segment. ``index_file`` has the life of the file.

hot path: ``maybe_append``.
"""

from struct import Struct
from typing import ClassVar, Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.storage.index_file import IndexFile

NO_TIMESTAMP: Final = -1


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    __slots__ = ()
    ENTRY: ClassVar = Struct(">qi")

    @property
    def is_full(self) -> bool:
        """Whether only the slot for the very last entry is left."""
        return not self._has_room(2)

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; no timestamp and the base offset if there is none."""
        count = self.entries
        return self.entry(count - 1) if count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def entry(self, slot: int) -> TimestampOffset:
        timestamp, relative = self._at(slot)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def maybe_append(self, timestamp: int, offset: int, *, even_if_full: bool = False) -> None:
        """Add an entry if ``timestamp`` is greater than the last one.

        Offering the last entry again does nothing: both rolling and closing a segment do so.
        ``even_if_full`` takes the slot that is kept for them.
        """
        assert even_if_full or not self.is_full, f"{self.path} is full"
        relative, last_timestamp, last_relative = offset - self.base_offset, NO_TIMESTAMP, 0
        count = self.entries
        if count:
            last_timestamp, last_relative = self._at(count - 1)
            assert timestamp >= last_timestamp
            assert relative >= last_relative
        if timestamp > last_timestamp:
            assert relative >= 0
            self._append(timestamp, relative)

    def lookup(self, target_timestamp: int) -> TimestampOffset:
        """Return the last entry that is not newer than ``target_timestamp``.

        A target before the first entry yields no timestamp and the base offset, so a caller can
        always scan forward from ``offset`` without a special case.
        """
        slot = self._count_up_to(0, target_timestamp) - 1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self.entry(slot)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or behind ``offset``."""
        self._cut(self._count_up_to(1, offset - self.base_offset - 1))

    def check(self, log_size: int) -> None:
        """Look at the end of the index; takes no longer for a large one.

        Raises:
            CorruptionError: It cannot be the time index of a log of ``log_size`` bytes. Rebuild it.
        """
        self._check_size()
        count = self.entries
        if count == 0:
            return
        if log_size == 0:
            raise CorruptionError(f"{self.path}: {count} entries for an empty log")
        timestamp, relative = self._at(count - 1)
        before = self._at(count - 2) if count > 1 else (NO_TIMESTAMP, 0)
        if min(timestamp, relative) < 0 or before[0] >= timestamp or before[1] > relative:
            raise CorruptionError(
                f"{self.path}: last entry ({timestamp}, {relative}) after {before}"
            )
