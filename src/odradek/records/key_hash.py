"""Kafka's hash of record keys in plain Python: murmur2, of which the partition is the remainder.

All clients that follow Java's put a key into the same partition by it. It has a twin in
``_compiled.pyx``, and callers take whichever ``implementation`` chose, as with ``codec``.
"""

from array import array
from struct import unpack_from
from typing import Final

from odradek.records.column_codec import BinaryReader
from odradek.records.columns import BinaryColumn

NO_PARTITION: Final = -1

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of a key, as an unsigned 32-bit number."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    words = length >> 2
    for word in unpack_from(f"<{words}I", data):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _MASK
        state = state * _MULTIPLIER & _MASK ^ mixed
    rest = data[words << 2 :]
    if rest:
        state = (state ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15


def partitions_of_keys(keys: BinaryColumn, rows: int, partitions: int) -> bytearray:
    """Return the partition of each key of a column as an int32, ``NO_PARTITION`` for a null.

    Raises:
        ValueError: The column is malformed, or there are no partitions.
    """
    if partitions < 1:
        raise ValueError("a topic has one partition at least")
    reader = BinaryReader(keys, rows)
    cells = (reader.cell(row) for row in range(rows))
    numbers = array(
        "i",
        [
            NO_PARTITION if cell is None else (murmur2(bytes(cell)) & 0x7FFFFFFF) % partitions
            for cell in cells
        ],
    )
    return bytearray(numbers.tobytes())
