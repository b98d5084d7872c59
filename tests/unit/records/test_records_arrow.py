"""Batches to tables and columns to batches: types, nulls, ranges, slices, limits."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from odradek.core.errors import CorruptionError
from odradek.records import (
    BatchBuilder,
    CompressionType,
    ControlRecordType,
    EndTransactionMarker,
    Record,
    arrow,
    build_end_transaction_marker,
    column_codec,
    implementation,
    iter_headers,
    parse_header,
    read_all,
    verify_crc,
)
from odradek.records.arrow import PartitionRecords, to_batches, to_table
from odradek.records.legacy import build_message_set

T0 = 1_700_000_000_000
RECORDS = [
    Record(0, T0, b"key", b"value", (("h", b"1"), ("h", None), ("n", b""))),
    Record(1, T0 + 5, None, b"no key"),
    Record(2, T0 + 3, b"tombstone", None),
    Record(3, T0 + 7, b"", b"", (("x", b"y"),)),
]


@pytest.fixture(params=["in use", "plain"], autouse=True)
def _twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything with the codec that was built, and with the plain one."""
    module: Any = implementation if request.param == "in use" else column_codec
    monkeypatch.setattr(arrow, "ColumnDecoder", module.ColumnDecoder)
    monkeypatch.setattr(arrow, "ColumnEncoder", module.ColumnEncoder)


def make(records: list[Record], codec: CompressionType = CompressionType.NONE) -> bytes:
    builder = BatchBuilder(codec=codec, base_offset=records[0].offset)
    builder.append_records(records)
    return bytes(builder.build())


def at(timestamp: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    table = to_table([PartitionRecords("t", 0, make(RECORDS))], include_headers=True)
    table.validate(full=True)
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<item: struct<key: string, value: binary>>"),
    ]


@pytest.mark.parametrize("codec", CompressionType)
def test_every_field_of_a_record_is_in_its_row(codec: CompressionType) -> None:
    table = to_table([PartitionRecords("topic", 7, make(RECORDS, codec))], include_headers=True)
    table.validate(full=True)
    assert table.to_pylist() == [
        {
            "key": record.key,
            "value": record.value,
            "topic": "topic",
            "partition": 7,
            "offset": record.offset,
            "timestamp": at(record.timestamp),
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for record in RECORDS
    ]


def test_headers_come_only_on_request() -> None:
    table = to_table([PartitionRecords("t", 0, make(RECORDS))])
    assert "headers" not in table.column_names


def test_nothing_gives_an_empty_table() -> None:
    for parts in ([], [PartitionRecords("t", 0, b"")]):
        table = to_table(parts, include_headers=True)
        assert table.num_rows == 0
        assert table.schema == arrow.SCHEMA_WITH_HEADERS


def test_many_batches_of_many_partitions_give_one_table() -> None:
    later = [record._replace(offset=10 + record.offset) for record in RECORDS]
    table = to_table(
        [
            PartitionRecords("a", 0, make(RECORDS) + make(later, CompressionType.ZSTD)),
            PartitionRecords("b", 1, memoryview(make(RECORDS))),
        ]
    )
    table.validate(full=True)
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 10, 11, 12, 13, 0, 1, 2, 3]
    assert table["topic"].to_pylist() == ["a"] * 8 + ["b"] * 4
    assert table["partition"].to_pylist() == [0] * 8 + [1] * 4


def test_log_append_time_is_told() -> None:
    builder = BatchBuilder(log_append_time=T0 + 99)
    builder.append_records(RECORDS)
    table = to_table([PartitionRecords("t", 0, bytes(builder.build()))])
    assert table["timestampType"].to_pylist() == [1] * 4
    assert set(table["timestamp"].to_pylist()) == {at(T0 + 99)}


def test_a_timestamp_that_does_not_fit_is_the_largest_that_does() -> None:
    extremes = [2**63 - 1, -(2**63), -1, 0]
    records = [Record(i, timestamp, None, None) for i, timestamp in enumerate(extremes)]
    table = to_table([PartitionRecords("t", 0, make(records))])
    largest = (2**63 - 1) // 1000 * 1000
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [largest, -largest, -1000, 0]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 99, [0, 1, 2, 3]), (1, 3, [1, 2]), (3, 99, [3]), (4, 99, []), (0, 0, [])],
)
def test_only_the_offsets_wanted_become_rows(start: int, end: int, expected: list[int]) -> None:
    part = PartitionRecords("t", 0, make(RECORDS, CompressionType.GZIP), start, end)
    assert to_table([part])["offset"].to_pylist() == expected


def test_a_batch_outside_the_range_is_not_even_opened() -> None:
    bad = bytearray(make([record._replace(offset=10 + record.offset) for record in RECORDS]))
    bad[-1] ^= 1
    part = PartitionRecords("t", 0, make(RECORDS) + bad, 0, 10)
    assert to_table([part]).num_rows == 4
    with pytest.raises(CorruptionError):
        to_table([part._replace(end_offset=11)])
    assert to_table([part._replace(end_offset=13)], check_crc=False).num_rows == 7


def test_control_batches_never_become_rows_but_the_filter_sees_them() -> None:
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 1),
        timestamp=T0,
        producer_id=1,
        producer_epoch=0,
        base_offset=4,
    )
    blob = make(RECORDS) + bytes(marker)
    assert to_table([PartitionRecords("t", 0, blob)]).num_rows == 4
    seen: list[tuple[int, bool]] = []

    def refuse(header: Any) -> bool:
        seen.append((header.position, header.is_control))
        return False

    assert to_table([PartitionRecords("t", 0, blob)], batch_filter=refuse).num_rows == 0
    assert seen == [(0, False), (len(make(RECORDS)), True)]


def test_a_partial_tail_is_tolerated_only_on_request() -> None:
    blob = make(RECORDS) + make(RECORDS)[:-1]
    assert to_table([PartitionRecords("t", 0, blob)], partial_tail=True).num_rows == 4
    with pytest.raises(CorruptionError):
        to_table([PartitionRecords("t", 0, blob)])


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_become_rows_too(magic: int, codec: CompressionType) -> None:
    plain = [record._replace(headers=()) for record in RECORDS]
    later = [record._replace(offset=10 + record.offset) for record in RECORDS]
    blob = build_message_set(plain, magic=magic, codec=codec) + make(later)
    table = to_table([PartitionRecords("t", 0, blob, start_offset=1)], include_headers=True)
    table.validate(full=True)
    assert table["offset"].to_pylist() == [1, 2, 3, 10, 11, 12, 13]
    assert table["timestamp"][0].as_py() == (at(T0 + 5) if magic else at(-1))
    for cut in (1, 20):
        part = PartitionRecords("t", 0, build_message_set(plain, magic=magic, codec=codec)[:-cut])
        with pytest.raises(CorruptionError):
            to_table([part])
        to_table([part], partial_tail=True).validate(full=True)


def test_a_header_key_that_is_not_utf8_has_its_bad_bytes_replaced() -> None:
    builder = BatchBuilder()
    builder.append(T0, None, None, [(b"a\xffb", b""), ("ok", None)])
    table = to_table([PartitionRecords("t", 0, bytes(builder.build()))], include_headers=True)
    table.validate(full=True)
    assert [header["key"] for header in table["headers"][0].as_py()] == ["a\ufffdb", "ok"]


def test_a_batch_that_unpacks_to_too_much_is_corrupt() -> None:
    blob = make([Record(0, 0, None, bytes(10_000))], CompressionType.GZIP)
    with pytest.raises(CorruptionError):
        to_table([PartitionRecords("t", 0, blob)], output_bytes_max=9_000)


def test_columns_are_split_before_their_ends_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "INT32_MAX", 150)
    table = to_table([PartitionRecords("t", 0, make(RECORDS) * 5)])
    assert table.num_rows == 20
    assert table["value"].num_chunks > 1
    monkeypatch.setattr(arrow, "INT32_MAX", 1000)
    table = to_table([PartitionRecords("t" * 500, 0, make(RECORDS))])
    assert table["topic"].num_chunks == 2


# Columns to batches


def records_in(batches: Any) -> list[Record]:
    seen: list[Record] = []
    for batch in batches:
        (header,) = iter_headers(batch)
        verify_crc(batch, header)
        assert header.records_count == header.last_offset_delta + 1
        timestamps = [record.timestamp for record in read_all(batch)]
        assert header.base_timestamp == timestamps[0]
        assert header.max_timestamp == max(timestamps)
        seen.extend(record._replace(offset=0) for record in read_all(batch))
    return seen


HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def columns(records: list[Record]) -> dict[str, pa.Array]:
    headers = [[{"key": k, "value": v} for k, v in r.headers] or None for r in records]
    return {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "headers": pa.array(headers, HEADERS_TYPE),
        "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
    }


EXPECTED = [record._replace(offset=0) for record in RECORDS]


@pytest.mark.parametrize("codec", CompressionType)
def test_columns_become_records(codec: CompressionType) -> None:
    batches = list(
        to_batches(**columns(RECORDS), timestamp_ms=0, batch_bytes_max=10_000, codec=codec)
    )
    assert len(batches) == 1
    assert records_in(batches) == EXPECTED


def test_a_table_goes_back_to_the_batch_it_came_from() -> None:
    table = to_table([PartitionRecords("t", 0, make(RECORDS))], include_headers=True)
    picked = {name: table[name] for name in ("key", "value", "headers", "timestamp")}
    (batch,) = to_batches(**picked, timestamp_ms=0, batch_bytes_max=10_000)
    assert batch == make(RECORDS)


@pytest.mark.parametrize("start", [0, 1, 3])
def test_slices_and_chunks_are_honoured(start: int) -> None:
    sliced = {name: column.slice(start) for name, column in columns(RECORDS * 5).items()}
    assert (
        records_in(to_batches(**sliced, timestamp_ms=0, batch_bytes_max=10_000))
        == ((EXPECTED * 5)[start:])
    )
    chunked = {
        "key": pa.chunked_array([sliced["key"][:2], sliced["key"][2:]]),
        "value": pa.chunked_array([sliced["value"][:5], sliced["value"][5:6], sliced["value"][6:]]),
        "headers": pa.chunked_array([sliced["headers"][:1], sliced["headers"][1:]]),
        "timestamp": pa.chunked_array([sliced["timestamp"]]),
    }
    batches = list(to_batches(**chunked, timestamp_ms=0, batch_bytes_max=10_000))
    assert len(batches) == 1
    assert records_in(batches) == (EXPECTED * 5)[start:]


TEXTS = ["text", "", None, "ü"]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(),
     pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)  # fmt: skip
def test_any_binary_or_string_type_is_taken(kind: pa.DataType) -> None:
    plain = pa.array([None if t is None else t.encode() for t in TEXTS], pa.binary())
    column = pa.array(TEXTS, pa.string()).cast(kind) if "str" in str(kind) else plain.cast(kind)
    seen = records_in(to_batches(column, key=column, timestamp_ms=5, batch_bytes_max=10_000))
    assert [(r.timestamp, r.key, r.value) for r in seen] == [
        (5, None if t is None else t.encode(), None if t is None else t.encode()) for t in TEXTS
    ]


def test_columns_of_nulls_are_taken() -> None:
    nulls = pa.nulls(2)
    seen = records_in(
        to_batches(nulls, key=nulls, headers=nulls, timestamp_ms=5, batch_bytes_max=10_000)
    )
    assert seen == [Record(0, 5, None, None)] * 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_are_taken_and_nulls_filled(unit: str) -> None:
    column = pa.array([at(T0), None, at(T0 + 1000)], pa.timestamp(unit, tz="UTC"))
    values = pa.array([b"a", b"b", b"c"])
    seen = records_in(to_batches(values, timestamp=column, timestamp_ms=77, batch_bytes_max=10_000))
    assert [record.timestamp for record in seen] == [T0, 77, T0 + 1000]


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.list_(pa.struct([("k", pa.large_binary()), ("v", pa.string())])),
        pa.map_(pa.string(), pa.binary()),
    ],
    ids=str,
)
def test_headers_of_any_shape_are_taken(kind: pa.DataType) -> None:
    pairs = [[("h", b"1"), ("n", b"")], None, [], [("x", None)]]
    if pa.types.is_map(kind):
        column = pa.array(pairs, kind)
    else:
        names = kind.value_type.names
        rows = [None if p is None else [dict(zip(names, h, strict=True)) for h in p] for p in pairs]
        column = pa.array(rows, kind)
    seen = records_in(
        to_batches(
            pa.array([b"v"] * 4).slice(1), headers=column.slice(1), timestamp_ms=0,
            batch_bytes_max=10_000,
        )
    )  # fmt: skip
    assert [record.headers for record in seen] == [(), (), (("x", None),)]


def test_batches_keep_their_limit_and_rows_their_order() -> None:
    values = pa.array([b"%d" % i * (i % 40) for i in range(1000)])
    batches = list(to_batches(values, timestamp_ms=T0, batch_bytes_max=1000))
    assert all(len(batch) <= 1000 for batch in batches)
    # None could have taken the first row of the next one as well.
    for batch, after in pairwise(batches):
        first = next(read_all(after))
        assert first.value is not None
        assert len(batch) + len(first.value) + 7 > 1000
    assert [record.value for record in records_in(batches)] == values.to_pylist()


def test_a_row_that_is_too_large_gets_a_batch_of_its_own() -> None:
    values = pa.array([b"a", b"b" * 5000, b"c"])
    batches = list(to_batches(values, timestamp_ms=0, batch_bytes_max=100))
    assert [parse_header(batch).records_count for batch in batches] == [1, 1, 1]


def test_what_does_not_shrink_is_sent_plain_rather_than_over_the_limit() -> None:
    def build(batch_bytes_max: int) -> bytearray:
        (batch,) = to_batches(
            pa.array([b"x"]),
            timestamp_ms=0,
            batch_bytes_max=batch_bytes_max,
            codec=CompressionType.GZIP,
        )
        return batch

    assert parse_header(build(1000)).codec == CompressionType.GZIP
    plain = build(61 + 8)
    assert (parse_header(plain).codec, len(plain)) == (CompressionType.NONE, 61 + 8)


def test_sequences_run_on_from_batch_to_batch() -> None:
    values = pa.array([b"x" * 50] * 10)
    batches = to_batches(
        values,
        timestamp_ms=0,
        batch_bytes_max=61 + 3 * 57,
        producer_id=4,
        producer_epoch=1,
        base_sequence=2**31 - 4,
        transactional=True,
    )
    headers = [parse_header(batch) for batch in batches]
    assert [header.records_count for header in headers] == [3, 3, 3, 1]
    assert [header.base_sequence for header in headers] == [2**31 - 4, 2**31 - 1, 2, 5]
    assert all(h.is_transactional and h.producer_id == 4 for h in headers)


def test_no_rows_give_no_batches() -> None:
    empty = pa.array([], pa.binary())
    assert list(to_batches(empty, timestamp_ms=0, batch_bytes_max=100)) == []
    assert list(to_batches(pa.chunked_array([empty]), timestamp_ms=0, batch_bytes_max=100)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": pa.array([1])},
        {"headers": pa.array([b"x"])},
        {"headers": pa.array([["x"]])},
        {"headers": pa.array([[{"key": 1, "value": b""}]])},
        {"timestamp": pa.array(["now"])},
    ],
)
def test_a_column_of_another_type_is_named(wrong: dict[str, pa.Array]) -> None:
    (name,) = wrong
    with pytest.raises(TypeError, match=f"column {name}"):
        list(to_batches(pa.array([b"v"]), **wrong, timestamp_ms=0, batch_bytes_max=100))


@pytest.mark.parametrize("header", [None, {"key": None, "value": b""}])
def test_a_null_header_key_is_refused(header: object) -> None:
    column = pa.array([[header]], HEADERS_TYPE)
    with pytest.raises(ValueError, match="header key"):
        list(to_batches(pa.array([b"v"]), headers=column, timestamp_ms=0, batch_bytes_max=100))
