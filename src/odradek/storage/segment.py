"""A segment: one piece of a log, a file of batches and the indexes over it. Append is a hot path.

Files are named by the first offset the segment may hold, in 20 digits::

    00000000000000000000.log        batches, one after the other
                        .index      offset -> position, every index.interval.bytes
                        .timeindex  largest timestamp so far -> offset, at the same places
                        .txnindex   transactions that were aborted; only where there are any

Only the last segment of a log, the active one, is appended to; its indexes are preallocated. The
others are read-only and their indexes trimmed. Nothing is opened before it is needed.

Benchmark: ``bench/storage.py``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.records import HEADER_BYTES, BatchHeader
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer, Disk, File
from odradek.storage.flush_plan import UnsyncedIndex
from odradek.storage.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from odradek.storage.scan import check_batch, iter_batches, peek_batch
from odradek.storage.space_reserve import FULL_ERRORS
from odradek.storage.time_index import TimeIndex, TimestampOffset
from odradek.storage.transaction_index import TransactionIndex

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"

DELETED_SUFFIX: Final = ".deleted"  # marked for deletion, removed later
CLEANED_SUFFIX: Final = ".cleaned"  # being written by the cleaner
SWAP_SUFFIX: Final = ".swap"  # complete, about to replace what it was made from

_SEARCH_BYTES: Final = 5 * 1024  # index.interval.bytes and a little: one look is enough
_TAIL_MAX: Final = 8
"""Batches at the end whose places are remembered: followers and consumers that keep up read there.
Few, since every log that is written to has them."""
_NO_TIMESTAMP: Final = -1


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class BatchPosition(NamedTuple):
    """Where a batch is in its segment's file."""

    base_offset: int
    last_offset: int
    position: int
    size: int


class Segment:
    __slots__ = (
        "_bytes_since_index_entry",
        "_config",
        "_disk",
        "_file",
        "_first_timestamp",
        "_folder",
        "_indexed",
        "_is_index_full",
        "_is_trimmed",
        "_largest",
        "_suffix",
        "_tail",
        "base_offset",
        "created_ms",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        folder: PurePath,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        now_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self.base_offset = base_offset
        self.size = size
        self.created_ms = now_ms
        self.roll_jitter_ms = roll_jitter_ms
        self._disk = disk
        self._folder = folder
        self._config = config
        self._suffix = suffix
        self._file: File | None = None
        self._bytes_since_index_entry = 0
        self._is_index_full: bool | None = None  # None: look again
        # Whether the indexes are as short as they are: what a closed segment has, and one that was
        # active before the last stop. They grow with the first append, so that a log to which
        # nothing is written costs neither its start nor its stop anything.
        self._is_trimmed = True
        self._first_timestamp: int | None = None  # None: not read yet
        self._largest: TimestampOffset | None = None  # None: not read yet
        self._indexed: TimestampOffset | None = None  # what the time index was last offered
        # The last batches, without a gap up to ``size``, as the fields of a BatchPosition: most
        # are never looked for, and a named tuple takes eight times as long to make.
        self._tail: list[tuple[int, int, int, int]] = []
        bytes_max = config.segment_index_bytes
        self.offset_index = OffsetIndex(
            disk, self.path(OFFSET_INDEX_SUFFIX), base_offset, bytes_max=bytes_max
        )
        self.time_index = TimeIndex(
            disk, self.path(TIME_INDEX_SUFFIX), base_offset, bytes_max=bytes_max
        )
        self.transaction_index = TransactionIndex(
            disk, self.path(TRANSACTION_INDEX_SUFFIX), base_offset
        )

    @classmethod
    def create(
        cls,
        disk: Disk,
        folder: PurePath,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> "Segment":
        """Make the files of a new, empty segment that is ready to be appended to."""
        segment = cls(
            disk,
            folder,
            base_offset,
            config,
            size=0,
            now_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            suffix=suffix,
        )
        try:
            segment._file = disk.open(segment.path(LOG_SUFFIX), create=True)
            if config.preallocate and not suffix:
                segment._file.truncate(config.segment_bytes)
            segment.offset_index.reset()
            segment.time_index.reset()
        except OSError:
            # An empty file that stayed would end the log where it begins, at the next start.
            with suppress(OSError):
                segment.remove()
            raise
        segment._first_timestamp = segment._largest = None
        segment._is_trimmed = False
        return segment

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: PurePath,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> "Segment":
        """Return a segment that is on disk already; no file of it is opened yet."""
        size = disk.size(folder / file_name(base_offset, LOG_SUFFIX + suffix))
        return cls(
            disk,
            folder,
            base_offset,
            config,
            size=size,
            now_ms=now_ms,
            roll_jitter_ms=roll_jitter_ms,
            suffix=suffix,
        )

    def path(self, kind: str) -> PurePath:
        return self._folder / file_name(self.base_offset, kind + self._suffix)

    def _log_file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX))
        return self._file

    # Appending.

    def append(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Add one batch. If writing fails, the segment is as it was before the call."""
        position, size = self.size, len(batch)
        self._write([batch], size)
        try:
            self._index(position, size, last_offset, max_timestamp)
        except OSError:
            self.take_back(position, last_offset)
            raise
        tail = self._tail
        if len(tail) >= _TAIL_MAX:
            del tail[0]
        tail.append((base_offset, last_offset, position, size))
        if position == 0:
            self._first_timestamp = max_timestamp

    def append_all(self, records: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Add several batches with one write; ``headers`` are those of ``records``."""
        position = self.size
        self._write([records], len(records))
        try:
            for header in headers:
                self._index(
                    position + header.position,
                    header.size,
                    header.last_offset,
                    header.max_timestamp,
                )
        except OSError:
            self.take_back(position, headers[0].last_offset)
            raise
        for each in headers[-_TAIL_MAX:]:
            at = position + each.position
            self._tail.append((each.base_offset, each.last_offset, at, each.size))
        del self._tail[:-_TAIL_MAX]
        if position == 0:
            self._first_timestamp = headers[0].max_timestamp

    def _write(self, buffers: Sequence[Buffer], count: int) -> None:
        file = self._file if self._file is not None else self._log_file()
        try:
            file.write(self.size, buffers)
        except OSError:
            self._cut_file(self.size)
            raise
        self.size += count

    def take_back(self, position: int, offset: int) -> None:
        """Undo an append that failed after its batches were written from ``position`` on.

        ``offset`` is the last one of its first batch: no index entry of it stays, or the next
        append, which gets the same offsets, would find them taken.
        """
        self._cut_file(position)
        self._tail.clear()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._largest = self._indexed = self._is_index_full = None
        # The next entry comes a little late. Were it due at once, it could be for position 0.
        self._bytes_since_index_entry = 0
        if position == 0:
            self._first_timestamp = None

    def _cut_file(self, size: int) -> None:
        """Cut off what a failed append left behind, so that the next one follows on.

        On a disk that fails this too, the folder goes offline and recovery cuts it at the start.
        """
        self.size = size
        self._log_file().truncate(self._config.segment_bytes if self._config.preallocate else size)

    def _index(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        largest = self._largest if self._largest is not None else self.largest()
        if max_timestamp > largest.timestamp:
            largest = self._largest = TimestampOffset(max_timestamp, last_offset)
        if self._bytes_since_index_entry > self._config.index_interval_bytes:
            # Full only when rebuilt with a smaller segment.index.bytes than it was written with:
            # an index with fewer entries is slower, not wrong.
            if not (self._look_if_full() if self._is_index_full is None else self._is_index_full):
                self.offset_index.append(last_offset, position)
                if largest is not self._indexed:
                    self.time_index.maybe_append(largest.timestamp, largest.offset)
                    self._indexed = largest
                self._look_if_full()
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size

    def is_roll_due(
        self, added_bytes: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a new segment must start before a batch that ends at ``last_offset``."""
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size == 0:
            if self._is_trimmed:
                self._look_if_full()  # they grow before the first append, which is about to come
            return False
        config = self._config
        first = self.first_timestamp if self._first_timestamp is None else self._first_timestamp
        # How long it has been open, by the clock of its records where they have one.
        waited_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return (
            self.size + added_bytes > config.segment_bytes
            or waited_ms > config.roll_ms - self.roll_jitter_ms
            or (self._is_index_full if self._is_index_full is not None else self._look_if_full())
        )

    def _look_if_full(self) -> bool:
        if self._is_trimmed:
            self.offset_index.grow()
            self.time_index.grow()
            self._is_trimmed = False
        self._is_index_full = self.offset_index.is_full or self.time_index.is_full
        return self._is_index_full

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 if there is none."""
        if self._first_timestamp is None:
            first = peek_batch(self.read(0, HEADER_BYTES)) if self.size else None
            self._first_timestamp = _NO_TIMESTAMP if first is None else first.max_timestamp
        return self._first_timestamp

    def on_become_inactive(self) -> None:
        """Finish the indexes: the segment will not be appended to again."""
        if self._is_trimmed:
            return  # they were finished before, and nothing was appended since
        largest = self.largest()
        self.time_index.maybe_append(largest.timestamp, largest.offset, even_if_full=True)
        self.offset_index.trim()
        self.time_index.trim()
        if self._config.preallocate:
            self._log_file().truncate(self.size)
        self._is_trimmed = True
        self._tail.clear()

    def on_stay_active(self) -> None:
        """Take note that the segment that was to follow could not be made."""
        self._is_index_full = self._indexed = None
        self._is_trimmed = True  # perhaps only one of them; the next append makes them grow

    # Reading.

    def read(self, position: int, count: int) -> Buffer:
        return self._log_file().read(position, min(count, self.size - position))

    def batches(self, position: int = 0) -> Iterator[BatchHeader]:
        """Iterate over the batches from ``position``; their own positions count from there."""
        return iter_batches(self.read(position, self.size - position))

    def search_for(self, offset: int, position: int = 0) -> BatchPosition | None:
        """Find the first batch that ends at or after ``offset``, from ``position`` at the earliest.

        Only headers are looked at, from the nearest index entry on; of the last batches, none.
        """
        if self._tail:
            first_offset, _, first_position, _ = self._tail[0]
            if offset >= first_offset and position <= first_position:
                return self._search_tail(offset)
        position = max(position, self.offset_index.lookup(offset).position)
        while position < self.size:
            window = self.read(position, _SEARCH_BYTES)
            at = 0
            while at < len(window):
                if len(window) - at < HEADER_BYTES and position + len(window) < self.size:
                    break  # the header goes on behind the window
                header = peek_batch(window, at)
                if header.last_offset >= offset:
                    start = position + at
                    return BatchPosition(header.base_offset, header.last_offset, start, header.size)
                at += header.size
            position += at  # past the window, if its last batch was larger
        return None

    def bytes_from(self, offset: int) -> int:
        """Return about how many bytes follow ``offset``: exact from the next index entry on."""
        if self._tail and offset >= self._tail[0][0]:
            found = self._search_tail(offset)
            return 0 if found is None else self.size - found.position
        return self.size - self.offset_index.lookup(offset).position

    def _search_tail(self, offset: int) -> BatchPosition | None:
        found = None
        for batch in reversed(self._tail):
            _, last_offset, _, _ = batch
            if last_offset < offset:
                break
            found = batch
        return None if found is None else BatchPosition(*found)

    def find_by_timestamp(self, timestamp: int, start_offset: int) -> Iterator[BatchHeader]:
        """Iterate over batches that may hold the first record at or after ``timestamp``.

        Positions count from the start of the file. The caller looks at the records.
        """
        entry = self.time_index.lookup(timestamp)
        position = self.offset_index.lookup(max(entry.offset, start_offset)).position
        for header in self.batches(position):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                yield header._replace(position=position + header.position)

    def largest(self) -> TimestampOffset:
        """Return the largest timestamp and the last offset of the first batch that has it."""
        if self._largest is None:
            self._largest = self._read_largest()
        return self._largest

    def _read_largest(self) -> TimestampOffset:
        largest = self.time_index.last_entry
        position = self.offset_index.lookup(largest.offset).position
        for header in self.batches(position):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        return largest

    def largest_timestamp_ms(self) -> int:
        """What retention by time goes by: the records' own time, else the file's."""
        largest = self.largest()
        if largest.timestamp >= 0:
            return largest.timestamp
        return self._disk.modified_ms(self.path(LOG_SUFFIX))

    def next_offset(self) -> int:
        """Return the offset after the last batch, read from the file."""
        position = self.offset_index.lookup(self.offset_index.last_offset).position
        end = self.base_offset
        for header in self.batches(position):
            end = header.next_offset
        return end

    # Cutting and mending.

    def truncate_to(self, offset: int) -> int:
        """Drop all batches that end at or after ``offset``; return how many bytes that were."""
        found = self.search_for(offset)
        self._tail.clear()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.offset_index.grow()
        self.time_index.grow()
        self._is_trimmed = False
        self._is_index_full = self._indexed = None
        size = self.size
        if found is not None:
            self._log_file().truncate(found.position)
            self.size = found.position
        self._bytes_since_index_entry = 0
        self._largest = None
        self._first_timestamp = None if self.size else _NO_TIMESTAMP
        return size - self.size

    def check(self, on_batch: Callable[[BatchHeader, Buffer], None]) -> tuple[int, str]:
        """Check every batch and build the indexes anew; to be followed by ``cut_to``.

        ``on_batch`` sees each good batch and the bytes its position counts in; it may refuse one
        with CorruptionError. Return how many bytes are good, and what is wrong behind them.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self.transaction_index.reset()
        self._is_trimmed = False
        self._tail.clear()
        self._largest = TimestampOffset(_NO_TIMESTAMP, self.base_offset)
        self._is_index_full = self._indexed = None
        self._bytes_since_index_entry = 0
        return self._replay_valid(on_batch)

    def cut_to(self, size: int) -> int:
        """Cut the file behind what ``check`` found good; return how many bytes that were."""
        cut, self.size = self.size - size, size
        self._tail.clear()
        if cut:
            # Synced, lest the bad tail come back behind what is appended next.
            self._log_file().truncate(size)
            self._log_file().sync()
        self._first_timestamp = None
        self._finish_indexes()
        return cut

    @property
    def is_preallocated(self) -> bool:
        """Whether an unclean stop may leave zeros behind the last batch."""
        return self._config.preallocate

    def rebuild_indexes(self) -> None:
        """Build the offset and time index anew from batches that are known to be good."""
        self.offset_index.reset()
        self.time_index.reset()
        self._is_trimmed = False
        self._tail.clear()
        self._largest = TimestampOffset(_NO_TIMESTAMP, self.base_offset)
        self._is_index_full = self._indexed = None
        self._bytes_since_index_entry = 0
        for header in self.batches():
            self._index_again(header)
        self._finish_indexes()

    def _replay_valid(self, on_batch: Callable[[BatchHeader, Buffer], None]) -> tuple[int, str]:
        buffer = self.read(0, self.size)
        valid = 0
        next_offset = self.base_offset
        try:
            for header in iter_batches(buffer):
                check_batch(buffer, header)
                if header.base_offset < next_offset:
                    return valid, f"offset {header.base_offset} where {next_offset} is next"
                if not self.offset_index.can_append(header.last_offset):
                    return valid, f"offset {header.last_offset} does not belong in this file"
                on_batch(header, buffer)
                self._index_again(header)
                next_offset = header.next_offset
                valid = header.end_position
        except CorruptionError as error:
            return valid, str(error)
        return valid, "the file ends within a batch"

    def _index_again(self, header: BatchHeader) -> None:
        """Index a batch that is in the file already; leave entries out if there is no space."""
        try:
            self._index(header.position, header.size, header.last_offset, header.max_timestamp)
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise
            self.offset_index.truncate_to(header.last_offset)
            self._is_index_full = True  # fewer entries are slower, not wrong

    def _finish_indexes(self) -> None:
        largest = self.largest()
        try:
            self.time_index.maybe_append(*largest, even_if_full=True)
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise
        self._is_index_full = None
        self.offset_index.trim()
        self.time_index.trim()
        self._is_trimmed = True

    def check_indexes(self) -> None:
        """Raise CorruptionError unless the indexes are there, and fit the log file."""
        self.offset_index.check(self.size)
        self.time_index.check(self.size)
        self.transaction_index.check()

    # Files.

    def paths(self) -> list[PurePath]:
        """Return the files of this segment that may exist."""
        kinds = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
        return [self.path(kind) for kind in kinds]

    def unsynced_indexes(self) -> list[UnsyncedIndex]:
        """Return the indexes that were changed since they were last synced: mostly none."""
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        found = ((index, index.unsynced_changes) for index in indexes)
        return [UnsyncedIndex(each, changes) for each, changes in found if changes is not None]

    def sync(self) -> None:
        self._log_file().sync()
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()

    def close(self, *, trim: bool = False) -> None:
        """Close the files; ``trim`` leaves the indexes as short as they are (a clean stop)."""
        if trim:
            self.on_become_inactive()
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def rename_to(self, suffix: str) -> None:
        """Change the suffix behind the files' usual names. The log file goes last.

        A log file is what makes a segment: indexes without one are litter that loading removes.
        """
        self.close()
        old = self.path(LOG_SUFFIX)
        self._suffix = suffix
        self.transaction_index.rename(self.path(TRANSACTION_INDEX_SUFFIX))
        self.time_index.rename(self.path(TIME_INDEX_SUFFIX))
        self.offset_index.rename(self.path(OFFSET_INDEX_SUFFIX))
        self._disk.rename(old, self.path(LOG_SUFFIX))

    def reconfigure(self, config: LogConfig) -> None:
        self._config = config

    def relocate(self, folder: PurePath) -> None:
        """Go on in a folder that was renamed."""
        self.close()
        self._folder = folder
        self.offset_index.relocate(self.path(OFFSET_INDEX_SUFFIX))
        self.time_index.relocate(self.path(TIME_INDEX_SUFFIX))
        self.transaction_index.relocate(self.path(TRANSACTION_INDEX_SUFFIX))

    def remove(self) -> None:
        self.close()
        for path in self.paths():
            self._disk.remove(path)
