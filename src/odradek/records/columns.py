"""The shapes in which records pass between batches and columns.

Columns are flat native-endian buffers laid out as Arrow lays them out, so that ``arrow`` can wrap
them without a copy; nothing here imports pyarrow. Validity is a bitmap, least significant bit
first, 1 for a value; ``None`` means that nothing is null.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

INT32_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1

# Anything with the buffer protocol; pyarrow's own buffers among them, which have no type for it.
AnyBuffer: TypeAlias = Any

# Where the memory of decoded columns comes from: pyarrow's pool for one, which hands out again
# what it got back, because fresh pages cost more than decoding into them. May be longer than asked.
Allocate: TypeAlias = Callable[[int], AnyBuffer]


class DecodedBinary(NamedTuple):
    """A column of byte strings with 32-bit ends: row i is ``data[offsets[i]:offsets[i + 1]]``."""

    offsets: AnyBuffer
    data: AnyBuffer
    validity: AnyBuffer | None
    null_count: int


class DecodedHeaders(NamedTuple):
    """Per row a list of headers, null where there are none, as Spark's Kafka source has it."""

    offsets: AnyBuffer
    validity: AnyBuffer | None
    null_count: int
    header_count: int
    keys: DecodedBinary
    values: DecodedBinary


class DecodedColumns(NamedTuple):
    """The rows of one or more batches."""

    rows: int
    key: DecodedBinary
    value: DecodedBinary
    offset: AnyBuffer  # int64
    timestamp_us: AnyBuffer  # int64
    timestamp_type: AnyBuffer  # int32
    headers: DecodedHeaders | None


class BinaryColumn(NamedTuple):
    """A column of byte strings with 64-bit ends, of which row 0 is at ``first``."""

    offsets: AnyBuffer
    data: AnyBuffer
    validity: AnyBuffer | None
    first: int


class HeaderColumn(NamedTuple):
    """Per row a list of headers with 64-bit ends, of which row 0 is at ``first``."""

    offsets: AnyBuffer
    validity: AnyBuffer | None
    first: int
    keys: BinaryColumn
    values: BinaryColumn
    header_count: int  # rows of the two columns above


class EncodedRows(NamedTuple):
    """The records of one batch, behind the room that was asked for."""

    buffer: bytearray
    next_row: int
    base_timestamp: int
    max_timestamp: int
