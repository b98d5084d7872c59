"""One record of a batch, and the ways in which its bytes can be wrong.

A record of batch v2; all but the attributes byte and the bytes themselves are zig-zag varints::

    length, attributes (unused, one byte), timestamp delta (64 bit), offset delta,
    key length, key, value length, value, header count,
    then per header: key length, key, value length, value

A negative length is null; a header key cannot be null. Deltas count from the base of the batch and
wrap at 64 bits, as they do in Java. A varint longer than 5 bytes (10 for the 64-bit one) is
corrupt; one that is merely padded is read, because Kafka reads it.

The plain-Python codec and its compiled twin share the numbered faults below, so that a property
test can hold them to the same complaint about the same bytes.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from odradek.core.errors import CorruptionError

Buffer: TypeAlias = bytes | bytearray | memoryview

# A key that is not UTF-8 (librdkafka lets one pass) is kept with `surrogateescape`, so that writing
# the record again gives the same bytes.
Header: TypeAlias = tuple[str, bytes | None]

# What a caller may hand to an encoder: (timestamp, key, value, headers).
Row: TypeAlias = tuple[
    int, Buffer | None, Buffer | None, Iterable[tuple[str | bytes, Buffer | None]]
]

NO_TIMESTAMP: Final = -1
RECORD_BYTES_MIN: Final = 7  # seven fields of one byte each
HEADER_BYTES_MIN: Final = 2  # two lengths

# Past this a batch could not say its own length (int32, counted from the leader epoch on).
RECORDS_BYTES_MAX: Final = 2**31 - 1 - 49


class Record(NamedTuple):
    """A record as its reader sees it: absolute offset, milliseconds since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class RecordsSummary(NamedTuple):
    """What a leader must know of a batch's records before it may take them."""

    consecutive: bool  # offset deltas are 0, 1, 2, …
    null_keys: int
    min_timestamp: int
    max_timestamp: int


class RefusedRecords(NamedTuple):
    """Which records of a sound batch break a rule of their topic, by place in the batch."""

    named: list[tuple[int, int | None]]  # the first ones: (index, timestamp), None for "no key"
    null_keys: int
    timestamps: int


FAULT_TRUNCATED: Final = 1
FAULT_VARINT: Final = 2
FAULT_RECORD_LENGTH: Final = 3
FAULT_FIELD_LENGTH: Final = 4
FAULT_HEADER_COUNT: Final = 5
FAULT_HEADER_KEY: Final = 6
FAULT_RECORD_REST: Final = 7
FAULT_RECORD_COUNT: Final = 8
FAULT_BATCH_REST: Final = 9

_FAULTS: Final = {
    FAULT_TRUNCATED: "the bytes end inside a record",
    FAULT_VARINT: "a varint does not end where its widest value would",
    FAULT_RECORD_LENGTH: "a record is longer than the bytes that are left, or negative",
    FAULT_FIELD_LENGTH: "a key or value is longer than its record",
    FAULT_HEADER_COUNT: "more headers than the record has room for, or a negative count",
    FAULT_HEADER_KEY: "a header key is null",
    FAULT_RECORD_REST: "a record is longer than its fields",
    FAULT_RECORD_COUNT: "more records than the batch has room for, or a negative count",
    FAULT_BATCH_REST: "bytes are left after the last record",
}


def corruption(fault: int) -> CorruptionError:
    """Return the error for a numbered fault, ready to raise."""
    return CorruptionError(f"malformed records: {_FAULTS[fault]}")
