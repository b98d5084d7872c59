"""A batch of records on its way to one partition, and the futures of those who sent them.

Hot path (``bench/client_producer.py``): records come and are told of by ``OpenBatch``.

It is open (takes records), closed, built (its bytes are final but for who sends them), and in the
end done: delivered or failed, once. Between built and done it may be sent many times.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.records import (
    BatchBuilder,
    CompressionType,
    parse_header,
    read_records,
    record_size_max,
    set_producer_state,
)
from odradek.records.implementation import OpenBatch
from odradek.records.open_batch import RecordOutcome
from odradek.records.record import Buffer

NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequences are int32 and go on at 0 after the largest."""

SIZE_MAX: Final = 2**31 - 1

Headers: TypeAlias = Iterable[tuple[str | bytes, Buffer | None]]


class RecordMetadata(NamedTuple):
    """Where a record went. The offset is -1 where the broker did not say (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int


Outgoing: TypeAlias = tuple[int, Buffer | None, Buffer | None, Headers, RecordOutcome, int]
"""A record for a batch: timestamp, key, value, headers, future, and the most bytes it may take.

That is 0 where a batch can find it out itself (``OpenBatch.try_append``). Not a class: one is made
per record.
"""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


NO_PRODUCER: Final = ProducerIdAndEpoch(-1, -1)


class Format(NamedTuple):
    """How batches are written."""

    codec: CompressionType = CompressionType.NONE
    level: int | None = None
    transactional: bool = False
    size_max: int = SIZE_MAX
    """When a batch is full."""
    record_size_max: int = SIZE_MAX


class Flush:
    """Somebody waits for a number of batches to be done."""

    __slots__ = ("done", "left")

    def __init__(self, left: int, done: "asyncio.Future[None]") -> None:
        self.left = left
        self.done = done

    def on_batch_done(self) -> None:
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)


class ProducerBatch(OpenBatch):
    __slots__ = (
        "_builder",
        "_format",
        "append_record",
        "attempts",
        "base_sequence",
        "created_ms",
        "flushes",
        "grows",
        "is_done",
        "is_on_wire",
        "is_split",
        "last_error",
        "not_before_ms",
        "order",
        "partition",
        "producer",
        "records",
        "reserved_bytes",
        "retry_leader_epoch",
    )

    def __init__(
        self,
        partition: TopicPartition,
        record_format: Format,
        created_ms: float,
        order: tuple[int, int],
        reserved_bytes: int,
    ) -> None:
        builder = BatchBuilder(
            codec=record_format.codec,
            level=record_format.level,
            # Set on sending; a transactional batch may only not be begun without any.
            producer_id=0 if record_format.transactional else -1,
            transactional=record_format.transactional,
        )
        super().__init__(builder.encoder, record_format.size_max, record_format.record_size_max)
        self._builder: BatchBuilder | None = builder
        self.append_record = builder.append
        self.partition = partition
        self.created_ms = created_ms
        self.order = order
        """Batches of a partition are sent in this order; a part of a split one says where in it."""
        self.reserved_bytes = reserved_bytes
        self.grows = False
        """Whether it may become larger than was thought, until it is sent."""
        self.is_done = False
        self.is_on_wire = False
        self.is_split = False
        self.attempts = 0
        self.not_before_ms = 0.0
        self.retry_leader_epoch = -1
        self.last_error = ""
        self.producer = NO_PRODUCER
        self.base_sequence = NO_SEQUENCE
        self.records: bytearray | None = None
        self.flushes: list[Flush] = []
        self._format = record_format

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.count - 1) & SEQUENCE_MASK

    def assign(self, producer: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Say who sends it; again if the broker lost track, with other bytes then."""
        self.producer = producer
        self.base_sequence = base_sequence
        if self.records is not None:
            # Those on the wire may still be read by the transport.
            self.records = bytearray(self.records)
            set_producer_state(
                self.records,
                parse_header(self.records),
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=base_sequence,
            )

    def build(self) -> bytearray:
        """Return the bytes to send."""
        if self.records is None:
            builder = self._builder
            assert builder is not None
            self.is_closed = True
            builder.producer_id, builder.producer_epoch = self.producer
            builder.base_sequence = self.base_sequence
            self.records = builder.build()
            self._builder = None
        return self.records

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """Tell all who sent a record where it is."""
        assert not self.is_done
        self.is_done = True
        time_ms = None if log_append_time_ms < 0 else log_append_time_ms
        self.tell_all(RecordMetadata, *self.partition, max(base_offset, NO_OFFSET), time_ms)
        self._finish()

    def fail(
        self,
        error: KafkaError,
        by_record: Mapping[int, KafkaError] | None = None,
        *,
        is_expected: bool = False,
    ) -> None:
        """Tell all who sent a record why it was not taken; some may have a reason of their own.

        ``is_expected``: nobody need be warned who does not look at the futures.
        """
        assert not self.is_done
        self.is_done = True
        is_told = is_expected
        for index, future in enumerate(self.futures):
            if future.done():
                continue
            future.set_exception(by_record.get(index, error) if by_record else error)
            if is_told:
                # Whoever never looks at the futures hears of the first: one line, not thousands.
                future.exception()
            is_told = True
        self._finish()

    def _finish(self) -> None:
        self.futures, self.timestamps = [], []
        for flush in self.flushes:
            flush.on_batch_done()
        self.flushes = []

    def split(self, size_max: int) -> list["ProducerBatch"]:
        """Return batches of at most that size, or of one record, with the same records in order.

        They have no sequence yet. This batch is of no use afterwards.
        """
        assert not self.is_done
        records = self.build()
        header = parse_header(records)
        parts: list[ProducerBatch] = []
        for index, record in enumerate(read_records(records, header)):
            _, timestamp, key, value, headers = record
            needed = record_size_max(key, value, headers)
            if not parts or parts[-1].size + needed > size_max:
                parts.append(self._part(index, self.reserved_bytes if not parts else 0))
            self._hand_on(parts[-1], index, timestamp, key, value, headers)
        for flush in self.flushes:
            flush.left += len(parts) - 1
        self.futures, self.timestamps, self.flushes = [], [], []
        self.is_done = True
        return parts

    def _hand_on(
        self,
        part: "ProducerBatch",
        index: int,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
    ) -> None:
        """Append one of its records to a part of it."""
        part.append(timestamp, key, value, headers, self.futures[index])

    def _new_part(self, order: tuple[int, int], reserved_bytes: int) -> "ProducerBatch":
        return ProducerBatch(self.partition, self._format, self.created_ms, order, reserved_bytes)

    def _part(self, index: int, reserved_bytes: int) -> "ProducerBatch":
        order = (self.order[0], self.order[1] + index)
        part = self._new_part(order, reserved_bytes)
        part.is_split = part.is_closed = True
        part.flushes = list(self.flushes)
        part.attempts = self.attempts
        return part

    def __repr__(self) -> str:
        sequence = f" {self.producer}:{self.base_sequence}" if self.has_sequence else ""
        return f"<batch {self.partition} {self.order} of {self.count}{sequence}>"


def in_order(batches: Sequence[ProducerBatch], batch: ProducerBatch) -> int:
    """Return where a batch belongs among others of its partition."""
    place = 0
    while place < len(batches) and batches[place].order < batch.order:
        place += 1
    return place
