"""A read of a log: which bytes of which segment, and which transactions were aborted in them.

Hot path; benchmark ``bench/storage.py``. Whether the offset may be read at all is the log's to say.
"""

from typing import NamedTuple

from odradek.storage.disk import Buffer
from odradek.storage.offset_index import IndexEntry
from odradek.storage.segment import BatchPosition
from odradek.storage.segments import Segments
from odradek.storage.transaction_index import AbortedTransaction


class ReadResult(NamedTuple):
    records: Buffer
    """Whole batches, the first of which holds the wanted offset; only the last may be cut short."""
    aborted_transactions: list[AbortedTransaction] | None = None
    """For LAST_STABLE_OFFSET: what to leave out of ``records``."""


def read_segments(
    segments: Segments,
    offset: int,
    *,
    end_offset: int,
    log_end_offset: int,
    bytes_max: int,
    at_least_one_batch: bool,
    with_aborted: bool,
) -> ReadResult:
    """Return batches from the one that holds ``offset`` on, none from ``end_offset`` on."""
    slot = segments.slot_of(offset)
    while offset < end_offset and slot < len(segments):
        segment = segments[slot]
        found = segment.search_for(offset)
        if found is not None:
            is_all = end_offset >= log_end_offset
            end = segment.size if is_all else _end_position(segments, slot, end_offset)
            count = max(bytes_max, found.size) if at_least_one_batch else bytes_max
            count = min(count, end - found.position)
            if count <= 0:
                break
            records = segment.read(found.position, count)
            if not with_aborted:
                return ReadResult(records)
            upper = _upper_bound(segments, slot, found, count, log_end_offset)
            return ReadResult(records, _aborted(segments, slot, found.base_offset, upper))
        slot += 1  # compaction emptied the rest of the segment
    return ReadResult(b"", [] if with_aborted else None)


def _end_position(segments: Segments, slot: int, end_offset: int) -> int:
    """Return up to which position of a segment a reader with ``end_offset`` may see."""
    segment = segments[slot]
    if slot + 1 < len(segments) and end_offset >= segments[slot + 1].base_offset:
        return segment.size
    found = segment.search_for(end_offset)
    return segment.size if found is None else found.position


def _upper_bound(
    segments: Segments, slot: int, start: BatchPosition, count: int, log_end_offset: int
) -> int:
    """Return an offset that ``count`` bytes from ``start`` on do not reach."""
    index = segments[slot].offset_index
    bound = index.upper_bound(IndexEntry(start.base_offset, start.position), count)
    if bound is not None:
        return bound.offset
    if slot + 1 < len(segments):
        return segments[slot + 1].base_offset
    return log_end_offset


def _aborted(segments: Segments, slot: int, offset: int, upper: int) -> list[AbortedTransaction]:
    """Collect the aborted transactions that reach into ``[offset, upper)``."""
    found: list[AbortedTransaction] = []
    # A transaction's entry is where its marker is, which may be segments later.
    for later in range(slot, len(segments)):
        part, is_complete = segments[later].transaction_index.collect(offset, upper)
        found += part
        if is_complete:
            break
    return found
