"""Building batches: flags, producer state, gaps, markers, emptied batches, sizes."""

import pytest

from odradek.records import (
    HEADER_BYTES,
    BatchBuilder,
    CompressionType,
    ControlRecordType,
    EndTransactionMarker,
    Record,
    TimestampType,
    build_empty_batch,
    build_end_transaction_marker,
    parse_header,
    read_all,
    read_records,
    record_size_max,
    verify_crc,
)
from odradek.records.control import decode_control_key, decode_end_transaction_marker

RECORDS = [
    Record(0, 1000, b"k", b"v", (("h", b"x"), ("h", None))),
    Record(1, 1005, None, b"v" * 1000),
    Record(2, 1002, b"k", None),
]


@pytest.mark.parametrize("codec", CompressionType)
def test_records_come_back(codec: CompressionType) -> None:
    builder = BatchBuilder(codec=codec)
    builder.append_records(RECORDS)
    batch = builder.build()
    header = parse_header(batch)
    verify_crc(batch, header)
    assert header.codec == codec
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.partition_leader_epoch == -1
    assert list(read_records(batch, header)) == RECORDS


def test_the_size_is_that_of_the_batch_before_compression() -> None:
    builder = BatchBuilder()
    assert builder.size == HEADER_BYTES
    sizes = [builder.append(r.timestamp, r.key, r.value, r.headers) for r in RECORDS]
    assert (builder.size, builder.count, builder.next_offset) == (sizes[-1], 3, 3)
    assert len(builder.build()) == sizes[-1]


def test_a_batch_carries_producer_state_and_flags() -> None:
    builder = BatchBuilder(
        producer_id=9, producer_epoch=2, base_sequence=40, transactional=True,
        partition_leader_epoch=5, base_offset=70,
    )  # fmt: skip
    builder.extend([(1, b"k", b"v", ())])
    header = parse_header(builder.build())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 40)
    assert (header.base_offset, header.partition_leader_epoch) == (70, 5)
    assert header.is_transactional
    assert not header.is_control


def test_a_transactional_batch_needs_a_producer() -> None:
    with pytest.raises(ValueError):
        BatchBuilder(transactional=True)


def test_a_compacted_batch_keeps_offsets_and_last_offset() -> None:
    builder = BatchBuilder(base_offset=100, codec=CompressionType.LZ4)
    kept = [Record(103, 5, b"a", b"1"), Record(140, 4, b"b", b"2")]
    builder.append_records(kept)
    batch = builder.build(last_offset=149)
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.records_count) == (100, 149, 2)
    assert list(read_records(batch, header)) == kept


def test_a_last_offset_cannot_be_before_the_last_record() -> None:
    builder = BatchBuilder()
    builder.append_records(RECORDS)
    with pytest.raises(ValueError):
        builder.build(last_offset=1)


def test_the_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    builder = BatchBuilder(delete_horizon_ms=99_999)
    builder.append_records(RECORDS)
    batch = builder.build()
    header = parse_header(batch)
    assert header.delete_horizon_ms == header.base_timestamp == 99_999
    assert header.max_timestamp == 1005
    assert list(read_records(batch, header)) == RECORDS


def test_log_append_time_is_the_time_of_the_batch() -> None:
    builder = BatchBuilder(log_append_time=5000)
    builder.append_records(RECORDS)
    batch = builder.build()
    header = parse_header(batch)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 5000)
    assert {record.timestamp for record in read_records(batch, header)} == {5000}


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_a_batch_without_records_is_a_header(codec: CompressionType) -> None:
    batch = BatchBuilder(codec=codec, base_offset=4).build(last_offset=9)
    header = parse_header(batch)
    verify_crc(batch, header)
    assert len(batch) == HEADER_BYTES
    assert (header.last_offset, header.records_count, header.codec) == (9, 0, 0)
    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)
    assert list(read_records(batch, header)) == []
    assert parse_header(BatchBuilder(base_offset=4).build()).last_offset == 4


def test_the_cleaner_empties_a_batch() -> None:
    builder = BatchBuilder(
        codec=CompressionType.ZSTD, base_offset=30, producer_id=9, producer_epoch=2,
        base_sequence=40, transactional=True, delete_horizon_ms=8,
    )  # fmt: skip
    builder.append_records(record._replace(offset=30 + record.offset) for record in RECORDS)
    before = parse_header(builder.build())
    batch = build_empty_batch(before)
    after = parse_header(batch)
    verify_crc(batch, after)
    assert (after.base_offset, after.last_offset, after.last_sequence) == (30, 32, 42)
    assert (after.records_count, after.base_timestamp, after.max_timestamp) == (0, -1, 1005)
    assert (after.codec, after.delete_horizon_ms) == (CompressionType.NONE, None)
    assert (after.producer_id, after.is_transactional) == (9, True)
    assert list(read_records(batch, after)) == []


def test_a_marker_ends_a_transaction() -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 17)
    batch = build_end_transaction_marker(
        marker, timestamp=1000, producer_id=9, producer_epoch=2, base_offset=55
    )
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.records_count, header.base_sequence) == (55, 1, -1)
    (record,) = read_all(batch, control=True)
    assert record.key == b"\x00\x00\x00\x01"
    assert record.value == b"\x00\x00\x00\x00\x00\x11"
    assert decode_control_key(record.key) == ControlRecordType.COMMIT
    assert decode_end_transaction_marker(record.key, record.value) == marker
    assert list(read_all(batch)) == []  # a consumer sees no control records


@pytest.mark.parametrize(
    "record",
    [
        *RECORDS,
        Record(0, 0, None, None),
        Record(0, -(2**62), b"k" * 200, b"v" * 70_000, (("ü" * 100, b"x" * 300),) * 3),
    ],
)
def test_the_bound_on_a_record_is_one(record: Record) -> None:
    bound = record_size_max(record.key, record.value, record.headers)
    builder = BatchBuilder()
    builder.append(2**62, b"", b"")
    before = builder.size
    after = builder.append(record.timestamp, *record[2:5], 2**31 - 1)
    assert after - before <= bound <= after - before + 36 + 10 * len(record.headers)
