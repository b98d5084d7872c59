"""Batches of a table's rows, and what becomes of the table: one future, no object per row. Pure.

A table goes out as batches of many partitions; its receipt counts them. When the last is done it
has the offsets of all rows, or the rows that were not delivered.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.client.errors import KafkaError
from odradek.client.producer.batch import Format, Headers, ProducerBatch
from odradek.core.ids import TopicPartition
from odradek.records.builder import finish_batch
from odradek.records.columns import EncodedRows
from odradek.records.record import Buffer


class ColumnNames(NamedTuple):
    """The columns to send. Only that of values has to be there, and those with other names."""

    value: str = "value"
    key: str | None = "key"
    headers: str | None = "headers"
    timestamp: str | None = "timestamp"
    partition: str | None = "partition"


class OffsetRange(NamedTuple):
    """Offsets from ``base_offset`` up to ``end_offset``, which is not among them."""

    base_offset: int
    end_offset: int


class RowsMetadata(NamedTuple):
    """Where rows went: in each partition in their order, with what others sent in between.

    A partition has no offsets where the broker did not say (acks=0).
    """

    topic: str
    rows: int
    partitions: Mapping[int, tuple[OffsetRange, ...]]


class RowsNotDeliveredError(KafkaError):
    """Some rows were not delivered; ``__cause__`` is what happened to the first of them.

    ``rows`` are their numbers, so that ``table.take(error.rows)`` can be sent again, or written
    down. ``delivered`` is where the others are.
    """

    def __init__(
        self, rows: list[int], delivered: RowsMetadata, cause: BaseException | None
    ) -> None:
        self.rows = rows
        self.delivered = delivered
        total = len(rows) + delivered.rows
        super().__init__(f"{delivered.topic}: {len(rows)} of {total} rows not delivered: {cause}")
        self.__cause__ = cause

    @property
    def retriable(self) -> bool:  # type: ignore[override]  # a class attribute in the base
        return isinstance(self.__cause__, KafkaError) and self.__cause__.retriable


class RowSpan(NamedTuple):
    """Which rows of a table a batch has: those that ``order`` names from ``start`` on."""

    first_row: int
    """The table's row that ``order`` calls 0."""
    order: memoryview | None
    """Numbers of rows; without it they are as in the table."""
    start: int

    def after(self, count: int) -> "RowSpan":
        return self._replace(start=self.start + count)

    def rows(self, count: int) -> Iterable[int]:
        if self.order is None:
            first = self.first_row + self.start
            return range(first, first + count)
        return (self.first_row + row for row in self.order[self.start : self.start + count])


class RowsReceipt:
    """Counts the batches of a table; ``future`` is done when all are, and no more will come."""

    def __init__(self, topic: str, rows: int, future: "asyncio.Future[RowsMetadata]") -> None:
        self.future = future
        self._topic = topic
        self._rows = rows
        self._open = 1  # that of who still hands over
        self._delivered: list[tuple[RowSpan, int]] = []
        self._ranges: dict[int, list[OffsetRange]] = {}
        self._error: BaseException | None = None
        self._is_expected = True

    @property
    def is_begun(self) -> bool:
        """Whether any rows were handed over."""
        return self._open > 1 or self._error is not None or bool(self._delivered)

    def on_begun(self, batches: int = 1) -> None:
        """There are more batches to wait for."""
        self._open += batches

    def on_delivered(self, partition: int, base_offset: int, span: RowSpan, count: int) -> None:
        self._delivered.append((span, count))
        ranges = self._ranges.setdefault(partition, [])
        if base_offset >= 0:
            ranges.append(OffsetRange(base_offset, base_offset + count))
        self._close_one()

    def on_failed(self, error: BaseException, *, is_expected: bool = False) -> None:
        """Count a batch that failed; ``is_expected``: nobody need be warned of it."""
        self._error = self._error or error
        self._is_expected = self._is_expected and is_expected
        self._close_one()

    def on_handed_over(self, error: Exception | None = None) -> None:
        """No more batches will come: all rows are in one, or ``error`` was in the way."""
        if error is None:
            self._close_one()
        else:
            self.on_failed(error)

    def _close_one(self) -> None:
        self._open -= 1
        if self._open or self.future.done():
            return
        count = sum(count for _, count in self._delivered)
        partitions = {number: _merged(ranges) for number, ranges in sorted(self._ranges.items())}
        delivered = RowsMetadata(self._topic, count, partitions)
        if self._error is None:
            self.future.set_result(delivered)
            return
        failed = RowsNotDeliveredError(self._undelivered(), delivered, self._error)
        self.future.set_exception(failed)
        if self._is_expected:
            self.future.exception()

    def _undelivered(self) -> list[int]:
        is_delivered = bytearray(self._rows)
        for span, count in self._delivered:
            for row in span.rows(count):
                is_delivered[row] = 1
        return [row for row, is_there in enumerate(is_delivered) if not is_there]


def _merged(ranges: list[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Bring ranges into order and join those that touch."""
    merged: list[OffsetRange] = []
    for each in sorted(ranges):
        if merged and merged[-1].end_offset == each.base_offset:
            each = OffsetRange(merged.pop().base_offset, each.end_offset)
        merged.append(each)
    return tuple(merged)


class RowBatch(ProducerBatch):
    """A batch of rows that were encoded together; takes no others."""

    __slots__ = ("_encoded", "_receipt", "_span")

    def __init__(
        self,
        partition: TopicPartition,
        record_format: Format,
        created_ms: float,
        order: tuple[int, int],
        reserved_bytes: int,
        receipt: RowsReceipt,
        span: RowSpan,
    ) -> None:
        super().__init__(partition, record_format, created_ms, order, reserved_bytes)
        self._receipt = receipt
        self._span = span
        self._encoded: EncodedRows | None = None
        self.is_closed = self.is_full = True

    def take_rows(self, encoded: EncodedRows) -> None:
        """Be the batch of these rows; they have room for a header before them."""
        self._encoded = encoded
        self.count = encoded.next_row - self._span.start
        self.size = len(encoded.buffer)
        self._receipt.on_begun()

    def build(self) -> bytearray:
        encoded = self._encoded
        if encoded is None:
            return super().build()
        self._encoded = self._builder = None
        self.records = finish_batch(
            encoded.buffer,
            records_count=self.count,
            base_timestamp=encoded.base_timestamp,
            max_timestamp=encoded.max_timestamp,
            batch_bytes_max=self.size,
            codec=self._format.codec,
            level=self._format.level,
            transactional=self._format.transactional,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.base_sequence,
        )
        return self.records

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:  # noqa: ARG002
        assert not self.is_done
        self.is_done = True
        self._receipt.on_delivered(self.partition.partition, base_offset, self._span, self.count)
        self._finish()

    def fail(
        self,
        error: KafkaError,
        by_record: Mapping[int, KafkaError] | None = None,
        *,
        is_expected: bool = False,
    ) -> None:
        assert not self.is_done
        self.is_done = True
        if by_record:
            error = by_record[min(by_record)]
        self._receipt.on_failed(error, is_expected=is_expected)
        self._finish()

    def split(self, size_max: int) -> list[ProducerBatch]:
        parts = super().split(size_max)
        self._receipt.on_begun(len(parts) - 1)
        return parts

    def _hand_on(
        self,
        part: ProducerBatch,
        index: int,  # noqa: ARG002
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> None:
        part.size = part.append_record(timestamp, key, value, headers)
        part.count += 1

    def _new_part(self, order: tuple[int, int], reserved_bytes: int) -> "RowBatch":
        return RowBatch(
            self.partition,
            self._format,
            self.created_ms,
            order,
            reserved_bytes,
            self._receipt,
            self._span.after(order[1] - self.order[1]),
        )
