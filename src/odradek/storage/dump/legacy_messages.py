"""Messages v0 and v1 one by one, inside a wrapper too, each with the checksum it carries.

``records.legacy`` reads the same bytes for those who want records and refuses a message that fails
its checksum. Here that is something to show. The format is told there.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.records import Record
from odradek.records.batch import CODEC_MASK, LENGTH_MIN, LOG_APPEND_TIME_FLAG, LOG_OVERHEAD
from odradek.records.compression import DECOMPRESSED_BYTES_MAX, CompressionType, decompress

_MESSAGE: Final = Struct(">qiIbb")
_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_COVERED_POSITION: Final = 16
_WRAPPER_CODECS: Final = (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)


class FoundMessage(NamedTuple):
    """A record, and what only its format has: a sequence, or a checksum of its own."""

    record: Record
    sequence: int = -1
    crc: int = 0
    is_valid: bool = False


class _Message(NamedTuple):
    found: FoundMessage
    magic: int
    attributes: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> int | None:
        if self.magic == 0 or not self.attributes & LOG_APPEND_TIME_FLAG:
            return None
        return self.found.record.timestamp


def read_messages(data: bytes) -> list[FoundMessage]:
    """Return the message that ``data`` is, or those inside if it is a wrapper.

    Raises:
        CorruptionError: A field is longer than its message, or a wrapper cannot be unpacked.
    """
    outer = _parse(memoryview(data))
    if outer.codec == CompressionType.NONE:
        return [outer.found]
    if outer.codec not in _WRAPPER_CODECS:
        raise CorruptionError(f"a v{outer.magic} message cannot have codec {outer.codec}")
    return _unwrap(outer)


def _unwrap(wrapper: _Message) -> list[FoundMessage]:
    offset, _, _, value, _ = wrapper.found.record
    if value is None:
        raise CorruptionError("a compressed message has no value")
    inside = decompress(
        CompressionType(wrapper.codec),
        value,
        output_bytes_max=DECOMPRESSED_BYTES_MAX,
        lz4_broken_checksum=wrapper.magic == 0,
    )
    messages = list(_iter_set(memoryview(inside)))
    if not messages:
        raise CorruptionError("a compressed message has nothing inside")
    if any(message.codec for message in messages):
        raise CorruptionError("a message inside a wrapper is compressed")
    base_offset = 0
    if wrapper.magic == 1 and offset != 0:  # 0: from librdkafka, see records.legacy
        base_offset = offset - messages[-1].found.record.offset
        if base_offset < 0:
            raise CorruptionError("a wrapper's offset is less than that of its last message")
    return [_placed(message, wrapper, base_offset) for message in messages]


def _placed(message: _Message, wrapper: _Message, base_offset: int) -> FoundMessage:
    record = message.found.record
    timestamp = record.timestamp
    if message.magic == 1 and wrapper.log_append_time is not None:
        timestamp = wrapper.log_append_time
    placed = record._replace(offset=base_offset + record.offset, timestamp=timestamp)
    return message.found._replace(record=placed)


def _iter_set(view: memoryview) -> Iterator[_Message]:
    """Iterate over a message set; one that is cut short at the end is left out, as Kafka does."""
    position = 0
    while len(view) - position >= LOG_OVERHEAD:
        size = int.from_bytes(view[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
        if size < LENGTH_MIN:
            raise CorruptionError(f"a message inside a wrapper says it has {size} bytes")
        end = position + LOG_OVERHEAD + size
        if end > len(view):
            return
        yield _parse(view[position:end])
        position = end


def _parse(view: memoryview) -> _Message:
    offset, _, crc, magic, attributes = _MESSAGE.unpack_from(view)
    cursor, timestamp = _MESSAGE.size, -1
    if magic:
        if len(view) - cursor < _TIMESTAMP.size:
            raise CorruptionError("a message ends inside its timestamp")
        (timestamp,) = _TIMESTAMP.unpack_from(view, cursor)
        cursor += _TIMESTAMP.size
    key, cursor = _field(view, cursor)
    value, cursor = _field(view, cursor)
    is_valid = zlib.crc32(view[_COVERED_POSITION:]) == crc
    record = Record(offset, timestamp, key, value)
    return _Message(FoundMessage(record, crc=crc, is_valid=is_valid), magic, attributes)


def _field(view: memoryview, cursor: int) -> tuple[bytes | None, int]:
    if len(view) - cursor < _LENGTH.size:
        raise CorruptionError("a message ends inside a length")
    (length,) = _LENGTH.unpack_from(view, cursor)
    cursor += _LENGTH.size
    if length < 0:
        return None, cursor
    if length > len(view) - cursor:
        raise CorruptionError("a key or value is longer than its message")
    return bytes(view[cursor : cursor + length]), cursor + length
