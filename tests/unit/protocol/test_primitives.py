"""Unsigned varints and tags, at their edges."""

import pytest

from odradek.core.errors import CorruptionError
from odradek.protocol.primitives import uvarint, write_tags, write_uvarint

EDGES = [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31, 2**32 - 1]


@pytest.mark.parametrize("value", EDGES)
def test_varints_of_every_length_come_back(value: int) -> None:
    out = bytearray(b"before")
    write_uvarint(out, value)
    assert uvarint(memoryview(out + b"after"), 6) == (value, len(out))


def test_varint_bytes_are_low_bits_first() -> None:
    out = bytearray()
    write_uvarint(out, 300)
    assert out.hex() == "ac02"


@pytest.mark.parametrize("data", ["ffffffff10", "808080808001", "ffffffffffffffffff01"])
def test_varints_over_32_bits_are_corrupt(data: str) -> None:
    with pytest.raises(CorruptionError, match="32 bits"):
        uvarint(memoryview(bytes.fromhex(data)), 0)


def test_tags_are_written_in_ascending_order() -> None:
    out = bytearray()
    write_tags(out, [(5, b"five"), (1, bytearray(b"one"))])
    assert out.hex() == "02" + "0103" + b"one".hex() + "0504" + b"five".hex()
