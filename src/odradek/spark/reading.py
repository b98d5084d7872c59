"""A range of one partition, from its leader into Arrow record batches (hot path).

While Spark takes the rows of one answer the next one is on its way already. An answer is decoded in
pieces of whole batches, so that a task holds one answer, the next one, and the rows of one piece:
some 20 MiB, whatever the size of the range. Rows of aborted transactions are left out with
``isolation.level=read_committed``, control records always.

A leader that moved is looked for again, until ``kafkaConsumer.pollTimeoutMs`` have passed without
a record. Offsets that the log does not have any more are data loss.

Benchmark: ``bench/spark_source.py``.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from odradek.client.consumer.chunk import AbortedFilter
from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.records import BatchHeader
from odradek.records.arrow import PartitionRecords, to_table
from odradek.records.batch import CODEC_MASK
from odradek.spark.cluster_access import ClusterAccess, Fetched, access_to
from odradek.spark.header_rows import HeldBatch, are_headers_enough, batches_of, header_rows
from odradek.spark.offsets import EARLIEST, LATEST, OffsetRange
from odradek.spark.options import SourceOptions
from odradek.spark.planning import report_data_loss
from odradek.storage.scan import iter_batches

ROWS_MAX: Final = 65_536
PIECE_BYTES_MAX: Final = 8 * 1024 * 1024
COMPRESSION_RATIO: Final = 8
"""What a compressed batch is taken to grow by, for the limit above."""
_RETRY_SECONDS: Final = 0.1

BatchFilter = Callable[[memoryview, BatchHeader], bool]


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Iterate over the records of a range.

    Raises:
        DataLossError: Some of it is gone, and failOnDataLoss is set.
        KafkaError: The leader refuses, or is not there for too long.
        CorruptionError: A batch is not what its producer sent.
    """
    return _RangeReader(access_to(options.client), options, wanted).batches()


class _RangeReader:
    def __init__(self, access: ClusterAccess, options: SourceOptions, wanted: OffsetRange) -> None:
        self._access = access
        self._options = options
        self._partition = wanted.partition
        self._position = wanted.start
        self._end = wanted.end
        self._deadline = 0.0
        self._fruitless = 0
        self._on_progress()

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._position >= self._end:
            return
        coming = self._access.fetch(self._partition, self._position)
        try:
            while True:
                try:
                    fetched = coming.result()
                except KafkaError as error:
                    self._on_error(error)
                    pieces: list[tuple[memoryview, int]] = []
                else:
                    pieces = self._take_in(fetched)
                start, end = self._position, self._end
                self._position = pieces[-1][1] if pieces else self._position
                if self._position < end:
                    coming = self._access.fetch(self._partition, self._position)
                if pieces:
                    aborted = fetched.aborted if self._options.is_read_committed else None
                    rows = OffsetRange(self._partition, start, end)
                    yield from decode(self._options, rows, (each for each, _ in pieces), aborted)
                if self._position >= end:
                    return
        finally:
            coming.cancel()

    def _on_progress(self) -> None:
        self._deadline = time.monotonic() + self._options.poll_timeout_ms / 1000
        self._fruitless = 0

    def _take_in(self, fetched: Fetched) -> list[tuple[memoryview, int]]:
        """Cut an answer into pieces with the offset behind each."""
        pieces = list(cut(fetched.records))
        if pieces:
            self._on_progress()
            return pieces
        self._fruitless += 1
        # The end was known when the range was planned; a log that now ends before it lost records.
        if fetched.high_watermark < self._end and self._fruitless > self._options.retries:
            self._lose_to(self._end, f"the log ends at {fetched.high_watermark}")
        elif time.monotonic() > self._deadline:
            raise KafkaTimeoutError(
                f"{self._partition}: no record at {self._position} within "
                f"{self._options.poll_timeout_ms} ms, though records up to {self._end} were planned"
            )
        return []

    def _on_error(self, error: KafkaError) -> None:
        code = error.code if isinstance(error, BrokerError) else None
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range()
            return
        self._fruitless += 1
        is_gone = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        if is_gone and self._fruitless > self._options.retries:
            self._lose_to(self._end, "the topic is gone")
            return
        if not error.retriable or time.monotonic() > self._deadline:
            raise error
        time.sleep(_RETRY_SECONDS)
        try:
            self._access.refresh(self._partition.topic)
        except KafkaError:
            return  # asked again after the next attempt, until the time is over

    def _on_out_of_range(self) -> None:
        marks = (EARLIEST, LATEST)
        first, last = (self._access.list_offsets({self._partition: m}) for m in marks)
        log_start, log_end = first[self._partition], last[self._partition]
        if self._position < log_start:
            self._lose_to(min(log_start, self._end), f"the log begins at {log_start}")
        else:
            self._lose_to(self._end, f"the log ends at {log_end}")

    def _lose_to(self, offset: int, why: str) -> None:
        about = f"{self._partition}: offsets {self._position} to {offset - 1} are gone, {why}"
        report_data_loss(self._options, about)
        self._position = offset


def cut(records: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Cut records into pieces of whole batches that make tables of a bounded size.

    Each comes with the offset behind its last batch. What is left of a batch at the end is dropped.
    """
    start = weight = rows = next_offset = end = 0
    for header in iter_batches(records):
        grown = header.size * (COMPRESSION_RATIO if header.attributes & CODEC_MASK else 1)
        is_full = rows + header.records_count > ROWS_MAX or weight + grown > PIECE_BYTES_MAX
        if is_full and end > start:
            yield records[start:end], next_offset
            start, weight, rows = end, 0, 0
        weight, rows = weight + grown, rows + header.records_count
        next_offset, end = header.next_offset, header.end_position
    if end > start:
        yield records[start:end], next_offset


def decode(
    options: SourceOptions,
    wanted: OffsetRange,
    pieces: Iterable[memoryview],
    aborted: Iterable[tuple[int, int]] | None,
) -> Iterator[pa.RecordBatch]:
    """Decode batches; ``aborted`` has producer ids and first offsets, None where all is wanted."""
    if are_headers_enough(options):
        yield from rows_by_headers(options, wanted, batches_of(pieces), aborted)
        return
    committed = None if aborted is None else AbortedFilter(aborted)
    for piece in pieces:
        table = to_table(
            [_part(wanted.partition, piece, wanted)],
            include_headers=options.include_headers,
            batch_filter=None if committed is None else _seeing(committed, piece),
        )
        yield from (batch for batch in table.to_batches(ROWS_MAX) if batch.num_rows)


def rows_by_headers(
    options: SourceOptions,
    wanted: OffsetRange,
    batches: Iterable[HeldBatch],
    aborted: Iterable[tuple[int, int]] | None,
) -> Iterator[pa.RecordBatch]:
    """Return rows of batches that need not be opened, but for some."""

    def open_batch(data: memoryview) -> Iterator[pa.RecordBatch]:
        # Whose records are void is known by then.
        yield from to_table([_part(wanted.partition, data, wanted)]).to_batches(ROWS_MAX)

    return header_rows(wanted, options.columns, batches, aborted, open_batch, ROWS_MAX)


def _part(partition: TopicPartition, piece: memoryview, wanted: OffsetRange) -> PartitionRecords:
    return PartitionRecords(*partition, piece, wanted.start, wanted.end)


def _seeing(committed: AbortedFilter, piece: memoryview) -> Callable[[BatchHeader], bool]:
    return lambda header: committed.is_wanted(piece, header)
