"""The record codec, both twins: the bytes of one record, and each way to break them."""

import subprocess
import sys
from types import ModuleType

import pytest

from odradek.core.errors import CorruptionError
from odradek.records import codec, record
from odradek.records.record import Record, corruption

try:
    from odradek.records import _compiled

    TWINS: list[ModuleType] = [codec, _compiled]
except ImportError:
    TWINS = [codec]

# timestamp delta 2, offset delta 1, key "k", value "vv", headers {"h": None}
BODY = bytes.fromhex("18 00 04 02 02 6b 04 7676 02 02 68 01".replace(" ", ""))
READ = Record(101, 1002, b"k", b"vv", (("h", None),))


@pytest.fixture(params=TWINS, ids=lambda module: module.__name__.rpartition(".")[2])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    assert isinstance(request.param, ModuleType)
    return request.param


def read(twin: ModuleType, body: bytes, count: int = 1) -> list[Record]:
    return list(twin.iter_records(body, count, 100, 1000, None))


@pytest.mark.seed_row("1.10")
def test_a_record_has_kafkas_bytes(twin: ModuleType) -> None:
    encoder = twin.RecordEncoder(0, 100, 1000)
    encoder.append(1002, b"k", b"vv", [("h", None)], 101)
    assert encoder.take() == BODY


@pytest.mark.seed_row("1.10")
@pytest.mark.parametrize(
    ("delta", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (-64, "7f"), (64, "80 01")],
)
def test_small_numbers_of_both_signs_are_short(twin: ModuleType, delta: int, encoded: str) -> None:
    """Zigzag: 0, -1, 1, -2 become 0, 1, 2, 3; seven bits of that in each byte."""
    encoder = twin.RecordEncoder(0, 100, 1000)
    encoder.append(1000 + delta, None, None)
    # Behind the length and the attributes.
    assert encoder.take()[2:].startswith(bytes.fromhex(encoded))


def test_a_record_is_read_back(twin: ModuleType) -> None:
    assert read(twin, BODY) == [READ]


def test_log_append_time_stands_for_every_timestamp(twin: ModuleType) -> None:
    (seen,) = twin.iter_records(BODY, 1, 100, 1000, 5)
    assert seen.timestamp == 5


def test_null_and_empty_are_kept_apart(twin: ModuleType) -> None:
    encoder = twin.RecordEncoder(0)
    encoder.append(0, None, b"", [("", None), ("", b"")])
    encoder.append(0, b"", None)
    first, second = twin.iter_records(encoder.take(), 2, 0, 0, None)
    assert first == Record(0, 0, None, b"", (("", None), ("", b"")))
    assert second == Record(1, 0, b"", None)


def test_records_before_a_fault_are_given_out(twin: ModuleType) -> None:
    records = twin.iter_records(BODY + b"\x0e" + bytes(6), 2, 100, 1000, None)
    assert next(records) == READ
    with pytest.raises(CorruptionError):
        next(records)
    assert list(records) == []


def test_a_header_key_that_is_not_utf8_survives_a_round_trip(twin: ModuleType) -> None:
    encoder = twin.RecordEncoder(0)
    encoder.append(0, None, None, [(b"\xff\xfe", b"")])
    body = encoder.take()
    (seen,) = twin.iter_records(body, 1, 0, 0, None)
    again = twin.RecordEncoder(0)
    again.append(0, None, None, seen.headers)
    assert again.take() == body


def test_a_padded_varint_is_read(twin: ModuleType) -> None:
    # Timestamp delta 0 in ten bytes, offset delta 0 in five.
    fields = b"\x00" + b"\x80" * 9 + b"\x00" + b"\x80" * 4 + b"\x00" + b"\x01\x01\x00"
    body = bytes([2 * len(fields)]) + fields
    assert read(twin, body) == [Record(100, 1000, None, None)]


def test_bits_beyond_the_width_of_a_varint_are_dropped(twin: ModuleType) -> None:
    # As in Java: the last byte of a full-length varint is shifted, and what goes over is lost.
    fields = b"\x00" + b"\xff" * 9 + b"\x7f" + b"\xff" * 4 + b"\x7f" + b"\x01\x01\x00"
    body = bytes([2 * len(fields)]) + fields
    (seen,) = twin.iter_records(body, 1, 0, 0, None)
    assert (seen.offset, seen.timestamp) == (-(2**31), -(2**63))


def test_timestamps_and_offsets_wrap_at_64_bits(twin: ModuleType) -> None:
    (seen,) = twin.iter_records(BODY, 1, 2**63 - 1, 2**63 - 1, None)
    assert (seen.offset, seen.timestamp) == (-(2**63), -(2**63) + 1)


FAULTS = {
    record.FAULT_TRUNCATED: (b"\x02\x00" + bytes(6), 1),
    record.FAULT_VARINT: (b"\x80" * 5 + bytes(3), 1),
    record.FAULT_RECORD_LENGTH: (b"\x7e" + bytes(6), 1),
    record.FAULT_FIELD_LENGTH: (b"\x0c\x00\x00\x00\x7e\x01\x00", 1),
    record.FAULT_HEADER_COUNT: (b"\x0c\x00\x00\x00\x01\x01\x02", 1),
    record.FAULT_HEADER_KEY: (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),
    record.FAULT_RECORD_REST: (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1),
    record.FAULT_RECORD_COUNT: (BODY, 2),
    record.FAULT_BATCH_REST: (BODY + b"\x00", 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_own_complaint(twin: ModuleType, fault: int) -> None:
    body, count = FAULTS[fault]
    for work in (
        lambda: read(twin, body, count),
        lambda: twin.summarize_records(body, count, 0),
    ):
        with pytest.raises(CorruptionError) as caught:
            work()
        assert str(caught.value) == str(corruption(fault))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x0a\x00\x00\x00\x04x\x00", id="key"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x04x", id="value"),
        pytest.param(b"\x12\x00\x00\x00\x01\x01\x02\x00\x04x", id="header value"),
    ],
)
def test_a_field_one_byte_longer_than_its_record_is_refused(twin: ModuleType, body: bytes) -> None:
    with pytest.raises(CorruptionError) as caught:
        read(twin, body)
    assert str(caught.value) == str(corruption(record.FAULT_FIELD_LENGTH))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x01" + bytes(6), id="record length -1"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x01", id="header count -1"),
        pytest.param(b"\x1e\x00" + b"\x80" * 10 + bytes(5), id="timestamp of eleven bytes"),
    ],
)
def test_malformed_numbers_are_refused(twin: ModuleType, body: bytes) -> None:
    with pytest.raises(CorruptionError):
        read(twin, body)


@pytest.mark.parametrize("count", [-1, 3, 2**31 - 1, 2**62, 2**63 - 1])
def test_a_count_is_not_believed(twin: ModuleType, count: int) -> None:
    with pytest.raises(CorruptionError):
        twin.iter_records(BODY, count, 0, 0, None)
    with pytest.raises(CorruptionError):
        twin.summarize_records(BODY, count, 0)


def test_a_summary_tells_gaps_null_keys_and_times(twin: ModuleType) -> None:
    encoder = twin.RecordEncoder(0)
    encoder.append(30, None, b"")
    encoder.append(10, b"", b"")
    assert twin.summarize_records(encoder.take(), 2, 30) == (True, 1, 10, 30)
    gap = twin.RecordEncoder(0)
    gap.append(1, b"", b"", (), 1)
    assert twin.summarize_records(gap.take(), 1, 1) == (False, 0, 1, 1)
    assert twin.summarize_records(b"", 0, 77) == (True, 0, -1, -1)


def test_an_encoder_tells_what_a_header_needs(twin: ModuleType) -> None:
    encoder = twin.RecordEncoder(61, 100)
    assert (encoder.size, encoder.count, encoder.base_timestamp) == (61, 0, None)
    size = encoder.append(50, b"k", memoryview(b"value"), offset=105)
    size = encoder.extend([(40, None, bytearray(b"x"), ())])
    assert (encoder.base_offset, encoder.next_offset, encoder.count) == (100, 107, 2)
    assert (encoder.base_timestamp, encoder.max_timestamp) == (50, 50)
    out = encoder.take()
    assert len(out) == size
    assert out[:61] == bytes(61)
    assert [r[:4] for r in twin.iter_records(out[61:], 2, 100, 50, None)] == [
        (105, 50, b"k", b"value"),
        (106, 40, None, b"x"),
    ]


def test_offsets_never_go_back_and_stay_within_an_int32(twin: ModuleType) -> None:
    encoder = twin.RecordEncoder(0, 100)
    encoder.append(0, b"", b"", (), 110)
    before = encoder.size
    for offset in (99, 110, 100 + 2**31, 2**63 - 1):
        with pytest.raises(ValueError):
            encoder.append(0, b"", b"", (), offset)
    with pytest.raises(OverflowError):
        encoder.append(2**63, b"", b"")
    assert (encoder.size, encoder.count, encoder.next_offset) == (before, 1, 111)
    with pytest.raises(ValueError):
        twin.RecordEncoder(0, 2**63 - 1).append(0, b"", b"")  # what offset would be next?


@pytest.mark.parametrize(
    ("key", "headers"),
    [("text", ()), (5, ()), (b"", [(None, b"")]), (b"", [("k", "text")])],
)
def test_what_is_not_bytes_is_refused(twin: ModuleType, key: object, headers: object) -> None:
    encoder = twin.RecordEncoder(0)
    with pytest.raises(TypeError):
        encoder.append(0, key, b"", headers)
    assert (encoder.size, encoder.count) == (0, 0)


def test_a_used_up_encoder_takes_no_more(twin: ModuleType) -> None:
    encoder = twin.RecordEncoder(0)
    encoder.append(0, b"", b"")
    encoder.take()
    with pytest.raises(ValueError):
        encoder.append(0, b"", b"")


def test_the_twins_are_used_as_they_were_built() -> None:
    import odradek.records

    assert odradek.records.COMPILED == (len(TWINS) == 2)


@pytest.mark.slow
def test_the_package_works_without_its_compiled_part() -> None:
    program = """
import sys
sys.modules["odradek.records._compiled"] = None
from odradek.records import COMPILED, BatchBuilder, read_all
from odradek.records.arrow import PartitionRecords, to_batches, to_table
assert not COMPILED
builder = BatchBuilder()
builder.append(1, b"k", b"v", [("h", b"x")])
batch = bytes(builder.build())
assert [r.value for r in read_all(batch)] == [b"v"]
table = to_table([PartitionRecords("t", 0, batch)], include_headers=True)
(again,) = to_batches(
    table["value"], key=table["key"], headers=table["headers"], timestamp_ms=1, batch_bytes_max=999
)
assert again == batch
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
