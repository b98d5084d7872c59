"""The uncommon half of reading and writing fields; generated code has the common half inline.

Hot path (``bench/protocol.py``). An unsigned varint is 7 bits a byte, low bits first, the high bit
set on all but the last byte; it never takes more than 5 bytes here. Compact lengths are one more
than the length, 0 is null. A tagged field is tag, size, bytes; tags ascend.

Nothing is allocated on the peer's word: a count is compared with the bytes that are left, and all
counts of one message together with ELEMENTS_MAX, because a one-byte element on the wire is an
object of a hundred bytes here.
"""

from typing import Final

from odradek.core.errors import ApiError, CorruptionError, ErrorCode

ELEMENTS_MAX: Final = 1 << 20
"""Array elements and unknown tags of one message, all levels together."""

REPEAT: Final = tuple(map(range, range(32)))
"""Ready-made ranges for small counts: making one costs as much as reading three fields."""

STRING_BYTES_MAX: Final = 32767


def uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and the position behind it."""
    first = buf[pos]
    if first < 128:
        return first, pos + 1
    return uvarint_rest(buf, pos + 1, first)


def uvarint_rest(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose first byte had its high bit set."""
    second = buf[pos]
    if second < 128:
        return first & 127 | second << 7, pos + 1
    third = buf[pos + 1]
    value = first & 127 | (second & 127) << 7 | (third & 127) << 14
    if third < 128:
        return value, pos + 2
    fourth = buf[pos + 2]
    value |= (fourth & 127) << 21
    if fourth < 128:
        return value, pos + 3
    fifth = buf[pos + 3]
    if fifth > 15:
        raise CorruptionError("varint of more than 32 bits")
    return value | fifth << 28, pos + 4


def string_length_rest(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """As :func:`uvarint_rest`, for a string's length plus one."""
    value, pos = uvarint_rest(buf, pos, first)
    if value > STRING_BYTES_MAX + 1:
        raise CorruptionError(f"string of {value - 1} bytes, limit is {STRING_BYTES_MAX}")
    return value, pos


def message_bytes(text: str) -> bytes:
    """Encode an error message, cut to what a string may have: it may quote a name of a client's."""
    encoded = text.encode()
    if len(encoded) > STRING_BYTES_MAX:
        return encoded[:STRING_BYTES_MAX].decode(errors="ignore").encode()
    return encoded


def tag_count(buf: memoryview, pos: int, first: int, budget: int) -> tuple[int, int, int]:
    """Finish reading the number of tagged fields; return it, the position and the budget left."""
    count = first
    if first > 127:
        count, pos = uvarint_rest(buf, pos, first)
    budget -= count
    if count * 2 > len(buf) - pos or budget < 0:
        raise too_many("tagged fields", count)
    return count, pos, budget


def unknown_tags(
    buf: memoryview, pos: int, first: int, budget: int
) -> tuple[tuple[tuple[int, bytes], ...], int, int]:
    """Read the tagged fields of a struct that knows none of its own."""
    count, pos, budget = tag_count(buf, pos, first, budget)
    tags: list[tuple[int, bytes]] = []
    for _ in range(count):
        tag, pos = uvarint(buf, pos)
        size, pos = uvarint(buf, pos)
        stop = pos + size
        if stop > len(buf):
            raise too_short("a tagged field", stop - len(buf))
        tags.append((tag, bytes(buf[pos:stop])))
        pos = stop
    return tuple(tags), pos, budget


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def write_tags(out: bytearray, tags: list[tuple[int, bytes | bytearray]]) -> None:
    """Write known and unknown tagged fields together; Kafka wants their tags to ascend."""
    write_uvarint(out, len(tags))
    for tag, data in sorted(tags):
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        out += data


def too_short(what: str, missing: int) -> CorruptionError:
    return CorruptionError(f"{what}: {missing} bytes missing")


def too_many(what: str, count: int) -> CorruptionError:
    return CorruptionError(f"{what}: {count} elements are more than the message can hold")


def null_field(name: str) -> CorruptionError:
    return CorruptionError(f"{name} is null and must not be")


def bad_tag_size(tag: int, left: int) -> CorruptionError:
    return CorruptionError(f"tagged field {tag}: {left} bytes left over")


def lost_field(name: str, version: int) -> ApiError:
    return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"version {version} cannot carry {name}")
