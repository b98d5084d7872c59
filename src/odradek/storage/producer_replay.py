"""From batches to the state of their producers: as they are appended, and again when read back.

The state itself is ``producer_state``. This is what lies between it and a log: markers are read out
of their control batches, and a transaction that was aborted gets its entry in the transaction index
of the segment that its marker is in.
"""

from collections.abc import Iterator
from typing import Final

from odradek.records import BatchHeader, EndTransactionMarker, read_records
from odradek.records.batch import CONTROL_FLAG, MAGIC, NO_PRODUCER_ID, TRANSACTIONAL_FLAG
from odradek.records.control import decode_end_transaction_marker
from odradek.storage.disk import Buffer
from odradek.storage.producer_state import BatchMetadata, ProducerStates
from odradek.storage.scan import iter_batches
from odradek.storage.segment import Segment
from odradek.storage.segments import Segments
from odradek.storage.transaction_index import AbortedTransaction

RECALLED_RECORDS_MAX: Final = 10_000
"""How many records before the last batch of a producer are looked at for those before it."""


def read_marker(buffer: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker that a transactional control batch holds, None for any other batch.

    Raises:
        CorruptionError: It should hold one and does not.
    """
    if header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG) != CONTROL_FLAG | TRANSACTIONAL_FLAG:
        return None
    record = next(read_records(buffer, header), None)
    if record is None:
        return None  # the cleaner took the marker out and left the batch for its sequence
    return decode_end_transaction_marker(record.key, record.value)


def apply_appended(
    states: ProducerStates,
    header: BatchHeader,
    marker: EndTransactionMarker | None,
    segment: Segment,
    now_ms: int,
) -> None:
    """Take note of a batch that was just appended to ``segment``."""
    completed = states.apply(header, now_ms, marker)
    if completed is None:
        return
    if completed.is_aborted:
        last_stable_offset = states.last_stable_offset(completed)
        segment.transaction_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                last_stable_offset,
            )
        )
    states.complete(completed)


def replay(
    states: ProducerStates, segments: Segments, *, start_offset: int, end_offset: int
) -> None:
    """Apply the batches of ``[start_offset, end_offset)``, whose index entries exist already."""
    for buffer, header in _iter_produced(segments, start_offset, end_offset):
        completed = states.apply(header, 0, read_marker(buffer, header))
        if completed is not None:
            states.complete(completed)
    states.update_map_end_offset(end_offset)


def recall_duplicate(
    states: ProducerStates, segments: Segments, header: BatchHeader
) -> BatchMetadata | None:
    """Return what became of a batch that was written before those that a snapshot has.

    What a producer sends again was under way when the node stopped, so it is close to the last
    batch. A long walk would hold up everybody else, and no client should be able to ask for one:
    it happens once for a producer after each start, and covers few records.
    """
    end_offset = states.recall_before(header)
    if end_offset is None:
        return None
    start_offset = max(end_offset - RECALLED_RECORDS_MAX, 0)
    earlier = [
        each
        for _, each in _iter_produced(segments, start_offset, end_offset)
        if each.producer_id == header.producer_id
        and each.producer_epoch == header.producer_epoch
        and not each.attributes & CONTROL_FLAG
    ]
    states.recall(header.producer_id, earlier)
    return states.find_duplicate(header)


def _iter_produced(
    segments: Segments, start_offset: int, end_offset: int
) -> Iterator[tuple[Buffer, BatchHeader]]:
    """Iterate over the batches of ``[start_offset, end_offset)`` that have a producer id."""
    if start_offset >= end_offset:
        return  # as after every clean stop: nothing is read for that
    slot = max(segments.slot_of(start_offset), 0)
    for segment in list(segments)[slot:]:
        if segment.base_offset >= end_offset:
            break
        found = segment.search_for(start_offset)
        if found is None:
            continue
        buffer = segment.read(found.position, segment.size - found.position)
        for header in iter_batches(buffer):
            if header.last_offset >= end_offset:
                break
            if header.magic == MAGIC and header.producer_id > NO_PRODUCER_ID:
                yield buffer, header
