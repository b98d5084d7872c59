"""Avro columns: what type they have, what is refused, and where bad rows go."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from odradek.records.arrow import SCHEMA
from odradek.spark.avro_schema import DEPTH_MAX, AvroSchemaError, column_type
from odradek.spark.formats import CORRUPT, CORRUPT_TYPE, Formatter, column_ddl
from odradek.spark.options import OptionError, parse_options

MINIMAL = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "valueFormat": "avro"}
POINT: dict[str, Any] = {
    "type": "record",
    "name": "Point",
    "namespace": "geo",
    "fields": [{"name": "x", "type": "int"}, {"name": "label", "type": ["null", "string"]}],
}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def encoded(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def decoded(
    schema: Any, values: list[bytes | None], to: pa.DataType, framing: str = "plain"
) -> list[dict[str, Any]]:
    given = {**MINIMAL, "valueSchema": json.dumps(schema), "avroFraming": framing}
    wanted = SCHEMA.set(1, pa.field("value", to)).append(pa.field(CORRUPT, CORRUPT_TYPE))
    count = len(values)
    columns = [[b"k"] * count, values, ["t"] * count, *([[0] * count] * 4)]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    rows: list[dict[str, Any]] = Formatter(parse_options(given), wanted).apply(batch).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ("boolean", "BOOLEAN"),
        ("int", "INT"),
        ("long", "BIGINT"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("string", "STRING"),
        ("bytes", "BINARY"),
        ({"type": "string"}, "STRING"),
        ({"type": "fixed", "name": "f", "size": 4}, "BINARY"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "STRING"),
        ({"type": "array", "items": "int"}, "ARRAY<INT>"),
        ({"type": "map", "values": ["null", "int"]}, "MAP<STRING, INT>"),
        (POINT, "STRUCT<`x`: INT, `label`: STRING>"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        (MILLIS, "TIMESTAMP"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP_NTZ"),
        ({"type": "string", "logicalType": "uuid"}, "STRING"),
        ({"type": "int", "logicalType": "time-millis"}, "INT"),
        ({"type": "long", "logicalType": "unheard-of"}, "BIGINT"),
        (PRICE, "DECIMAL(4, 2)"),
        ({**PRICE, "type": "fixed", "name": "p", "size": 8}, "DECIMAL(4, 2)"),
        (["null", "int"], "INT"),
        (["int"], "INT"),
        (["int", "null", "long"], "BIGINT"),
        (["float", "double"], "DOUBLE"),
        (["null", "int", "string"], "STRUCT<member0: INT, member1: STRING>"),
        (["null", PRICE], "DECIMAL(4, 2)"),
    ],
)
def test_types_are_those_of_sparks_own_reader(schema: Any, ddl: str) -> None:
    assert column_type(json.dumps(schema)).ddl == ddl
    assert column_ddl("key", "avro", json.dumps(schema)) == f"key {ddl}"


def deep(levels: int) -> Any:
    return "int" if not levels else {"type": "array", "items": deep(levels - 1)}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("null", "null alone"),
        (["null"], "null alone"),
        ("unknown", "not an Avro schema"),
        (5, "not an Avro schema"),
        ({"no": "type"}, "not an Avro schema"),
        ({"type": "map"}, "not an Avro schema"),
        ({"type": "record", "name": "R", "fields": []}, "without fields"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            "the schema, r: R contains itself",
        ),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, "take no bytes"),
        ({**PRICE, "precision": 39}, "no DECIMAL"),
        (deep(DEPTH_MAX + 1), "deep"),
    ],
)
def test_what_cannot_be_a_column_is_refused_before_anything_runs(schema: Any, problem: str) -> None:
    with pytest.raises(AvroSchemaError, match=problem):
        column_type(json.dumps(schema))
    with pytest.raises(OptionError, match=f"valueSchema: .*{problem}"):
        column_ddl("value", "avro", json.dumps(schema))


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(OptionError, match="valueSchema: not an Avro schema"):
        column_ddl("value", "avro", "a INT")


def test_bad_values_go_aside_alone_and_nulls_stay_null() -> None:
    good = encoded(POINT, {"x": 7, "label": "here"})
    bad = [b"", good[:-1], good + b"!", b"\x0e\x04", b"\x0e\x02\x04\xff\xff"]
    to = pa.struct([("x", pa.int32()), ("label", pa.string())])
    rows = decoded(POINT, [good, None, *bad, good], to)
    value = {"x": 7, "label": "here"}
    assert [row["value"] for row in rows] == [value, None, *([None] * len(bad)), value]
    assert [row[CORRUPT] is None for row in rows] == [True, True, *([False] * len(bad)), True]
    assert [row[CORRUPT]["value"] for row in rows[2:-1]] == bad
    assert "1 bytes are left" in rows[4][CORRUPT]["error"]
    assert all(row[CORRUPT]["error"].startswith("value: not Avro") for row in rows[2:-1])


def test_values_that_spark_cannot_hold_go_aside_alone() -> None:
    price = {**PRICE, "precision": 8}  # one that was written with more digits than are read
    values: list[bytes | None] = [
        encoded(price, each) for each in (fastavro_decimal("1.25"), fastavro_decimal("1234.5"))
    ]
    rows = decoded(PRICE, values, pa.decimal128(4, 2))
    assert [row["value"] for row in rows] == [fastavro_decimal("1.25"), None]
    assert rows[1][CORRUPT] is not None
    times: list[bytes | None] = [encoded("long", each) for each in (5, 2**62, 7)]
    rows = decoded(MILLIS, times, pa.timestamp("us", "UTC"))
    assert [row[CORRUPT] is None for row in rows] == [True, False, True]
    assert [row["value"] and row["value"].microsecond for row in rows] == [5000, None, 7000]


def fastavro_decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


def test_the_branch_of_a_union_can_be_told() -> None:
    schema = ["null", "int", "string", POINT]
    to = column_type(json.dumps(schema)).arrow
    values = [None, 5, "text", {"x": 1, "label": None}]
    rows = decoded(schema, [encoded(schema, each) for each in values], to)
    nothing = dict.fromkeys(("member0", "member1", "member2"))
    assert [row["value"] for row in rows] == [
        None,
        {**nothing, "member0": 5},
        {**nothing, "member1": "text"},
        {**nothing, "member2": {"x": 1, "label": None}},
    ]


def test_confluents_header_is_skipped_and_asked_for() -> None:
    value = encoded("string", "text")
    framed = b"\0" + (77).to_bytes(4, "big") + value
    rows = decoded("string", [framed, value, b"\0\0", b""], pa.string(), "confluent")
    assert [row["value"] for row in rows] == ["text", None, None, None]
    assert [row[CORRUPT] is None for row in rows] == [True, False, False, False]


def test_single_objects_of_another_schema_are_refused() -> None:
    # The fingerprint of "int" in Avro's specification, in the order of the wire.
    fingerprint = (0x7275D51A3F395C8F).to_bytes(8, "little")
    value = encoded("int", 5)
    framed = [b"\xc3\x01" + fingerprint + value, b"\xc3\x01" + bytes(8) + value, value]
    rows = decoded("int", [*framed], pa.int32(), "single-object")
    assert [row["value"] for row in rows] == [5, None, None]
    assert "begins with" in rows[1][CORRUPT]["error"]


def test_a_column_that_is_not_wanted_is_not_decoded() -> None:
    given = {**MINIMAL, "valueSchema": '"int"', "columns": "offset"}
    formatter = Formatter(parse_options(given), pa.schema([SCHEMA.field("offset")]))
    arrays = [pa.nulls(1, field.type) for field in SCHEMA]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    assert formatter.apply(batch).schema.names == ["offset"]
