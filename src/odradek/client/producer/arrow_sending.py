"""From an Arrow table to batches in the accumulator, as fast as there is memory for them.

Rows are encoded by the batch, in turn for each partition that they go to, so that all brokers have
something to do. A batch reserves its memory before it is encoded; nothing else is made of the rows
that would grow with their size. Batches are larger than those of ``send``, whose records come one
by one and should not wait: here they are all there.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa

from odradek.client.errors import KafkaError
from odradek.client.producer.accumulator import Accumulator, PartitionQueue
from odradek.client.producer.arrow_rows import RowChunk, RowGroup, chunks_of
from odradek.client.producer.intake import Intake
from odradek.client.producer.partitioners import Partitioner
from odradek.client.producer.routing import Router
from odradek.client.producer.row_batch import (
    ColumnNames,
    RowBatch,
    RowsMetadata,
    RowSpan,
    RowsReceipt,
)
from odradek.client.producer.sender import Sender
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import Transaction
from odradek.records import HEADER_BYTES
from odradek.records.arrow import encoder_for
from odradek.records.implementation import ColumnEncoder

BATCH_BYTES: Final = 512 * 1024
"""How large batches become unless ``batch.size`` was set, or a request or memory takes less."""
_BATCHES_IN_MEMORY: Final = 4


class Parts(NamedTuple):
    """The parts of a producer that take part."""

    options: ProducerOptions
    accumulator: Accumulator
    intake: Intake
    router: Router
    sender: Sender
    transaction: Transaction | None
    partitioner: Partitioner | None


class _Outgoing(NamedTuple):
    """Rows that are being encoded."""

    group: RowGroup
    encoder: ColumnEncoder
    span: RowSpan


class ArrowSending:
    def __init__(self, parts: Parts, *, batch_bytes: int | None) -> None:
        self._parts = parts
        memory = parts.options.buffer_memory
        if batch_bytes is None:
            # Some have to be on their way while the next is made.
            batch_bytes = min(BATCH_BYTES, memory // _BATCHES_IN_MEMORY)
        self._batch_bytes = min(batch_bytes, parts.options.max_request_size, memory)

    async def send(
        self,
        topic: str,
        table: "pa.Table | pa.RecordBatch",
        names: ColumnNames,
        partition: int | None,
        now_ms: int,
    ) -> "asyncio.Future[RowsMetadata]":
        """Hand over all rows; raise what is wrong with them before any is sent."""
        chunks = chunks_of(table, names if partition is None else names._replace(partition=None))
        batch_bytes = max(self._batch_bytes, HEADER_BYTES + self._check(topic, chunks))
        largest = max((each.partition_max() for each in chunks), default=-1)
        await self._parts.router.learn(topic, None if largest < 0 else largest)
        future: asyncio.Future[RowsMetadata] = asyncio.get_running_loop().create_future()
        receipt = RowsReceipt(topic, sum(len(each.columns) for each in chunks), future)
        try:
            for chunk in chunks:
                groups = await self._groups(topic, chunk, partition)
                await self._send_chunk(topic, chunk, groups, receipt, batch_bytes, now_ms)
        except Exception as error:
            if not receipt.is_begun:
                raise
            # Some rows are on their way: what became of which is for the future to tell.
            if self._parts.transaction is not None and isinstance(error, KafkaError):
                self._parts.transaction.fail_abortably(error)
            receipt.on_handed_over(error)
        except BaseException:
            future.cancel()
            raise
        else:
            receipt.on_handed_over()
        return future

    def _check(self, topic: str, chunks: list[RowChunk]) -> int:
        """Return a bound on the bytes of the largest row."""
        widest = 0
        for chunk in chunks:
            chunk.check()
            size, row = chunk.widest_row()
            if size > self._parts.intake.record_size_max:
                error = self._parts.intake.too_large(topic, size)
                error.add_note(f"row {row} of the table")
                raise error
            widest = max(widest, size)
        return widest

    async def _groups(self, topic: str, chunk: RowChunk, partition: int | None) -> list[RowGroup]:
        known = await self._parts.router.learn(topic, partition)
        if partition is not None:
            return [RowGroup(partition, None, len(chunk.columns))]
        chosen = None if self._parts.partitioner is None else partial(self._choose, topic)
        ignore_keys = self._parts.options.ignore_keys
        return chunk.groups(len(known.partitions), ignore_keys=ignore_keys, partitioner=chosen)

    def _choose(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        queue = self._parts.router.find(topic, key, value)
        assert queue is not None, "the topic was known just now"
        return queue.partition.partition

    async def _send_chunk(
        self,
        topic: str,
        chunk: RowChunk,
        groups: list[RowGroup],
        receipt: RowsReceipt,
        batch_bytes: int,
        now_ms: int,
    ) -> None:
        waiting = deque(
            _Outgoing(
                group, encoder_for(chunk.columns, now_ms, group.order), _span_of(chunk, group)
            )
            for group in groups
        )
        pool = self._parts.accumulator.pool
        while waiting:
            size, outgoing = 0, waiting.popleft()
            partition = outgoing.group.partition
            queue = await self._parts.router.queue_for(topic, partition, None, None)
            await self._parts.intake.reserve(batch_bytes)
            try:
                batch = self._append(queue, outgoing, receipt, batch_bytes)
                size = batch.reserved_bytes
            finally:
                pool.release(batch_bytes - size)
            span = outgoing.span.after(batch.count)
            if span.start < outgoing.group.rows:
                waiting.append(outgoing._replace(span=span))
            self._parts.sender.wake()
            await asyncio.sleep(0)

    def _append(
        self, queue: PartitionQueue, outgoing: _Outgoing, receipt: RowsReceipt, batch_bytes: int
    ) -> RowBatch:
        parts = self._parts
        parts.intake.check_usable()
        body_bytes_max = batch_bytes - HEADER_BYTES
        rows = outgoing.encoder.encode(outgoing.span.start, body_bytes_max, HEADER_BYTES)
        if parts.transaction is not None:
            parts.transaction.add(queue.partition)
        reserved_bytes, now_ms = len(rows.buffer), parts.sender.now_ms()
        batch = parts.accumulator.append_rows(
            queue, rows, outgoing.span, receipt, reserved_bytes, now_ms
        )
        if outgoing.group.partition is None:
            # The next batch goes elsewhere.
            parts.accumulator.topic(queue.partition.topic).stuck_batch = batch
        return batch


def _span_of(chunk: RowChunk, group: RowGroup) -> RowSpan:
    if group.order is None:
        return RowSpan(chunk.first_row, None, 0)
    buffer = group.order.buffers()[1].slice(group.order.offset * 8, group.rows * 8)
    return RowSpan(chunk.first_row, memoryview(buffer).cast("B").cast("q"), 0)
