"""Random Avro schemas and values: what fastavro writes comes out of our columns as it went in."""

import io
import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.spark.avro_schema import column_type
from odradek.spark.avro_values import AvroDecoder

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGS = st.integers(-(2**63), 2**63 - 1)
MILLIS = st.integers(-60_000_000_000_000, 200_000_000_000_000)  # years 68 to 8307


Pairs = st.SearchStrategy[tuple[Any, Any]]


class Case(NamedTuple):
    """A schema, and pairs of a value to write and what must be read."""

    schema: Any
    pairs: Pairs


def plain(schema: Any, values: st.SearchStrategy[Any], read: Callable[[Any], Any]) -> Case:
    return Case(schema, values.map(lambda value: (value, read(value))))


def same(value: Any) -> Any:
    return value


def at(value: int) -> datetime:
    return EPOCH + timedelta(milliseconds=value)


LEAVES = [
    plain("boolean", st.booleans(), same),
    plain("int", st.integers(-(2**31), 2**31 - 1), same),
    plain("long", LONGS, same),
    plain("float", st.floats(width=32, allow_nan=False), same),
    plain("double", st.floats(allow_nan=False), same),
    plain("string", st.text(st.characters(exclude_categories=["Cs"])), same),
    plain("bytes", st.binary(), same),
    plain(
        {"type": "int", "logicalType": "date"},
        st.integers(-700_000, 2_900_000),
        lambda days: date(1970, 1, 1) + timedelta(days=days),
    ),
    plain({"type": "long", "logicalType": "timestamp-millis"}, MILLIS, at),
    plain(
        {"type": "long", "logicalType": "local-timestamp-millis"},
        MILLIS,
        lambda value: at(value).replace(tzinfo=None),
    ),
    plain(
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda digits: Decimal(digits).scaleb(-3)),
        same,
    ),
    plain({"type": "string", "logicalType": "uuid"}, st.uuids(), str),
]


@st.composite
def cases(draw: st.DrawFn, depth: int = 3) -> Case:
    kinds = ["leaf", "named", "array", "map", "record", "optional", "union"]
    kind = draw(st.sampled_from(kinds if depth else kinds[:2]))
    name = f"n{draw(st.uuids()).hex}"
    match kind:
        case "named":
            symbols = ["A", "B", "C"]
            if draw(st.booleans()):
                return plain({"type": "fixed", "name": name, "size": 3}, fixed(3), same)
            enum = {"type": "enum", "name": name, "symbols": symbols}
            return plain(enum, st.sampled_from(symbols), same)
        case "array":
            item = draw(cases(depth - 1))
            items = st.lists(item.pairs, max_size=4).map(unzipped)
            return Case({"type": "array", "items": item.schema}, items)
        case "map":
            value = draw(cases(depth - 1))
            keys = st.text("abcd", max_size=3)
            entries: Pairs = st.dictionaries(keys, value.pairs, max_size=3).map(
                lambda found: (
                    {key: each[0] for key, each in found.items()},
                    [(key, each[1]) for key, each in found.items()],
                )
            )
            return Case({"type": "map", "values": value.schema}, entries)
        case "record":
            return record(name, draw(st.lists(cases(depth - 1), min_size=1, max_size=4)))
        case "optional":
            inner = draw(cases(depth - 1).filter(lambda found: not isinstance(found.schema, list)))
            branches = draw(st.permutations(["null", inner.schema]))
            return Case(branches, st.just((None, None)) | inner.pairs)
        case "union":
            return union(record(name, [draw(cases(depth - 1))]), draw(st.booleans()))
    return LEAVES[draw(st.integers(0, len(LEAVES) - 1))]


def fixed(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


def unzipped(pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    return [each[0] for each in pairs], [each[1] for each in pairs]


def record(name: str, inner: list[Case]) -> Case:
    fields = [{"name": f"f{n}", "type": each.schema} for n, each in enumerate(inner)]
    pairs = st.tuples(*(each.pairs for each in inner)).map(
        lambda found: (
            {f"f{n}": each[0] for n, each in enumerate(found)},
            {f"f{n}": each[1] for n, each in enumerate(found)},
        )
    )
    return Case({"type": "record", "name": name, "fields": fields}, pairs)


def union(last: Case, has_null: bool) -> Case:
    """A union of text, whole numbers and a record: fastavro tells them by their Python types."""
    members = [LEAVES[5], LEAVES[2], last]
    nothing = dict.fromkeys(f"member{n}" for n in range(len(members)))

    def pairs(number: int) -> st.SearchStrategy[tuple[Any, Any]]:
        return members[number].pairs.map(
            lambda pair: (pair[0], {**nothing, f"member{number}": pair[1]})
        )

    schema = [*(["null"] if has_null else []), *(each.schema for each in members)]
    found = st.one_of([pairs(number) for number in range(len(members))])
    return Case(schema, found | st.just((None, None)) if has_null else found)


def read(schema: Any, values: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    errors: dict[int, str] = {}
    decoder = AvroDecoder(json.dumps(schema), "plain")
    found = decoder.values(pa.array(values, pa.binary()), errors)
    return decoder.array(found).to_pylist(), errors


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_what_fastavro_writes_is_read(data: st.DataObject) -> None:
    schema, pairs = data.draw(cases())
    found = data.draw(st.lists(pairs, min_size=1, max_size=5))
    parsed = fastavro.parse_schema(schema)
    written: list[bytes | None] = []
    for value, _ in found:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        written.append(stream.getvalue())
    assert read(schema, written) == ([expected for _, expected in found], {})
    assert column_type(json.dumps(schema)).ddl


ERRORS = (EOFError, ValueError, IndexError, OverflowError, struct.error, RecursionError)
BYTES_CASES = [
    "string",
    ["null", "boolean"],
    {"type": "array", "items": "string"},
    {"type": "map", "values": "double"},
    {"type": "enum", "name": "e", "symbols": ["A", "B"]},
]


@given(st.sampled_from(BYTES_CASES), st.lists(st.binary(max_size=12), max_size=8))
@settings(max_examples=300, deadline=None)
def test_of_any_bytes_those_are_good_that_fastavro_reads_to_the_end(
    schema: Any, values: list[bytes]
) -> None:
    parsed = fastavro.parse_schema(schema)
    _, errors = read(schema, [*values])
    for row, value in enumerate(values):
        stream = io.BytesIO(value)
        try:
            fastavro.schemaless_reader(stream, parsed, None)
            is_good = stream.tell() == len(value)
        except ERRORS:
            is_good = False
        assert (row not in errors) == is_good
