"""Batch v2, from the outside: its header, its checksum, and the fields a broker patches (hot path).

::

    position  0  base_offset             int64
              8  batch_length            int32   counts the bytes after itself
             12  partition_leader_epoch  int32
             16  magic                   int8    2
             17  crc                     uint32  CRC-32C of everything behind it
             21  attributes              int16
             23  last_offset_delta       int32
             27  base_timestamp          int64
             35  max_timestamp           int64
             43  producer_id             int64
             51  producer_epoch          int16
             53  base_sequence           int32
             57  records_count           int32
             61  records, compressed as one piece

    attributes  0-2 codec · 3 timestamp type · 4 transactional · 5 control · 6 delete horizon

Base offset and leader epoch lie before the checksum, so a leader stamps both without touching it.
After compaction a batch may have fewer records than offsets, or none: base offset, last offset
and sequences stay, because producer state is rebuilt from them. With bit 6 the base timestamp is
the time after which tombstones and markers in the batch may go.

Nothing here looks at a record, and a header is one tuple. Benchmark: ``bench/records.py``.
"""

from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.records.checksum import crc32c
from odradek.records.record import Buffer

MAGIC: Final = 2
LOG_OVERHEAD: Final = 12  # base offset and length: what every magic begins with
HEADER_BYTES: Final = 61
MAGIC_POSITION: Final = 16
LENGTH_MIN: Final = 14  # of anything in a log: a message v0 with neither key nor value

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC_POSITION: Final = 17
_ATTRIBUTES_POSITION: Final = 21
_MAX_TIMESTAMP_POSITION: Final = 35
_PRODUCER_POSITION: Final = 43
_LENGTH_POSITION: Final = 8
_EPOCH_POSITION: Final = 12

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UINT32: Final = Struct(">I")
_PRODUCER: Final = Struct(">qhi")

_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD
_SEQUENCE_COUNT: Final = 2**31  # after 2^31 - 1 comes 0


class TimestampType(IntEnum):
    """Who set the timestamp of a record."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of the batch at ``position`` of some buffer, field by field."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    position: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def end_position(self) -> int:
        return self.position + LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last offset; sequences start again at 0 after the largest int32."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_COUNT

    @property
    def codec(self) -> int:
        """The codec's number, which may be one that nobody has defined."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(bool(self.attributes & LOG_APPEND_TIME_FLAG))

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def log_append_time(self) -> int | None:
        """The timestamp of every record in the batch, where the broker set it."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME_FLAG else None


_make_header: Final = partial(tuple.__new__, BatchHeader)
"""``BatchHeader._make`` without its Python frame and its count of the fields."""


def placed_header(
    header: BatchHeader, base_offset: int, partition_leader_epoch: int, max_timestamp: int
) -> BatchHeader:
    """Return the header of a batch that was stamped, without parsing it again.

    Where the leader set the time, checksum and timestamp type are still those of the producer.
    """
    return _make_header(
        (
            base_offset,
            header.batch_length,
            partition_leader_epoch,
            *header[3:8],
            max_timestamp,
            *header[9:],
        )
    )


def producer_of(buffer: Buffer) -> tuple[int, int]:
    """Return producer id and epoch of the batch that begins with a whole header in ``buffer``."""
    producer_id, producer_epoch, _ = _PRODUCER.unpack_from(buffer, _PRODUCER_POSITION)
    return producer_id, producer_epoch


def peek_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at ``position``; the records behind it need not be there.

    Raises:
        CorruptionError: The header is cut short or contradicts itself.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptionError(f"batch header at {position} is cut short")
    fields = HEADER.unpack_from(buffer, position)
    if fields[3] != MAGIC:
        raise CorruptionError(f"batch at {position} has magic {fields[3]}, not {MAGIC}")
    if fields[1] < _LENGTH_MIN:
        raise CorruptionError(f"batch at {position} says it has {fields[1]} bytes")
    # Every record has an offset of its own, so there cannot be more records than offsets.
    delta = fields[6]
    if delta < 0 or not 0 <= fields[12] <= delta + 1:
        raise CorruptionError(
            f"batch at {position} has {fields[12]} records and last offset delta {delta}"
        )
    return _make_header((*fields, position))


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at ``position`` of a batch that is in ``buffer`` to its end.

    The checksum is not verified: see ``verify_crc``.

    Raises:
        CorruptionError: As ``peek_header``, or the batch is cut short.
    """
    header = peek_header(buffer, position)
    if len(buffer) - position - LOG_OVERHEAD < header[1]:
        raise CorruptionError(f"batch at {position} is cut short")
    return header


def iter_headers(
    buffer: Buffer, position: int = 0, *, partial_tail: bool = False
) -> Iterator[BatchHeader]:
    """Iterate over the headers of the batches in ``buffer`` from ``position`` to its end.

    With ``partial_tail`` a last batch that is cut short ends the iteration: brokers cut fetch
    responses at a byte limit. Without it that raises, as every other fault does in both cases.
    """
    end = len(buffer)
    while position < end:
        if partial_tail and is_partial(buffer, position):
            return
        header = parse_header(buffer, position)
        yield header
        position += LOG_OVERHEAD + header[1]


def is_partial(buffer: Buffer, position: int) -> bool:
    """Say whether the bytes from ``position`` on are the sound beginning of something longer."""
    left = len(buffer) - position
    if left < LOG_OVERHEAD:
        return True
    (length,) = _INT32.unpack_from(buffer, position + _LENGTH_POSITION)
    # A length that not even a message of format v0 has is a fault, not a cut.
    return bool(length >= LENGTH_MIN and left < LOG_OVERHEAD + length)


def magic_at(buffer: Buffer, position: int = 0) -> int:
    """Return the magic of whatever begins at ``position``: it is at the same place in all three."""
    if len(buffer) - position <= MAGIC_POSITION:
        raise CorruptionError(f"batch header at {position} is cut short")
    return _INT8.unpack_from(buffer, position + MAGIC_POSITION)[0]  # type: ignore[no-any-return]


_INT8: Final = Struct(">b")


def compute_crc(buffer: Buffer, header: BatchHeader) -> int:
    """Return the CRC-32C that the batch should have."""
    position = header.position
    end = position + LOG_OVERHEAD + header.batch_length
    return crc32c(memoryview(buffer)[position + _ATTRIBUTES_POSITION : end])


def verify_crc(buffer: Buffer, header: BatchHeader) -> None:
    """Raise CorruptionError unless the batch is what its writer wrote."""
    position = header.position
    end = position + LOG_OVERHEAD + header.batch_length
    # As ``compute_crc``: every batch that is appended comes here.
    computed = crc32c(memoryview(buffer)[position + _ATTRIBUTES_POSITION : end])
    if computed != header.crc:
        raise CorruptionError(
            f"batch at {header.position} has checksum {header.crc:#010x}, "
            f"its bytes have {computed:#010x}"
        )


def stamp(
    buffer: bytearray | memoryview,
    position: int = 0,
    *,
    base_offset: int,
    partition_leader_epoch: int,
) -> None:
    """Give the batch at ``position`` its place in the log. Its checksum stays valid."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + _EPOCH_POSITION, partition_leader_epoch)


def set_last_offset(buffer: bytearray | memoryview, header: BatchHeader, last_offset: int) -> None:
    """Move the batch so that it ends at ``last_offset``. Its checksum stays valid."""
    _INT64.pack_into(buffer, header.position, last_offset - header.last_offset_delta)


def set_max_timestamp(
    buffer: bytearray | memoryview,
    header: BatchHeader,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> None:
    """Set both fields and the checksum; with LOG_APPEND_TIME that is the time of every record."""
    attributes = header.attributes & ~LOG_APPEND_TIME_FLAG
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return
    _INT16.pack_into(buffer, header.position + _ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(buffer, header.position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    seal(buffer, header)


def set_producer_state(
    buffer: bytearray | memoryview,
    header: BatchHeader,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Set who wrote the batch, and the checksum: a producer knows its sequence only on sending."""
    position = header.position + _PRODUCER_POSITION
    _PRODUCER.pack_into(buffer, position, producer_id, producer_epoch, base_sequence)
    seal(buffer, header)


def seal(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    """Write the checksum that the batch should have now."""
    _UINT32.pack_into(buffer, header.position + _CRC_POSITION, compute_crc(buffer, header))
