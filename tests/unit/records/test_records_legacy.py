"""Message sets v0 and v1: wrappers, offsets, times, conversion, and what is refused."""

import struct
import zlib
from collections.abc import Sequence

import lz4.frame
import pytest

from odradek.core.errors import CorruptionError
from odradek.records import CompressionType, Record, TimestampType, parse_header, read_all
from odradek.records.compression import compress
from odradek.records.legacy import (
    CONVERTED_BYTES_MAX,
    build_message_set,
    convert_to_v2,
    iter_legacy,
    read_legacy,
)

CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
LZ4_OPTIONS = {
    "block_size": lz4.frame.BLOCKSIZE_MAX64KB,
    "block_linked": False,
    "store_size": False,
}
RECORDS = [
    Record(100, 1000, b"k", b"v"),
    Record(101, 1003, None, b""),
    Record(105, 1001, b"", None),
]


def records_in(message_set: bytes) -> list[Record]:
    return [record for batch in iter_legacy(message_set) for record in batch.records]


def message(
    offset: int, value: bytes | None, *, magic: int = 1, attributes: int = 0, timestamp: int = 7
) -> bytes:
    """Encode by hand, so that nonsense can be said."""
    covered = struct.pack(">bb", magic, attributes)
    if magic == 1:
        covered += struct.pack(">q", timestamp)
    covered += struct.pack(">i", -1)
    covered += struct.pack(">i", -1 if value is None else len(value)) + (value or b"")
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


@pytest.mark.seed_row("1.10")
def test_a_message_has_kafkas_bytes() -> None:
    assert build_message_set([Record(5, 7, None, b"hi")], magic=1) == message(5, b"hi")
    assert build_message_set([Record(5, -1, None, None)], magic=0) == message(5, None, magic=0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_records_come_back(magic: int, codec: CompressionType) -> None:
    blob = build_message_set(RECORDS, magic=magic, codec=codec)
    expected = RECORDS if magic else [record._replace(timestamp=-1) for record in RECORDS]
    assert records_in(blob) == expected
    (first, *_) = iter_legacy(blob)
    assert (first.magic, first.codec) == (magic, codec)
    assert first.timestamp_type == TimestampType.CREATE_TIME


@pytest.mark.parametrize("codec", CODECS)
def test_the_logs_time_overrides_that_of_the_records(codec: CompressionType) -> None:
    blob = build_message_set(RECORDS, magic=1, codec=codec, log_append_time=9999)
    assert {record.timestamp for record in records_in(blob)} == {9999}
    assert {batch.timestamp_type for batch in iter_legacy(blob)} == {TimestampType.LOG_APPEND_TIME}


@pytest.mark.seed_row("1.10")
def test_offsets_inside_a_v1_wrapper_are_relative_and_inside_v0_absolute() -> None:
    for magic, inner in ((1, [0, 1, 5]), (0, [100, 101, 105])):
        blob = build_message_set(RECORDS, magic=magic, codec=CompressionType.GZIP)
        start = 12 + 14 + 8 * magic
        inside = zlib.decompress(blob[start:], wbits=31)
        assert [r.offset for r in records_in(inside)] == inner
        assert struct.unpack_from(">q", blob) == (105,)


def test_lz4_has_its_wrong_checksum_in_v0_and_the_right_one_in_v1() -> None:
    for magic in (0, 1):
        blob = build_message_set(RECORDS, magic=magic, codec=CompressionType.LZ4)
        frame = blob[12 + 14 + 8 * magic :]
        right = frame[6] == lz4.frame.compress(b"", **LZ4_OPTIONS)[6]
        assert right == (magic == 1)


def test_v0_has_no_timestamp_type() -> None:
    batch = read_legacy(message(0, b"", magic=0, attributes=8))
    assert batch.timestamp_type == TimestampType.CREATE_TIME


def test_a_v1_wrapper_with_offset_0_leaves_the_offsets_inside_as_they_are() -> None:
    inside = message(3, b"a") + message(4, b"b")
    wrapper = message(0, compress(CompressionType.GZIP, inside), attributes=1)
    assert [record.offset for record in records_in(wrapper)] == [3, 4]


def gzipped(inside: bytes, offset: int = 9, magic: int = 1) -> bytes:
    return message(offset, compress(CompressionType.GZIP, inside), magic=magic, attributes=1)


@pytest.mark.parametrize(
    "blob",
    [
        pytest.param(gzipped(message(10, b"a")), id="wrapper before its last message"),
        pytest.param(gzipped(b""), id="nothing inside"),
        pytest.param(gzipped(message(0, b"a")[:-1]), id="cut inside"),
        pytest.param(gzipped(gzipped(message(0, b"a"))), id="wrapper in a wrapper"),
        pytest.param(gzipped(message(0, b"a", magic=0)), id="v0 inside v1"),
        pytest.param(gzipped(message(0, b"a")[:-1] + b"b"), id="checksum inside"),
        pytest.param(message(0, None, attributes=1), id="null wrapper"),
        pytest.param(message(0, b"", attributes=4), id="zstd"),
        pytest.param(message(0, b"", attributes=7), id="codec 7"),
        pytest.param(message(0, b"", magic=2), id="magic 2"),
        pytest.param(message(0, b"x")[:-1] + b"y", id="checksum"),
        pytest.param(struct.pack(">qiIbb", 0, 13, 0, 0, 0) + bytes(20), id="shorter than any"),
        pytest.param(struct.pack(">qiIbb", 0, -1, 0, 0, 0) + bytes(20), id="negative size"),
        pytest.param(struct.pack(">qiIbb", 0, 2**31 - 1, 0, 1, 0) + bytes(20), id="too long"),
    ],
)
def test_what_is_malformed_is_corrupt(blob: bytes) -> None:
    with pytest.raises(CorruptionError):
        list(iter_legacy(blob))


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(struct.pack(">i", 5) + b"\x00" * 4, id="key longer than the message"),
        pytest.param(struct.pack(">i", 4) + b"\x00" * 4, id="no value"),
        pytest.param(struct.pack(">ii", -1, 1), id="value longer than the message"),
        pytest.param(struct.pack(">ii", -1, -1) + b"rest", id="longer than its fields"),
    ],
)
def test_fields_are_held_against_the_message(fields: bytes) -> None:
    covered = b"\x00\x00" + fields
    blob = struct.pack(">qiI", 0, len(covered) + 4, zlib.crc32(covered)) + covered
    with pytest.raises(CorruptionError):
        read_legacy(blob)


def test_a_wrapper_unpacks_to_no_more_than_the_limit() -> None:
    blob = build_message_set(
        [Record(0, 0, None, bytes(100_000))], magic=1, codec=CompressionType.GZIP
    )
    with pytest.raises(CorruptionError):
        read_legacy(blob, output_bytes_max=100_000)
    read_legacy(blob, output_bytes_max=101_000)


def test_a_partial_tail_is_tolerated_only_on_request() -> None:
    whole = build_message_set(RECORDS, magic=1)
    tail = build_message_set(RECORDS[:1], magic=1)
    for cut in range(1, len(tail)):
        batches = list(iter_legacy(whole + tail[:cut], partial_tail=True))
        assert len(batches) == 3
        with pytest.raises(CorruptionError):
            list(iter_legacy(whole + tail[:cut]))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_conversion_keeps_offsets_and_codec(magic: int, codec: CompressionType) -> None:
    (batch,) = convert_to_v2(
        build_message_set(RECORDS, magic=magic, codec=codec), partition_leader_epoch=4
    )
    header = parse_header(batch)
    assert (header.codec, header.partition_leader_epoch) == (codec, 4)
    assert (header.base_offset, header.last_offset) == (100, 105)
    assert header.max_timestamp == (1003 if magic else -1)
    assert [r.offset for r in read_all(batch)] == [100, 101, 105]


def test_conversion_numbers_what_a_producer_sent() -> None:
    sent = message(0, b"a") + message(0, b"b") + gzipped(message(0, b"c"), 0)
    first, second = convert_to_v2(sent, base_offset=500)
    assert [r.offset for r in read_all(first + second)] == [500, 501, 502]
    assert [parse_header(b).codec for b in (first, second)] == [0, 1]
    with pytest.raises(CorruptionError):
        convert_to_v2(sent)


def offsets(batches: Sequence[bytearray]) -> list[list[int]]:
    return [[record.offset for record in read_all(batch)] for batch in batches]


def test_messages_are_joined_as_far_as_their_times_allow() -> None:
    blob = (
        message(0, b"", timestamp=1)
        + message(1, b"", timestamp=2)
        + message(2, b"", timestamp=3, attributes=8)
        + message(3, b"", timestamp=3, attributes=8)
        + message(4, b"", timestamp=4, attributes=8)
        + message(5, b"", magic=0)
    )
    batches = convert_to_v2(blob)
    assert offsets(batches) == [[0, 1], [2, 3], [4], [5]]
    assert [parse_header(b).log_append_time for b in batches] == [None, 3, 4, None]
    assert [parse_header(b).max_timestamp for b in batches] == [2, 3, 4, -1]


def test_converted_batches_are_bounded_in_bytes_and_offsets() -> None:
    half = bytes(CONVERTED_BYTES_MAX // 2)
    assert offsets(convert_to_v2(b"".join(message(i, half) for i in range(4)))) == [[0, 1], [2, 3]]
    far = 2**31
    assert offsets(convert_to_v2(message(0, b"") + message(far, b""))) == [[0], [far]]
    with pytest.raises(CorruptionError):
        convert_to_v2(gzipped(message(0, b"") + message(far, b""), far))


def test_what_these_formats_cannot_hold_is_refused() -> None:
    with_header = [Record(0, 0, None, None, (("h", b""),))]
    for arguments in (
        {"records": with_header, "magic": 1},
        {"records": RECORDS, "magic": 2},
        {"records": RECORDS, "magic": 1, "codec": CompressionType.ZSTD},
        {"records": [], "magic": 1, "codec": CompressionType.GZIP},
    ):
        with pytest.raises(ValueError):
            build_message_set(**arguments)  # type: ignore[arg-type]
