"""``.index`` and ``.timeindex`` files: their entries, checked against the log they belong to.

The index of a segment that is still written, or that a crash left, has zeros behind its entries.
An entry that repeats the base offset ends it, except as the first: with no entry at all, the first
line shows the zeros as an entry. That is Kafka's reading, and so are the searches below: they take
the zeros for entries too.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from odradek.core.errors import CorruptionError
from odradek.storage.dump.batches import FoundBatch, iter_batches
from odradek.storage.dump.dumped_file import DumpedFile
from odradek.storage.dump.findings import Findings
from odradek.storage.dump.options import BYTES_MAX, DumpOptions
from odradek.storage.dump.read_only import ReadableFile, read_exactly
from odradek.storage.offset_index import OffsetIndex
from odradek.storage.time_index import TimeIndex

_WARM_BYTES: Final = 8192
_NO_TIMESTAMP: Final = -1


class _Entries:
    """An array of pairs of integers in a file."""

    def __init__(self, file: ReadableFile, entry: Struct, base_offset: int) -> None:
        self.base_offset = base_offset
        self.size = file.size
        self.count = self.size // entry.size
        self.entry_size = entry.size
        self._file = file
        self._unpack: Callable[[bytes], tuple[int, int]] = entry.unpack

    def at(self, slot: int) -> tuple[int, int]:
        return self._unpack(read_exactly(self._file, slot * self.entry_size, self.entry_size))


def offset_index_lines(
    name: DumpedFile, file: ReadableFile, log: ReadableFile, options: DumpOptions, found: Findings
) -> Iterator[str]:
    """Dump an offset index.

    Raises:
        CorruptionError: It fails the sanity check, or points to where no batch is.
    """
    index = _Entries(file, OffsetIndex.ENTRY, name.base_offset())
    # A new segment: Kafka's tool dies of the first entry, which points to no batch.
    is_new = index.count > 0 and log.size == 0 and index.at(0) == (0, 0)
    if index.count == 0 or is_new:
        yield f"{name.text} is empty."
        return
    if options.index_sanity_check:
        _check_offset_index(name, index)
        yield f"{name.text} passed sanity check."
        return
    for slot in range(index.count):
        relative, position = index.at(slot)
        if relative == 0 and slot > 0:
            return
        offset = index.base_offset + relative
        batch = next(_slice(log, position, options.message_bytes_max, name), None)
        if batch is None:
            raise CorruptionError(
                f"offset {offset} is indexed at position {position}, where the log has no whole "
                f"batch of at most {options.message_bytes_max} bytes"
            )
        if batch.header.last_offset != offset:
            found.index_mismatch(name.absolute, offset, batch.header.last_offset)
        if not options.verify_index_only:
            yield f"offset: {offset} position: {position}"


def time_index_lines(
    name: DumpedFile,
    file: ReadableFile,
    index_file: ReadableFile,
    log: ReadableFile,
    options: DumpOptions,
    found: Findings,
) -> Iterator[str]:
    """Dump a time index; ``index_file`` helps to find its offsets in the log.

    Raises:
        CorruptionError: It fails the sanity check, or the log cannot be read.
    """
    time_index = _Entries(file, TimeIndex.ENTRY, name.base_offset())
    offset_index = _Entries(index_file, OffsetIndex.ENTRY, name.base_offset())
    if options.index_sanity_check:
        _check_time_index(name, time_index)
        yield f"{name.text} passed sanity check."
        return
    before = _NO_TIMESTAMP
    for slot in range(time_index.count):
        timestamp, relative = time_index.at(slot)
        if relative == 0 and slot > 0:
            return
        offset = time_index.base_offset + relative
        batches = _slice(log, _lookup(offset_index, offset), BYTES_MAX, name)
        batch = next((each for each in batches if each.header.last_offset >= offset), None)
        if batch is None or batch.header.last_offset != offset:
            in_log = -1 if batch is None else batch.header.last_offset
            found.offset_not_found(name.absolute, offset, in_log)
        else:
            _check_timestamp(name, batch, timestamp, before, found)
        if not options.verify_index_only:
            yield f"timestamp: {timestamp} offset: {offset}"
        before = timestamp


def _check_timestamp(
    name: DumpedFile, batch: FoundBatch, timestamp: int, before: int, found: Findings
) -> None:
    timestamps = [message.record.timestamp for message in batch.messages()]
    in_log = max(timestamps, default=_NO_TIMESTAMP)
    in_log = max(in_log, _NO_TIMESTAMP)
    if in_log != timestamp:
        found.timestamp_mismatch(name.absolute, timestamp, in_log)
    if before >= timestamp:
        found.timestamp_out_of_order(name.absolute, timestamp, before)


def _slice(
    log: ReadableFile, position: int, bytes_max: int, name: DumpedFile
) -> Iterator[FoundBatch]:
    size = log.size
    if not 0 <= position <= size:
        raise CorruptionError(f"position {position} is indexed in a log of {size} bytes")
    log_name = str(name.sibling_path(".log"))
    return iter_batches(log, position, min(position + bytes_max, size), log_name)


def _lookup(index: _Entries, offset: int) -> int:
    """Return the position of the last entry at or before ``offset``, 0 if there is none.

    Where the entries do not ascend, for there are zeros behind them, the answer depends on the
    search: Kafka's looks at the last 8 KiB first and halves in its own way.
    """
    if index.count == 0:
        return 0
    target = offset - index.base_offset
    warm = max(index.count - 1 - _WARM_BYTES // index.entry_size, 0)
    if index.at(warm)[0] < target:
        low, high = warm, index.count - 1
    elif index.at(0)[0] > target:
        return 0
    else:
        low, high = 0, warm
    while low < high:
        middle = (low + high + 1) // 2
        relative = index.at(middle)[0]
        if relative == target:
            low = high = middle
        elif relative > target:
            high = middle - 1
        else:
            low = middle
    return index.at(low)[1]


def _check_offset_index(name: DumpedFile, index: _Entries) -> None:
    """Raise CorruptionError for an index that a starting broker would build anew."""
    last_offset = index.base_offset + index.at(index.count - 1)[0]
    if last_offset < index.base_offset:
        raise CorruptionError(
            f"Corrupt index found, index file {name.absolute} has non-zero size but the last "
            f"offset is {last_offset} which is less than the base offset {index.base_offset}"
        )
    if index.size % index.entry_size:
        raise CorruptionError(
            f"Index file {name.absolute} is corrupt, found {index.size} bytes which is neither "
            f"positive nor a multiple of {index.entry_size}"
        )


def _check_time_index(name: DumpedFile, index: _Entries) -> None:
    if index.count:
        first_timestamp = index.at(0)[0]
        timestamp, relative = index.at(index.count - 1)
        problem = f"Corrupt time index found, time index file ({name.absolute}) has non-zero size "
        if timestamp < first_timestamp:
            raise CorruptionError(
                f"{problem}but the last timestamp is {timestamp} which is less than the first "
                f"timestamp {first_timestamp}"
            )
        if relative < 0:
            raise CorruptionError(
                f"{problem}but the last offset is {index.base_offset + relative} which is less "
                f"than the first offset {index.base_offset}"
            )
    if index.size % index.entry_size:
        raise CorruptionError(
            f"Time index file {name.absolute} is corrupt, found {index.size} bytes which is "
            f"neither positive nor a multiple of {index.entry_size}"
        )
