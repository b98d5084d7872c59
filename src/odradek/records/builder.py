"""Building batches v2: a builder for records that come one by one, functions for special batches.

A builder encodes as records come and compresses once at the end. Its ``size`` is that of the batch
before compression, which is what an accumulator wants to bound: the leader's limit is on the
packed batch, and packing makes it larger only by a few bytes when it cannot make it smaller.
"""

from collections.abc import Iterable
from typing import Final

from odradek.records import compression
from odradek.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from odradek.records.checksum import crc32c
from odradek.records.compression import CompressionType
from odradek.records.control import EndTransactionMarker, encode_end_transaction_marker
from odradek.records.implementation import RecordEncoder
from odradek.records.open_batch import RECORD_OVERHEAD_MAX
from odradek.records.record import NO_TIMESTAMP, Buffer, Record

_VARINT_BYTES_MAX: Final = 5
_CRC_START: Final = 21


class BatchBuilder:
    """Collects records into one batch. Use once.

    ``append(timestamp, key, value, headers=(), offset=None)`` adds a record and returns the size;
    ``extend(rows)`` adds ``(timestamp, key, value, headers)`` tuples, faster. Offsets run on from
    ``base_offset`` unless they are given, and given ones may leave gaps.

    ``log_append_time`` makes the batch LOG_APPEND_TIME with that time; ``delete_horizon_ms`` takes
    the place of the base timestamp.
    """

    def __init__(
        self,
        *,
        codec: CompressionType = CompressionType.NONE,
        level: int | None = None,
        base_offset: int = 0,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        log_append_time: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None:
        if transactional and producer_id == NO_PRODUCER_ID:
            raise ValueError("a transactional batch needs a producer id")
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.partition_leader_epoch = partition_leader_epoch
        self._codec = codec
        self._level = level
        self._log_append_time = log_append_time
        self._attributes = (
            (LOG_APPEND_TIME_FLAG if log_append_time is not None else 0)
            | (TRANSACTIONAL_FLAG if transactional else 0)
            | (CONTROL_FLAG if control else 0)
            | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
        )
        self._encoder = RecordEncoder(HEADER_BYTES, base_offset, delete_horizon_ms)
        # The codec's own methods: a Python frame around each would cost as much as the encoding.
        self.append = self._encoder.append
        self.extend = self._encoder.extend

    @property
    def encoder(self) -> RecordEncoder:
        """What records are appended to, for those who cannot afford a call in between."""
        return self._encoder

    @property
    def count(self) -> int:
        return self._encoder.count

    @property
    def size(self) -> int:
        """Bytes of the batch so far, before compression."""
        return self._encoder.size

    @property
    def base_offset(self) -> int:
        return self._encoder.base_offset

    @property
    def next_offset(self) -> int:
        return self._encoder.next_offset

    def append_records(self, records: Iterable[Record]) -> None:
        """Append records with their own offsets, as compaction and conversion do."""
        append = self._encoder.append
        for offset, timestamp, key, value, headers in records:
            append(timestamp, key, value, headers, offset)

    def build(self, *, last_offset: int | None = None) -> bytearray:
        """Compress, write the header and return the batch.

        ``last_offset`` is for the cleaner, which keeps the last offset of a batch whose last
        records it dropped. A batch without records gets no codec and the base timestamp -1.
        """
        encoder = self._encoder
        if last_offset is None:
            last_offset = max(encoder.next_offset - 1, encoder.base_offset)
        if last_offset < encoder.next_offset - 1:
            raise ValueError(f"last offset {last_offset} is before the last record")
        base_timestamp, max_timestamp = encoder.base_timestamp, encoder.max_timestamp
        if self._log_append_time is not None:
            max_timestamp = self._log_append_time
        count = encoder.count
        batch, codec = encoder.take(), CompressionType.NONE
        if self._codec and count:
            batch, codec = _compressed(batch, self._codec, self._level), self._codec
        return write_header(
            batch,
            base_offset=encoder.base_offset,
            last_offset_delta=last_offset - encoder.base_offset,
            attributes=self._attributes | codec,
            base_timestamp=NO_TIMESTAMP if base_timestamp is None else base_timestamp,
            max_timestamp=max_timestamp,
            partition_leader_epoch=self.partition_leader_epoch,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            records_count=count,
        )


def _compressed(batch: bytearray, codec: CompressionType, level: int | None) -> bytearray:
    packed = compression.compress(codec, memoryview(batch)[HEADER_BYTES:], level=level)
    return bytearray(HEADER_BYTES) + packed


def finish_batch(
    batch: bytearray,
    *,
    records_count: int,
    base_timestamp: int,
    max_timestamp: int,
    batch_bytes_max: int,
    codec: CompressionType = CompressionType.NONE,
    level: int | None = None,
    transactional: bool = False,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Compress records that lie behind the room for a header, and write the header.

    Without compression ``batch`` itself is returned; with it, packed records that are larger than
    plain ones stay plain if they would not keep within ``batch_bytes_max``.
    """
    packed = CompressionType.NONE
    if codec != CompressionType.NONE:
        smaller = _compressed(batch, codec, level)
        if len(smaller) <= max(batch_bytes_max, len(batch)):
            batch, packed = smaller, codec
    return write_header(
        batch,
        last_offset_delta=records_count - 1,
        attributes=(TRANSACTIONAL_FLAG if transactional else 0) | packed,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=records_count,
    )


def repacked_batch(
    body: Buffer, header: BatchHeader, codec: CompressionType, level: int | None
) -> bytearray:
    """Return a batch with the same records, which ``body`` has unpacked, in another codec."""
    return write_header(
        bytearray(HEADER_BYTES) + compression.compress(codec, body, level=level),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        attributes=header.attributes & ~CODEC_MASK | codec,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        partition_leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        records_count=header.records_count,
    )


def write_header(
    batch: bytearray,
    *,
    base_offset: int = 0,
    last_offset_delta: int,
    attributes: int = 0,
    base_timestamp: int,
    max_timestamp: int,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    records_count: int,
) -> bytearray:
    """Write the header, checksum and all, into the first 61 bytes of ``batch``; return it."""
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    crc = crc32c(memoryview(batch)[_CRC_START:])
    batch[_CRC_START - 4 : _CRC_START] = crc.to_bytes(4, "big")
    return batch


def build_empty_batch(header: BatchHeader) -> bytearray:
    """Return what the cleaner leaves of a batch all of whose records it dropped.

    Offsets, sequences, flags and the max timestamp stay; the codec and the delete horizon go.
    """
    return write_header(
        bytearray(HEADER_BYTES),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        attributes=header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        partition_leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        records_count=0,
    )


def build_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Return the control batch that ends a producer's transaction; it carries no sequence."""
    builder = BatchBuilder(
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    builder.append(timestamp, *encode_end_transaction_marker(marker))
    return builder.build()


def record_size_max(
    key: Buffer | None,
    value: Buffer | None,
    headers: Iterable[tuple[str | bytes, Buffer | None]] = (),
) -> int:
    """Return a bound on the bytes that a record adds to any batch, before compression."""
    size = RECORD_OVERHEAD_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        name_bytes = (
            len(name.encode("utf-8", "surrogateescape")) if isinstance(name, str) else len(name)
        )
        size += 2 * _VARINT_BYTES_MAX + name_bytes + len(content or b"")
    return size
