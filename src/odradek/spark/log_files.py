"""The files of one log, looked at and never touched, while a broker may be appending to them.

Indexes are hints: an entry that leads past what is looked for, as in a file that is just being
written, is not believed and the segment is read from its beginning.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final

from odradek.core.errors import CorruptionError
from odradek.records import BatchHeader, parse_header, read_records
from odradek.records.batch import HEADER_BYTES, magic_at
from odradek.records.legacy import convert_to_v2
from odradek.spark.header_rows import HeldBatch
from odradek.storage.dump.read_only import ReadOnlyFile
from odradek.storage.producer_snapshot import decode_snapshot
from odradek.storage.scan import iter_batches, peek_batch

READ_BYTES: Final = 4 * 1024 * 1024
_ENTRIES_AT_ONCE: Final = 8192
BATCH_BYTES_MAX: Final = 2**31 - 1
_LENGTH_END: Final = 12
_MESSAGE_HEADER_BYTES: Final = 26  # of the oldest format, the shortest there is
_WINDOW_BYTES: Final = 4096
"""Read to see a header: more than one of small batches, little of large ones."""
_MAGIC_V2: Final = 2
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_SNAPSHOT: Final = re.compile(r"(\d{20})\.snapshot")
_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_ABORTED_ENTRY: Final = Struct(">hqqqq")


class LogFiles:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def base_offsets(self) -> list[int]:
        return self._named(_SEGMENT)

    def _named(self, pattern: re.Pattern[str]) -> list[int]:
        matches = (pattern.fullmatch(each.name) for each in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def path(self, base_offset: int, suffix: str = ".log") -> Path:
        return self.folder / f"{base_offset:020d}{suffix}"

    def size(self, base_offset: int) -> int:
        return self.path(base_offset).stat().st_size

    def chunks(self, start: int, end: int) -> Iterator[memoryview]:
        """Iterate over pieces of whole batches, from the one with ``start`` to before ``end``.

        Raises:
            FileNotFoundError: A segment was deleted, or the first one begins after ``start``.
        """
        for base_offset in self._segments_with(start, end):
            yield from self.segment_chunks(base_offset, self._position(base_offset, start), end)

    def _segments_with(self, start: int, end: int) -> list[int]:
        bases = self.base_offsets()
        first = bisect_right(bases, start) - 1
        if first < 0:
            raise FileNotFoundError(f"no segment in {self.folder} has offset {start}")
        return bases[first : bisect_left(bases, end)]

    def held_batches(self, start: int, end: int) -> Iterator[HeldBatch]:
        """Iterate over batches, as ``chunks`` does, of which only the headers are read.

        What ``load`` gets is good until the next batch.

        Raises:
            FileNotFoundError: As ``chunks``.
        """
        for base_offset in self._segments_with(start, end):
            file = ReadOnlyFile(self.path(base_offset))
            try:
                yield from _held_in(file, self._position(base_offset, start), end)
            finally:
                file.close()

    def segment_chunks(self, base_offset: int, position: int, end: int) -> Iterator[memoryview]:
        file = ReadOnlyFile(self.path(base_offset))
        try:
            while True:
                data = memoryview(file.read(position, READ_BYTES))
                if len(data) >= _LENGTH_END:
                    size = _LENGTH_END + int.from_bytes(data[8:_LENGTH_END], "big", signed=True)
                    if len(data) < size <= BATCH_BYTES_MAX:
                        data = memoryview(file.read(position, size))
                whole = 0
                is_past = False
                for header in iter_batches(data):
                    is_past = header.base_offset >= end
                    if not is_past or _is_wrapper(header):
                        whole = header.end_position
                    if is_past:
                        break
                if whole:
                    yield data[:whole]
                if is_past or not whole:
                    return
                position += whole
        finally:
            file.close()

    def headers(self, start: int, end: int) -> Iterator[BatchHeader]:
        """Iterate over the headers of batches; their positions are within some piece."""
        for chunk in self.chunks(start, end):
            yield from iter_batches(chunk)

    def end_offset(self) -> int:
        """Return the offset behind the last whole batch."""
        bases = self.base_offsets()
        if not bases:
            return 0
        last = bases[-1]
        # What the last entry of the index leads to may be cut short: then from the beginning.
        for position in (self._position(last, self._last_indexed(last)), 0):
            offset = None
            for chunk in self.segment_chunks(last, position, BATCH_BYTES_MAX**2):
                for header in iter_batches(chunk):
                    offset = header.next_offset
            if offset is not None:
                return offset
        return last

    # Indexes.

    def _position(self, base_offset: int, start: int) -> int:
        """Return where to begin to read so as to meet the batch with ``start``."""
        if start <= base_offset:
            return 0
        entries = self._offset_entries(base_offset)
        slot = bisect_right(entries, start - base_offset, key=lambda each: each[0]) - 1
        if slot < 0:
            return 0
        position = entries[slot][1]
        return position if self._is_at_or_before(base_offset, position, start) else 0

    def _last_indexed(self, base_offset: int) -> int:
        entries = self._offset_entries(base_offset)
        return base_offset + (entries[-1][0] if entries else 0)

    def _offset_entries(self, base_offset: int) -> list[tuple[int, ...]]:
        entries = self._entries(base_offset, ".index", _OFFSET_ENTRY)
        return [each for each in entries if each[0] > 0]

    def _entries(self, base_offset: int, suffix: str, entry: Struct) -> list[tuple[int, ...]]:
        """Return the entries of an index, and maybe some zeros; none if there is no such file."""
        try:
            file = ReadOnlyFile(self.path(base_offset, suffix))
        except FileNotFoundError:
            return []
        entries: list[tuple[int, ...]] = []
        size = entry.size * _ENTRIES_AT_ONCE
        try:
            while data := file.read(len(entries) * entry.size, size):
                entries += entry.iter_unpack(data[: len(data) - len(data) % entry.size])
                # The rest of a preallocated file is zeros, ten megabytes of them.
                if len(data) < size or not any(entries[-1]):
                    break
        finally:
            file.close()
        return entries

    def _is_at_or_before(self, base_offset: int, position: int, start: int) -> bool:
        file = ReadOnlyFile(self.path(base_offset))
        try:
            header = peek_batch(file.read(position, 128))
        except CorruptionError:
            return False
        finally:
            file.close()
        return base_offset <= header.base_offset <= start

    # Time.

    def offset_at(self, timestamp_ms: int, start: int, end: int) -> int | None:
        """Return the first offset from ``start`` with that time or a later one, before ``end``."""
        bases = self.base_offsets()
        for slot, base_offset in enumerate(bases):
            is_last = slot + 1 == len(bases)
            if not is_last and (
                bases[slot + 1] <= start or self._ends_before(base_offset, timestamp_ms)
            ):
                continue
            for chunk in self.segment_chunks(
                base_offset, self._position_before(base_offset, timestamp_ms), end
            ):
                for header in iter_batches(chunk):
                    found = _offset_in(chunk, header, timestamp_ms, start)
                    if found is not None:
                        return found if found < end else None
        return None

    def _position_before(self, base_offset: int, timestamp_ms: int) -> int:
        """Return a position before which the time index says that all is older than that."""
        entries = self._entries(base_offset, ".timeindex", _TIME_ENTRY)
        older = [relative for time_ms, relative in entries if 0 < time_ms < timestamp_ms]
        return self._position(base_offset, base_offset + max(older, default=0))

    def _ends_before(self, base_offset: int, timestamp_ms: int) -> bool:
        """Whether the time index says that nothing in a closed segment is as new as that."""
        entries = self._entries(base_offset, ".timeindex", _TIME_ENTRY)
        return bool(entries) and 0 < max(entries)[0] < timestamp_ms

    # Transactions.

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return producer ids and first offsets of aborted transactions with records in a range."""
        found = []
        for base_offset in self.base_offsets():
            for _, producer_id, first, last, _ in self._entries(
                base_offset, ".txnindex", _ABORTED_ENTRY
            ):
                if first < end and last >= start:
                    found.append((producer_id, first))
        return found

    def last_stable_offset(self, log_start: int, high_watermark: int) -> int:
        """Return where the first transaction begins that is open at the high watermark."""
        start, open_transactions = self._snapshot_before(high_watermark)
        for header in self.headers(max(start, log_start), high_watermark):
            if header.is_control:
                open_transactions.pop(header.producer_id, None)
            elif header.is_transactional:
                open_transactions.setdefault(header.producer_id, header.base_offset)
        return min([high_watermark, *open_transactions.values()])

    def _snapshot_before(self, offset: int) -> tuple[int, dict[int, int]]:
        """Return the newest snapshot's offset and open transactions; 0 and none without one."""
        snapshots = self._named(_SNAPSHOT)
        for each in reversed(snapshots[: bisect_left(snapshots, offset + 1)]):
            try:
                entries = decode_snapshot(self.path(each, ".snapshot").read_bytes())
            except (CorruptionError, FileNotFoundError):
                continue
            begun = {e.producer_id: e.current_txn_first_offset for e in entries}
            return each, {producer: first for producer, first in begun.items() if first >= 0}
        return 0, {}


def _held_in(file: ReadOnlyFile, position: int, end: int) -> Iterator[HeldBatch]:
    size = file.size
    window, window_start = b"", position
    while True:
        at = position - window_start
        if at + HEADER_BYTES > len(window):
            window, window_start, at = file.read(position, _WINDOW_BYTES), position, 0
        if len(window) - at < _MESSAGE_HEADER_BYTES:
            return
        if magic_at(window, at) == _MAGIC_V2 and len(window) - at < HEADER_BYTES:
            return
        header = peek_batch(window, at)
        if position + header.size > size:
            size = file.size  # it may be growing
            if position + header.size > size:
                return
        is_past = header.base_offset >= end
        if not is_past or _is_wrapper(header):
            load = partial(_load, file, position, header.size)
            yield HeldBatch(header._replace(position=0), load)
        if is_past:
            return
        position += header.size


def _is_wrapper(header: BatchHeader) -> bool:
    """Whether it is a message of messages: its offset is that of the last in it."""
    return header.magic < _MAGIC_V2 and bool(header.codec)


def _load(file: ReadOnlyFile, position: int, size: int) -> memoryview:
    return memoryview(file.read(position, size))


def _offset_in(chunk: memoryview, header: BatchHeader, timestamp_ms: int, start: int) -> int | None:
    if header.magic == _MAGIC_V2 and (
        header.max_timestamp < timestamp_ms or header.last_offset < start or header.is_control
    ):
        return None
    batches: list[memoryview] = [chunk[header.position : header.end_position]]
    if header.magic < _MAGIC_V2:
        batches = [memoryview(each) for each in convert_to_v2(batches[0])]
    for batch in batches:
        for record in read_records(batch, parse_header(batch)):
            if record.timestamp >= timestamp_ms and record.offset >= start:
                return record.offset
    return None
