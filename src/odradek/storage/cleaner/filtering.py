"""What becomes of one batch: it stays as it is, is rebuilt without some records, or goes.

::

    batch                                     becomes
    behind the clean end                      what it is
    data, aborted                             nothing
    data                                      its records that are the newest of their key, with a
                                              delete horizon if there are tombstones among them
    data whose horizon has passed             the same without tombstones
    marker, its transaction has other batches what it is
    marker, the last of its transaction       itself with a delete horizon; nothing once that passed
    control, of no transaction                what it is

A batch that must stay (``_must_stay``) stays empty where the table says nothing. A marker that must
stay keeps its record; Kafka takes that out, and with it the producer's epoch and the coordinator's.

Where the last batch of a new segment would go, a batch of nobody and with nothing takes its place.
Kafka leaves a gap, except before the high watermark. But a log whose segments follow each other
without gaps can tell, after a crash, whether one is missing, and a ``.swap`` file tells by itself
which segments it replaces.

Kafka also filters aborted data and sets delete horizons behind the clean end, where a tombstone
stands that has not yet removed a single value. When the next cleaning comes after that horizon,
both go at once, and a reader between the two never hears of the tombstone. We leave all of it be.
"""

from collections.abc import Sequence

from odradek.records import (
    BatchBuilder,
    BatchHeader,
    CompressionType,
    Record,
    build_empty_batch,
    read_records,
)
from odradek.records.batch import (
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from odradek.storage.cleaner.offset_map import OffsetMap
from odradek.storage.cleaner.task import CleaningTask
from odradek.storage.cleaner.transactions import Transactions
from odradek.storage.config import LONG_MAX
from odradek.storage.disk import Buffer
from odradek.storage.transaction_index import AbortedTransaction


class BatchFilter:
    """Judges the batches of one log in their order, up to ``clean_end_offset`` and beyond."""

    def __init__(
        self,
        task: CleaningTask,
        offset_map: OffsetMap,
        transactions: Transactions,
        clean_end_offset: int,
    ) -> None:
        self._task = task
        self._map = offset_map
        self._transactions = transactions
        self._clean_end_offset = clean_end_offset
        self._new_horizon_ms = min(task.now_ms + task.config.delete_retention_ms, LONG_MAX)
        self._aborted: list[AbortedTransaction] = []
        self.segment_end_offset = clean_end_offset
        """Where the segment ends that the batches go to."""
        self.read_records = 0
        self.written_records = 0
        self.keyless_records = 0

    def take_aborted(self) -> list[AbortedTransaction]:
        """Return the entries of the transaction index that belong to batches kept since."""
        aborted, self._aborted = self._aborted, []
        return aborted

    def filter(self, buffer: Buffer, header: BatchHeader) -> Buffer | None:
        """Return what is left of a batch, None if nothing is."""
        self.read_records += header.records_count
        if header.is_control:
            return self._control(buffer, header)
        is_aborted = header.is_transactional and self._transactions.on_data(header)
        if header.base_offset >= self._clean_end_offset:
            return self._as_it_is(buffer, header)
        if is_aborted or header.records_count == 0:
            return self._emptied(header)
        return self._data(buffer, header)

    def _data(self, buffer: Buffer, header: BatchHeader) -> Buffer | None:
        horizon_ms = header.delete_horizon_ms
        is_over = horizon_ms is not None and horizon_ms <= self._task.now_ms
        kept, tombstones, keyless = self._map.retain(
            read_records(buffer, header), drop_tombstones=is_over
        )
        self.keyless_records += keyless
        if not kept:
            return self._emptied(header)
        needs_horizon = tombstones > 0 and horizon_ms is None
        if len(kept) == header.records_count and not needs_horizon:
            return self._as_it_is(buffer, header)
        self.written_records += len(kept)
        return _rebuilt(header, kept, self._new_horizon_ms if needs_horizon else horizon_ms)

    def _control(self, buffer: Buffer, header: BatchHeader) -> Buffer | None:
        if header.records_count == 0:
            # Kafka emptied it. It ends nothing, and says nothing but where the log went on.
            return self._emptied(header)
        if not header.is_transactional:
            return self._as_it_is(buffer, header)
        ended = self._transactions.on_marker(header)
        horizon_ms = header.delete_horizon_ms
        is_last = not ended.has_data and header.base_offset < self._clean_end_offset
        if is_last and horizon_ms is not None and horizon_ms <= self._task.now_ms:
            if not self._must_stay(header):
                return self._emptied(header)
            is_last = False
        if ended.aborted is not None:
            self._aborted.append(ended.aborted)
        if is_last and horizon_ms is None:
            self.written_records += 1
            return _rebuilt(header, list(read_records(buffer, header)), self._new_horizon_ms)
        return self._as_it_is(buffer, header)

    def _as_it_is(self, buffer: Buffer, header: BatchHeader) -> Buffer:
        self.written_records += header.records_count
        return memoryview(buffer)[header.position : header.end_position]

    def _emptied(self, header: BatchHeader) -> Buffer | None:
        if self._must_stay(header):
            return build_empty_batch(header)
        if header.next_offset == self.segment_end_offset:
            return build_empty_batch(_of_nobody(header))
        return None

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the log would know less of a producer without this batch."""
        last = self._task.last_records.get(header.producer_id)
        if last is None or not header.has_producer_id:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _of_nobody(header: BatchHeader) -> BatchHeader:
    return header._replace(
        attributes=header.attributes & LOG_APPEND_TIME_FLAG,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
    )


def _rebuilt(
    header: BatchHeader, records: Sequence[Record], delete_horizon_ms: int | None
) -> bytearray:
    """Return the batch with these records only; its offsets and sequences stay."""
    builder = BatchBuilder(
        codec=CompressionType(header.codec),
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time=header.log_append_time,
        delete_horizon_ms=delete_horizon_ms,
    )
    builder.append_records(records)
    return builder.build(last_offset=header.last_offset)
