"""A batch from the outside: header, checksum, patches, iteration."""

import pytest

from odradek.core.errors import CorruptionError
from odradek.records import (
    BatchBuilder,
    CompressionType,
    TimestampType,
    iter_headers,
    magic_at,
    parse_header,
    peek_header,
    read_all,
    read_records,
    set_last_offset,
    set_max_timestamp,
    set_producer_state,
    stamp,
    verify_crc,
)
from odradek.records.batch import HEADER, HEADER_BYTES, is_partial


def make(count: int = 3, **fields: int) -> bytearray:
    builder = BatchBuilder(**fields)  # type: ignore[arg-type]
    for i in range(count):
        builder.append(1000 + i, b"k%d" % i, b"v")
    return builder.build()


def patched(position: int, replacement: bytes) -> bytes:
    batch = make()
    batch[position : position + len(replacement)] = replacement
    return bytes(batch)


@pytest.mark.seed_row("1.10")
def test_a_header_has_kafkas_layout() -> None:
    fields = (7, 49, 3, 2, 0, 0x5C, 4, 10, 20, 30, 40, 50, 2)
    batch = b"??" + HEADER.pack(*fields)
    header = peek_header(batch, 2)
    assert header == (*fields, 2)
    assert len(batch) == 2 + HEADER_BYTES == 2 + header.size
    assert batch[2 + 16] == 2  # the magic is where all formats have it
    assert (header.last_offset, header.next_offset) == (11, 12)
    assert header.codec == CompressionType.ZSTD
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert header.log_append_time == 20
    assert header.is_transactional
    assert not header.is_control
    assert header.delete_horizon_ms == 10
    assert header.has_producer_id
    assert header.last_sequence == 54


def test_sequences_start_again_after_the_largest() -> None:
    batch = make(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert parse_header(batch).last_sequence == 0
    assert parse_header(make(3)).last_sequence == -1


@pytest.mark.parametrize(
    ("position", "replacement"),
    [
        pytest.param(8, (48).to_bytes(4, "big"), id="shorter than its header"),
        pytest.param(8, b"\xff\xff\xff\xff", id="negative length"),
        pytest.param(8, b"\x7f\xff\xff\xff", id="longer than the buffer"),
        pytest.param(16, b"\x01", id="magic 1"),
        pytest.param(16, b"\x03", id="magic 3"),
        pytest.param(57, b"\xff\xff\xff\xff", id="negative count"),
        pytest.param(57, b"\x00\x00\x00\x04", id="more records than offsets"),
        pytest.param(23, b"\xff\xff\xff\xff", id="negative last offset delta"),
    ],
)
def test_a_header_that_contradicts_itself_is_corrupt(position: int, replacement: bytes) -> None:
    with pytest.raises(CorruptionError):
        parse_header(patched(position, replacement))


def test_an_emptied_batch_is_no_contradiction() -> None:
    batch = patched(57, bytes(4))
    header = parse_header(batch)
    assert (header.records_count, header.last_offset_delta) == (0, 2)
    assert list(read_records(batch, header)) == []  # whatever bytes are left in it


def test_not_even_an_emptied_batch_has_a_negative_last_offset_delta() -> None:
    batch = bytearray(patched(57, bytes(4)))
    batch[23:27] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptionError):
        parse_header(batch)


def test_every_cut_is_noticed() -> None:
    batch = bytes(make())
    for end in range(len(batch)):
        with pytest.raises(CorruptionError):
            parse_header(batch[:end])
    parse_header(batch)


def test_a_header_can_be_read_without_its_records() -> None:
    batch = bytes(make())
    assert peek_header(batch[:HEADER_BYTES]) == parse_header(batch)


def test_any_flipped_bit_behind_the_checksum_is_noticed() -> None:
    batch = make()
    for bit in range(17 * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(CorruptionError):
            verify_crc(batch, parse_header(batch))
        batch[bit // 8] ^= 1 << (bit % 8)
    verify_crc(batch, parse_header(batch))


def test_a_leader_stamps_a_batch_without_touching_its_checksum() -> None:
    blob = make() + make()
    _, second = iter_headers(blob)
    stamp(memoryview(blob), second.position, base_offset=500, partition_leader_epoch=9)
    first, after = iter_headers(blob)
    verify_crc(blob, after)
    assert (first.base_offset, first.partition_leader_epoch) == (0, -1)
    assert (after.base_offset, after.partition_leader_epoch, after.last_offset) == (500, 9, 502)
    set_last_offset(blob, after, 1000)
    assert parse_header(blob, second.position).base_offset == 998
    verify_crc(blob, parse_header(blob, second.position))


@pytest.mark.parametrize("codec", CompressionType)
def test_log_append_time_overrides_every_timestamp(codec: CompressionType) -> None:
    batch = make(codec=codec)
    set_max_timestamp(batch, parse_header(batch), TimestampType.LOG_APPEND_TIME, 77)
    header = parse_header(batch)
    verify_crc(batch, header)
    assert (header.max_timestamp, header.timestamp_type) == (77, TimestampType.LOG_APPEND_TIME)
    assert header.codec == codec
    assert [r.timestamp for r in read_records(batch, header)] == [77, 77, 77]
    set_max_timestamp(batch, header, TimestampType.CREATE_TIME, 1002)
    assert batch == make(codec=codec)


def test_an_unchanged_timestamp_leaves_the_checksum_alone() -> None:
    batch = bytes(make())
    # bytes cannot be written to, so this would raise
    set_max_timestamp(batch, parse_header(batch), TimestampType.CREATE_TIME, 1002)  # type: ignore[arg-type]


def test_a_producer_sets_its_state_late() -> None:
    batch = make()
    header = parse_header(batch)
    set_producer_state(batch, header, producer_id=5, producer_epoch=6, base_sequence=7)
    assert batch == make(producer_id=5, producer_epoch=6, base_sequence=7)


def test_a_partial_tail_is_tolerated_only_on_request() -> None:
    whole, tail = bytes(make()), bytes(make(5))
    for cut in range(1, len(tail)):
        blob = whole + tail[:cut]
        assert [h.records_count for h in iter_headers(blob, partial_tail=True)] == [3]
        with pytest.raises(CorruptionError):
            list(iter_headers(blob))
    assert [h.records_count for h in iter_headers(whole + tail)] == [3, 5]
    assert [h.position for h in iter_headers(whole + tail, len(whole))] == [len(whole)]


def test_a_length_that_nothing_has_is_no_partial_tail() -> None:
    blob = make() + bytes(8) + (13).to_bytes(4, "big")
    assert not is_partial(blob, len(make()))
    with pytest.raises(CorruptionError):
        list(iter_headers(blob, partial_tail=True))


def test_iteration_goes_on_from_batch_to_batch() -> None:
    blob = bytearray()
    for base_offset in (0, 3, 6):
        batch = make()
        stamp(batch, base_offset=base_offset, partition_leader_epoch=0)
        blob += batch
    assert [record.offset for record in read_all(memoryview(blob))] == list(range(9))
    blob[70] ^= 1
    with pytest.raises(CorruptionError):
        list(read_all(blob))


def test_the_magic_is_found_before_anything_else() -> None:
    assert magic_at(make()) == 2
    assert magic_at(bytes(16) + b"\xff") == -1
    with pytest.raises(CorruptionError):
        magic_at(bytes(16))
