"""Control records from a log that may be newer than we are, or corrupt."""

import pytest

from odradek.core.errors import CorruptionError
from odradek.records.control import (
    ControlRecordType,
    decode_control_key,
    decode_end_transaction_marker,
    encode_control_key,
)


@pytest.mark.parametrize("control_type", [t for t in ControlRecordType if t >= 0])
def test_every_type_is_read_back(control_type: ControlRecordType) -> None:
    assert decode_control_key(encode_control_key(control_type)) == control_type


def test_a_type_or_version_from_the_future_is_no_error() -> None:
    assert decode_control_key(b"\x00\x00\x00\x63") == ControlRecordType.UNKNOWN
    assert decode_control_key(b"\x00\x05\x00\x01and more") == ControlRecordType.COMMIT
    marker = decode_end_transaction_marker(b"\x00\x00\x00\x00", b"\x00\x01\x00\x00\x00\x07more")
    assert marker == (ControlRecordType.ABORT, 7)


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_malformed_key_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptionError):
        decode_control_key(key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x07"),
        (b"\x00\x00\x00\x63", b"\x00\x00\x00\x00\x00\x07"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x07"),
    ],
)
def test_what_is_no_marker_is_corrupt(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptionError):
        decode_end_transaction_marker(key, value)
