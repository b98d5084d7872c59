"""From batches to the state of their producers: as they are appended, and again when read back.

The state itself is ``producer_state``. This is what lies between it and a log: markers are read out
of their control batches, and a transaction that was aborted gets its entry in the transaction index
of the segment that its marker is in.
"""

from odradek.records import BatchHeader, EndTransactionMarker, read_records
from odradek.records.batch import CONTROL_FLAG, MAGIC, NO_PRODUCER_ID, TRANSACTIONAL_FLAG
from odradek.records.control import decode_end_transaction_marker
from odradek.storage.disk import Buffer
from odradek.storage.producer_state import ProducerStates
from odradek.storage.scan import iter_batches
from odradek.storage.segment import Segment
from odradek.storage.segments import Segments
from odradek.storage.transaction_index import AbortedTransaction


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
                completed = states.apply(header, 0, read_marker(buffer, header))
                if completed is not None:
                    states.complete(completed)
    states.update_map_end_offset(end_offset)
