"""Message sets of the formats before batches, v0 and v1: read, write, and convert up to v2.

::

    offset int64 · size int32 · crc uint32 (CRC-32 of all behind it) · magic int8 · attributes int8
    · timestamp int64 (v1 only) · key (int32 length, -1 for null) · value (the same)

    attributes  0-2 codec (no zstd) · 3 timestamp type (v1 only)

A message with a codec is a *wrapper*: its value is a compressed message set, and its offset is that
of the last message inside. The offsets inside are absolute in v0; in v1 they count from the first
message, and the last one aligns with the wrapper. Some versions of librdkafka produce v1 wrappers
with offset 0, which then says nothing. A wrapper with LOG_APPEND_TIME overrides the timestamps
inside. LZ4 in v0 has a wrong header checksum that everybody must reproduce (KAFKA-3160).

No client of this century's third decade sends these, but old log folders hold them. So this path is
plain Python and builds objects.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.records import compression
from odradek.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    TimestampType,
    is_partial,
)
from odradek.records.builder import BatchBuilder
from odradek.records.compression import DECOMPRESSED_BYTES_MAX, CompressionType
from odradek.records.record import NO_TIMESTAMP, Buffer, Record

_PREFIX: Final = Struct(">qi")
_MESSAGE: Final = Struct(">qiIbb")
_LENGTH: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")
_CRC_START: Final = 16
_SIZE_MIN: Final = (14, 22)  # by magic: a message with neither key nor value

# Uncompressed messages are joined into batches of about this size on conversion.
CONVERTED_BYTES_MAX: Final = 1024 * 1024
_INT32_MAX: Final = 2**31 - 1
_OFFSET_MAX: Final = 2**63 - 1  # the offset after it could not be said


class LegacyBatch(NamedTuple):
    """One message of the outer set and the records it stands for: itself, or those inside."""

    magic: int
    codec: CompressionType
    timestamp_type: TimestampType
    records: list[Record]
    end_position: int


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    end_position: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        # v0 has no timestamps; the bit means nothing there.
        return TimestampType(self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME_FLAG))

    def to_record(self) -> Record:
        key = None if self.key is None else bytes(self.key)
        value = None if self.value is None else bytes(self.value)
        return Record(self.offset, self.timestamp, key, value)


def iter_legacy(
    buffer: Buffer,
    position: int = 0,
    *,
    partial_tail: bool = False,
    output_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[LegacyBatch]:
    """Iterate over the outer messages of a message set; ``partial_tail`` as in ``batch``."""
    view = memoryview(buffer)
    while position < len(view):
        if partial_tail and is_partial(view, position):
            return
        batch = read_legacy(view, position, output_bytes_max=output_bytes_max)
        yield batch
        position = batch.end_position


def read_legacy(
    buffer: Buffer, position: int = 0, *, output_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> LegacyBatch:
    """Read the message at ``position``, and those inside if it is a wrapper.

    Raises:
        CorruptionError: A checksum is wrong, or the message or what is inside is malformed.
    """
    message = _parse_message(memoryview(buffer), position)
    if message.codec == CompressionType.NONE:
        records, codec = [message.to_record()], CompressionType.NONE
    elif message.codec in (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4):
        codec = CompressionType(message.codec)
        records = _unwrap(message, output_bytes_max)
    else:
        raise CorruptionError(f"a v{message.magic} message cannot have codec {message.codec}")
    return LegacyBatch(message.magic, codec, message.timestamp_type, records, message.end_position)


def _parse_message(view: memoryview, position: int) -> _Message:
    left = len(view) - position
    if left < _MESSAGE.size:
        raise CorruptionError(f"message at {position} is cut short")
    offset, size, crc, magic, attributes = _MESSAGE.unpack_from(view, position)
    if magic not in (0, 1):
        raise CorruptionError(f"message at {position} has magic {magic}, not 0 or 1")
    if not _SIZE_MIN[magic] <= size <= left - LOG_OVERHEAD:
        raise CorruptionError(f"message at {position} says it has {size} bytes")
    end = position + LOG_OVERHEAD + size
    computed = zlib.crc32(view[position + _CRC_START : end])
    if computed != crc:
        raise CorruptionError(
            f"message at {position} has checksum {crc:#010x}, its bytes have {computed:#010x}"
        )
    timestamp, cursor = NO_TIMESTAMP, position + _MESSAGE.size
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(view, cursor)
        cursor += _TIMESTAMP.size
    key, cursor = _read_field(view, cursor, end)
    value, cursor = _read_field(view, cursor, end)
    if cursor != end:
        raise CorruptionError(f"message at {position} is longer than its fields")
    return _Message(offset, magic, attributes, timestamp, key, value, end)


def _read_field(view: memoryview, cursor: int, end: int) -> tuple[memoryview | None, int]:
    if end - cursor < _LENGTH.size:
        raise CorruptionError("a message ends inside a length")
    (length,) = _LENGTH.unpack_from(view, cursor)
    cursor += _LENGTH.size
    if length < 0:
        return None, cursor
    if length > end - cursor:
        raise CorruptionError("a key or value is longer than its message")
    return view[cursor : cursor + length], cursor + length


def _unwrap(wrapper: _Message, output_bytes_max: int) -> list[Record]:
    if wrapper.value is None:
        raise CorruptionError("a compressed message has no value")
    inside = memoryview(
        compression.decompress(
            wrapper.codec,
            wrapper.value,
            output_bytes_max=output_bytes_max,
            lz4_broken_checksum=wrapper.magic == 0,
        )
    )
    records: list[Record] = []
    position = 0
    while position < len(inside):
        message = _parse_message(inside, position)
        if message.codec != CompressionType.NONE or message.magic != wrapper.magic:
            raise CorruptionError("a message inside a wrapper is compressed or of another format")
        records.append(message.to_record())
        position = message.end_position
    if not records:
        raise CorruptionError("a compressed message has nothing inside")
    return _absolute(wrapper, records)


def _absolute(wrapper: _Message, records: list[Record]) -> list[Record]:
    """Give the records from inside a v1 wrapper their offsets, and its time if it is the log's."""
    if wrapper.magic == 0:
        return records
    base = 0
    if wrapper.offset != 0:  # 0: from librdkafka, see above
        base = wrapper.offset - records[-1].offset
        if base < 0:
            raise CorruptionError("a wrapper's offset is less than that of its last message")
    appended = wrapper.timestamp_type == TimestampType.LOG_APPEND_TIME
    return [
        record._replace(
            offset=base + record.offset,
            timestamp=wrapper.timestamp if appended else record.timestamp,
        )
        for record in records
    ]


def convert_to_v2(
    buffer: Buffer,
    *,
    base_offset: int | None = None,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    partial_tail: bool = False,
    output_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> list[bytearray]:
    """Turn a message set into batches v2.

    A wrapper becomes a batch with the same codec; single messages are joined while their timestamp
    type allows. With ``base_offset`` the records are numbered from there, as a leader numbers what
    a producer sent; without it they keep their offsets, which must then increase.
    """
    converter = _Converter(base_offset, partition_leader_epoch)
    for batch in iter_legacy(buffer, partial_tail=partial_tail, output_bytes_max=output_bytes_max):
        converter.add(batch)
    return converter.finish()


class _Converter:
    def __init__(self, next_offset: int | None, partition_leader_epoch: int) -> None:
        self._next_offset = next_offset
        self._partition_leader_epoch = partition_leader_epoch
        self._last_offset = -1
        self._done: list[bytearray] = []
        self._open: BatchBuilder | None = None
        self._open_log_append_time: int | None = None

    def add(self, batch: LegacyBatch) -> None:
        records = self._numbered(batch.records)
        log_append_time = None
        if batch.timestamp_type == TimestampType.LOG_APPEND_TIME:
            log_append_time = records[0].timestamp
        if batch.codec != CompressionType.NONE or not self._joins(records[0], log_append_time):
            self._close()
        if self._open is None:
            self._open = BatchBuilder(
                codec=batch.codec,
                base_offset=records[0].offset,
                partition_leader_epoch=self._partition_leader_epoch,
                log_append_time=log_append_time,
            )
            self._open_log_append_time = log_append_time
        base_offset = records[0].offset
        if batch.codec != CompressionType.NONE and records[-1].offset - base_offset > _INT32_MAX:
            raise CorruptionError("the offsets inside a wrapper are too far apart for one batch")
        self._open.append_records(records)
        if batch.codec != CompressionType.NONE:
            self._close()

    def _numbered(self, records: list[Record]) -> list[Record]:
        if self._next_offset is not None:
            first = self._next_offset
            self._next_offset += len(records)
            return [r._replace(offset=first + i) for i, r in enumerate(records)]
        for record in records:
            if not self._last_offset < record.offset < _OFFSET_MAX:
                raise CorruptionError(f"offset {record.offset} follows {self._last_offset}")
            self._last_offset = record.offset
        return records

    def _joins(self, record: Record, log_append_time: int | None) -> bool:
        """Whether the record may go into the open batch, which has one time if it is the log's."""
        builder = self._open
        return (
            builder is not None
            and self._open_log_append_time == log_append_time
            and builder.size < CONVERTED_BYTES_MAX
            and record.offset - builder.base_offset <= _INT32_MAX
        )

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(self._open.build())
            self._open = None

    def finish(self) -> list[bytearray]:
        self._close()
        return self._done


def build_message_set(
    records: Sequence[Record],
    *,
    magic: int,
    codec: CompressionType = CompressionType.NONE,
    level: int | None = None,
    log_append_time: int | None = None,
) -> bytes:
    """Write a message set of format v0 or v1; with a codec, as one wrapper.

    Headers have no place in these formats, nor has zstd; timestamps are dropped by v0.
    """
    if magic not in (0, 1) or codec == CompressionType.ZSTD:
        raise ValueError("a message set has magic 0 or 1 and a codec older than zstd")
    if any(record.headers for record in records):
        raise ValueError("headers need batch v2")
    flag = LOG_APPEND_TIME_FLAG if log_append_time is not None and magic else 0
    if codec == CompressionType.NONE:
        return _join(records, magic=magic, attributes=flag, timestamp=log_append_time)
    if not records:
        raise ValueError("a wrapper needs something inside")
    base_offset = records[0].offset if magic == 1 else 0
    inside = [record._replace(offset=record.offset - base_offset) for record in records]
    value = compression.compress(
        codec,
        _join(inside, magic=magic, attributes=0, timestamp=None),
        level=level,
        lz4_broken_checksum=magic == 0,
    )
    timestamp = max(record.timestamp for record in records)
    wrapper = Record(records[-1].offset, timestamp, None, value)
    return _join([wrapper], magic=magic, attributes=flag | codec, timestamp=log_append_time)


def _join(
    records: Iterable[Record], *, magic: int, attributes: int, timestamp: int | None
) -> bytes:
    out = bytearray()
    for record in records:
        out += _encode_message(record, magic, attributes, timestamp)
    return bytes(out)


def _encode_message(
    record: Record, magic: int, attributes: int, timestamp: int | None
) -> bytearray:
    covered = bytearray((magic, attributes))
    if magic == 1:
        covered += _TIMESTAMP.pack(record.timestamp if timestamp is None else timestamp)
    for field in (record.key, record.value):
        covered += _LENGTH.pack(-1 if field is None else len(field))
        covered += field or b""
    size = len(covered) + 4
    head = _PREFIX.pack(record.offset, size) + zlib.crc32(covered).to_bytes(4, "big")
    return bytearray(head) + covered
