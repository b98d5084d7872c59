"""Batches with a good checksum that no consumer can read, or not as their header says, by name."""

import random
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.records.batch import HEADER_BYTES
from odradek.records.builder import write_header
from odradek.records.codec import write_varint
from odradek.records.compression import CompressionType, compress

HUGE: Final = 2**31 - 1
UNKNOWN_CODECS: Final = (5, 6, 7)
PACKED: Final = [codec for codec in CompressionType if codec]


def varints(*values: int) -> bytes:
    out = bytearray()
    for value in values:
        write_varint(out, value)
    return bytes(out)


def field(data: bytes | None) -> bytes:
    return varints(-1) if data is None else varints(len(data)) + data


def record(
    offset_delta: int,
    *,
    attributes: int = 0,
    timestamp_delta: bytes = b"\0",
    key: bytes | None = None,
    value: bytes | None = None,
    headers: bytes = b"\0",
    rest: bytes = b"",
    length: int | None = None,
) -> bytes:
    """Return one record; ``key`` and ``value`` are whole fields, of ``b"k"`` and ``b"value"``."""
    key = field(b"k") if key is None else key
    value = field(b"value") if value is None else value
    fields = bytes([attributes]) + timestamp_delta + varints(offset_delta)
    fields += key + value + headers + rest
    return varints(len(fields) if length is None else length) + fields


def batch_of(
    body: bytes, count: int, now_ms: int, codec: int = 0, last_offset_delta: int | None = None
) -> bytearray:
    """Return ``body`` behind a header with a checksum that is right, whatever else is not."""
    return write_header(
        bytearray(HEADER_BYTES) + body,
        last_offset_delta=count - 1 if last_offset_delta is None else last_offset_delta,
        attributes=codec,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        records_count=count,
    )


THREE: Final = b"".join(record(delta) for delta in range(3))
GARBAGE: Final = random.Random(12).randbytes(200)

# Records that are wrong in themselves: how many the header says, and the bytes.
BODIES: Final[dict[str, tuple[int, bytes]]] = {
    "garbage": (3, GARBAGE),
    "nothing at all": (3, b""),
    "one more claimed": (4, THREE),
    "one less claimed": (2, THREE),
    "a byte left over": (3, THREE + b"\0"),
    "many more claimed": (100_000, THREE),
    "as many claimed as there are numbers": (HUGE, THREE),
    "cut short": (3, THREE[:-1]),
    "record of negative length": (3, record(0) + record(1, length=-5) + record(2)),
    "record without fields": (3, record(0) + b"\0" + record(2)),
    "record longer than the body": (3, record(0) + record(1) + record(2, length=1000)),
    "record longer than its fields": (3, record(0) + record(1, rest=b"\0") + record(2)),
    "record shorter than its fields": (3, record(0) + record(1, length=8) + record(2)),
    "key beyond its record": (3, record(0) + record(1, key=varints(100)) + record(2)),
    "value beyond its record": (3, record(0) + record(1, value=varints(HUGE)) + record(2)),
    "headers that are not there": (3, record(0) + record(1, headers=varints(5)) + record(2)),
    "headers without end": (3, record(0) + record(1, headers=varints(HUGE)) + record(2)),
    "negative count of headers": (3, record(0) + record(1, headers=varints(-1)) + record(2)),
    "header without key": (3, record(0) + record(1, headers=varints(1, -1, -1)) + record(2)),
    "varint without end": (3, record(0) + b"\xff" * 6 + record(1) + record(2)),
    "timestamp without end": (3, record(0) + record(1, timestamp_delta=b"\xff" * 11) + record(2)),
}

# Records that are sound, but whose offsets are not 0, 1, 2, …
OFFSETS: Final[dict[str, bytes]] = {
    "all offsets the same": record(0) * 3,
    "offsets backwards": record(2) + record(1) + record(0),
    "offsets with gaps": record(0) + record(5) + record(9),
    "offsets before the batch": record(-3) + record(-2) + record(-1),
    "offsets of another gigabyte": record(0) + record(1) + record(HUGE),
}

# Records that Kafka takes, though it may look otherwise.
SOUND: Final[dict[str, bytes]] = {
    "plain": THREE,
    "unused attributes": record(0) + record(1, attributes=0xFF) + record(2),
    "padded varint": record(0) + record(1, key=b"\x82\x80\0k") + record(2),
    "null value": record(0) + record(1, value=varints(-1)) + record(2),
    "very negative length of a value": record(0) + record(1, value=varints(-9)) + record(2),
    "headers": record(0) + record(1, headers=varints(1) + field(b"h") + field(None)) + record(2),
}


class Case(NamedTuple):
    name: str
    claimed: int
    codec: int
    body: bytes

    def batch(self, now_ms: int) -> bytearray:
        return batch_of(self.body, self.claimed, now_ms, self.codec)


def iter_records_cases(bodies: Mapping[str, tuple[int, bytes]]) -> Iterator[Case]:
    """Yield each of the bodies in every codec."""
    for codec in CompressionType:
        for name, (count, body) in bodies.items():
            yield Case(f"{name}, {codec.name.lower()}", count, codec, compress(codec, body))


def iter_stream_cases() -> Iterator[Case]:
    """Yield batches that do not unpack."""
    for codec in UNKNOWN_CODECS:
        yield Case(f"codec {codec}", 3, codec, THREE)
    long = b"".join(record(delta) for delta in range(1000))
    for codec in PACKED:
        packed, name = compress(codec, long), codec.name.lower()
        yield Case(f"no compressed data, {name}", 1000, codec, GARBAGE)
        yield Case(f"empty, {name}", 1000, codec, b"")
        yield Case(f"stream cut short, {name}", 1000, codec, packed[: len(packed) // 2])
        yield Case(f"last byte missing, {name}", 1000, codec, packed[:-1])


SOUND_CASES: Final = list(iter_records_cases({name: (3, each) for name, each in SOUND.items()}))
OFFSET_CASES: Final = list(iter_records_cases({name: (3, each) for name, each in OFFSETS.items()}))
BODY_CASES: Final = list(iter_records_cases(BODIES))
STREAM_CASES: Final = list(iter_stream_cases())
