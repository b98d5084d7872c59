"""The compiled record codec and the plain one agree: on sound records, and on the wildest bytes.

Agreeing means equal results, or the same complaint in the same words.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.errors import CorruptionError
from odradek.records import codec, column_codec, key_hash
from odradek.records.columns import BinaryColumn, HeaderColumn
from odradek.records.record import Record

compiled: ModuleType = pytest.importorskip("odradek.records._compiled")
PLAIN = SimpleNamespace(**vars(codec) | vars(column_codec) | vars(key_hash))

INT64 = st.integers(-(2**63), 2**63 - 1)
FIELD = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=200)
HEADERS = st.lists(
    st.tuples(st.text(max_size=5) | st.binary(max_size=5), st.none() | st.binary(max_size=5)),
    max_size=3,
)
ROWS = st.lists(st.tuples(INT64, FIELD, FIELD, HEADERS), max_size=12)


def outcome(work: Callable[[], Any]) -> Any:
    """Return what the work gives, or the complaint it ends in."""
    try:
        return work()
    except (CorruptionError, ValueError, OverflowError) as error:
        return type(error), str(error)


def encode(twin: Any, rows: list[Any], base_timestamp: int | None = None) -> Any:
    encoder = twin.RecordEncoder(3, 5, base_timestamp)
    sizes = [encoder.append(*row) for row in rows]
    state = (encoder.count, encoder.next_offset, encoder.base_timestamp, encoder.max_timestamp)
    return sizes, state, bytes(encoder.take())


def drain(twin: Any, body: bytes, count: int, base: int, time: int | None) -> Any:
    """Return the records up to the end or the fault, and the fault."""
    records: list[Record] = []
    try:
        records.extend(twin.iter_records(body, count, base, base, time))
    except CorruptionError as error:
        return records, str(error)
    return records, None


def contents(columns: Any) -> Any:
    """Bring decoded columns to bytes of their true length: buffers may be longer."""
    rows = columns.rows

    def cut(buffer: Any, size: int) -> bytes:
        return bytes(memoryview(buffer).cast("B")[:size])

    def binary(column: Any, count: int) -> Any:
        ends = cut(column.offsets, 4 * (count + 1))
        end = int.from_bytes(ends[-4:], "little")
        bits = None
        if column.validity is not None:
            raw = memoryview(column.validity).cast("B")
            bits = [raw[i >> 3] >> (i & 7) & 1 for i in range(count)]
        return ends, cut(column.data, end), bits, column.null_count

    headers = columns.headers
    if headers is not None:
        bits = None
        if headers.validity is not None:
            raw = memoryview(headers.validity).cast("B")
            bits = [raw[i >> 3] >> (i & 7) & 1 for i in range(rows)]
        headers = (
            cut(headers.offsets, 4 * (rows + 1)),
            bits,
            headers.null_count,
            headers.header_count,
            binary(headers.keys, headers.header_count),
            binary(headers.values, headers.header_count),
        )
    return (
        rows,
        binary(columns.key, rows),
        binary(columns.value, rows),
        cut(columns.offset, 8 * rows),
        cut(columns.timestamp_us, 8 * rows),
        cut(columns.timestamp_type, 4 * rows),
        headers,
    )


def decode_columns(twin: Any, bodies: list[tuple[bytes, int, int, int | None]], limit: int) -> Any:
    """Decode every body into one set of columns; a bad one must leave no trace."""
    decoder = twin.ColumnDecoder(True)
    results = [
        outcome(partial(decoder.append, body, count, base, base, time, 0, limit))
        for body, count, base, time in bodies
    ]
    return results, decoder.rows, decoder.body_bytes, contents(decoder.finish())


@given(ROWS, st.none() | INT64)
def test_they_encode_the_same_bytes(rows: list[Any], base_timestamp: int | None) -> None:
    ours = encode(compiled, rows, base_timestamp)
    assert ours == encode(PLAIN, rows, base_timestamp)
    encoder = compiled.RecordEncoder(3, 5, base_timestamp)
    encoder.extend(rows)
    assert bytes(encoder.take()) == ours[2]


@given(st.lists(st.integers(-5, 2**31 + 5) | INT64, max_size=6), INT64)
def test_they_refuse_the_same_offsets(offsets: list[int], base: int) -> None:
    def build(twin: Any) -> Any:
        encoder = twin.RecordEncoder(0, base)
        results = [
            outcome(partial(encoder.append, 0, b"", b"", (), base + offset))
            for offset in offsets
            if -(2**63) <= base + offset < 2**63
        ]
        return results, encoder.next_offset, bytes(encoder.take())

    assert build(compiled) == build(PLAIN)


@given(ROWS, INT64, st.none() | INT64)
def test_they_decode_the_same_records(rows: list[Any], base: int, time: int | None) -> None:
    body = encode(PLAIN, rows)[2][3:]
    records, fault = drain(compiled, body, len(rows), base, time)
    assert (records, fault) == drain(PLAIN, body, len(rows), base, time)
    assert fault is None
    assert all(type(record) is Record for record in records)
    assert [(r.key, r.value) for r in records] == [(row[1], row[2]) for row in rows]
    assert compiled.summarize_records(body, len(rows), base) == PLAIN.summarize_records(
        body, len(rows), base
    )


@st.composite
def mutated_bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Sound records with a few bytes changed, cut or added, and a count near the true one."""
    rows = draw(ROWS)
    body = bytearray(encode(PLAIN, rows)[2][3:])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(["set", "cut", "add", "flip"])):
            case "set" if at < len(body):
                body[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
            case "flip" if at < len(body):
                body[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del body[at : at + draw(st.integers(1, 4))]
            case _:
                body[at:at] = draw(st.binary(max_size=11))
    count = draw(st.just(len(rows)) | st.integers(-2, 40))
    return bytes(body), count


HOSTILE = mutated_bodies() | st.tuples(st.binary(max_size=80), st.integers(-1, 12))


@given(HOSTILE, INT64, st.none() | INT64)
def test_they_complain_alike(hostile: tuple[bytes, int], base: int, time: int | None) -> None:
    body, count = hostile
    assert drain(compiled, body, count, base, time) == drain(PLAIN, body, count, base, time)
    assert outcome(lambda: compiled.summarize_records(body, count, base)) == outcome(
        lambda: PLAIN.summarize_records(body, count, base)
    )


@given(
    HOSTILE | ROWS.map(lambda rows: (bytes(encode(PLAIN, rows)[2][3:]), len(rows))),
    INT64,
    st.booleans(),
    st.booleans(),
    INT64,
    INT64,
    st.integers(0, 5),
)
def test_they_refuse_the_same_records(
    batch: tuple[bytes, int],
    base: int,
    keys: bool,
    timestamps: bool,
    first: int,
    last: int,
    named_max: int,
) -> None:
    def refused(twin: Any) -> object:
        return twin.find_refused(
            *batch,
            base,
            keys=keys,
            timestamps=timestamps,
            first_timestamp=first,
            last_timestamp=last,
            named_max=named_max,
        )

    assert outcome(lambda: refused(compiled)) == outcome(lambda: refused(PLAIN))


@given(
    st.lists(st.tuples(HOSTILE, INT64, st.none() | INT64), max_size=4),
    ROWS,
    st.integers(0, 20) | st.just(2**63 - 1),
)
def test_their_columns_are_the_same(hostile: Any, rows: list[Any], limit: int) -> None:
    bodies = [(body, count, base, time) for (body, count), base, time in hostile]
    bodies.insert(len(bodies) // 2, (encode(PLAIN, rows)[2][3:], len(rows), 5, None))
    assert decode_columns(compiled, bodies, limit) == decode_columns(PLAIN, bodies, limit)


def binary_column(cells: list[bytes | None], first: int) -> BinaryColumn:
    ends, data, bits = [0], b"", bytearray((len(cells) + 7) // 8)
    for row, cell in enumerate(cells):
        data += cell or b""
        ends.append(len(data))
        bits[row >> 3] |= (cell is not None) << (row & 7)
    packed = b"".join(end.to_bytes(8, "little", signed=True) for end in ends)
    return BinaryColumn(packed, data, bytes(bits) if None in cells else None, first)


def header_column(lists: list[list[Any] | None], first: int) -> HeaderColumn:
    flat = [header for headers in lists for header in headers or []]
    ends, bits = [0], bytearray((len(lists) + 7) // 8)
    for row, headers in enumerate(lists):
        ends.append(ends[-1] + len(headers or []))
        bits[row >> 3] |= (headers is not None) << (row & 7)
    packed = b"".join(end.to_bytes(8, "little") for end in ends)
    keys = binary_column([key for key, _ in flat], 0)
    values = binary_column([value for _, value in flat], 0)
    return HeaderColumn(packed, bytes(bits), first, keys, values, len(flat))


CELLS = st.lists(FIELD, min_size=6, max_size=6)
# A null header key is refused, by both alike.
HEADER_LISTS = st.lists(
    st.none()
    | st.lists(
        st.tuples(st.binary(max_size=4) | st.none(), st.none() | st.binary(max_size=4)), max_size=2
    ),
    min_size=6,
    max_size=6,
)


def int64s(numbers: list[int]) -> bytes:
    return b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)


def encode_columns(twin: Any, arguments: tuple[Any, ...], limit: int) -> Any:
    encoder = twin.ColumnEncoder(*arguments)
    row, batches = 0, []
    while row < encoder.rows:
        encoded = encoder.encode(row, limit, 7)
        batches.append((bytes(encoded.buffer), *encoded[1:]))
        row = encoded.next_row
    return batches


@given(
    st.integers(0, 3), st.none() | CELLS, st.none() | CELLS, st.none() | HEADER_LISTS,
    st.none() | st.lists(INT64, min_size=6, max_size=6), INT64, st.integers(-1, 400),
    st.none() | st.lists(st.integers(0, 3) | st.integers(-1, 6) | INT64, max_size=8),
)  # fmt: skip
def test_they_encode_the_same_columns(
    first: int, keys: Any, values: Any, headers: Any, timestamps: Any, timestamp: int, limit: int,
    order: list[int] | None,
) -> None:  # fmt: skip
    times = None
    if timestamps is not None:
        times = int64s(timestamps[first:])
    arguments = (
        6 - first,
        None if keys is None else binary_column(keys, first),
        None if values is None else binary_column(values, first),
        None if headers is None else header_column(headers, first),
        times,
        timestamp,
        None if order is None else int64s(order),
    )
    assert outcome(lambda: encode_columns(compiled, arguments, limit)) == outcome(
        lambda: encode_columns(PLAIN, arguments, limit)
    )


@given(
    st.binary(max_size=40), st.binary(max_size=10), st.none() | st.binary(max_size=2),
    st.integers(-1, 3), st.integers(1, 4), st.integers(-1, 30),
)  # fmt: skip
def test_they_refuse_the_same_columns(
    ends: bytes, data: bytes, validity: bytes | None, first: int, rows: int, count: int
) -> None:
    column = BinaryColumn(ends, data, validity, first)
    headers = HeaderColumn(ends, validity, first, column, column, max(count, 0))
    sound = binary_column([b"x"] * 8, 0)
    for arguments in (
        (rows, column, None, None, None, 0),
        (rows, None, None, headers, None, 0),
        (rows, None, None, HeaderColumn(ends, validity, first, sound, sound, 8), None, 0),
        (rows, None, None, None, data, 0),
        (rows, None, None, None, None, 0, data),
    ):
        assert outcome(partial(encode_columns, compiled, arguments, 100)) == outcome(
            partial(encode_columns, PLAIN, arguments, 100)
        )
    assert outcome(lambda: compiled.partitions_of_keys(column, rows, count)) == outcome(
        lambda: PLAIN.partitions_of_keys(column, rows, count)
    )


@given(CELLS, st.integers(0, 3), st.integers(-1, 2**31 - 1))
def test_they_hash_keys_alike(keys: Any, first: int, partitions: int) -> None:
    column = binary_column(keys, first)
    assert outcome(lambda: compiled.partitions_of_keys(column, 6 - first, partitions)) == outcome(
        lambda: PLAIN.partitions_of_keys(column, 6 - first, partitions)
    )
    for key in keys:
        if key is not None:
            assert compiled.murmur2(key) == PLAIN.murmur2(key)
