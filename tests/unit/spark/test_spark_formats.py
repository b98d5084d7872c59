"""Keys and values as typed columns; what cannot be decoded goes aside, alone."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.records.arrow import SCHEMA
from odradek.spark.formats import CORRUPT, CORRUPT_TYPE, Formatter
from odradek.spark.options import parse_options

MINIMAL = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
POINT = pa.struct([("a", pa.int64()), ("b", pa.string())])


def decode_json(values: list[bytes | None], to: pa.DataType = POINT) -> list[dict[str, Any]]:
    options = parse_options({**MINIMAL, "valueFormat": "json", "valueSchema": "irrelevant"})
    schema = SCHEMA.set(1, pa.field("value", to)).append(pa.field(CORRUPT, CORRUPT_TYPE))
    rows: list[dict[str, Any]] = Formatter(options, schema).apply(batch(values)).to_pylist()
    return rows


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "key": [b"k%d" % each for each in range(count)],
        "value": values,
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "timestampType": [0] * count,
    }
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def test_documents_become_structs_and_nulls_stay_nulls() -> None:
    values = [b'{"a": 1, "b": "x"}', None, b'{"b":"y","more":[1,2]}', b'{\n  "a": 2\n}', b"null"]
    rows = decode_json(values)
    assert [row["value"] for row in rows] == [
        {"a": 1, "b": "x"},
        None,
        {"a": None, "b": "y"},
        {"a": 2, "b": None},
        None,
    ]
    assert [row[CORRUPT] for row in rows] == [None] * 5


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b"[",
        b'{"a":1}{"a":2}',
        b'{"a":1},{"a":2}',
        b'{"a":"text"}',
        b'"a',
        b"\xff",
        b'{"a":1}]}\n{"v":[{"a":2}',
        b"5",
    ],
)
def test_one_bad_row_harms_no_other(bad: bytes) -> None:
    rows = decode_json([b'{"a":1}', bad, b"{}", b'{"a":3}'])
    assert [row["value"] for row in rows] == [
        {"a": 1, "b": None},
        None,
        {"a": None, "b": None},
        {"a": 3, "b": None},
    ]
    assert [row[CORRUPT] is None for row in rows] == [True, False, True, True]
    aside = rows[1][CORRUPT]
    assert (aside["key"], aside["value"]) == (b"k1", bad)
    assert aside["error"].startswith("value: ")


@settings(deadline=None)
@given(st.lists(st.sampled_from([b'{"a":1}', b"", b"{", b"]", b'{"a":1}{"a":1}', b"[]", None])))
def test_good_rows_are_good_among_any_others(values: list[bytes | None]) -> None:
    rows = decode_json(values)
    good = {b'{"a":1}': {"a": 1, "b": None}}
    assert [row["value"] for row in rows] == [good.get(each or b"?") for each in values]
    bad = [each is not None and each not in good for each in values]
    assert [row[CORRUPT] is not None for row in rows] == bad


def test_strings_have_to_be_utf8() -> None:
    options = parse_options({**MINIMAL, "valueFormat": "utf8", "keyFormat": "utf8"})
    schema = SCHEMA.set(0, pa.field("key", pa.string())).set(1, pa.field("value", pa.string()))
    schema = schema.append(pa.field(CORRUPT, CORRUPT_TYPE))
    rows = Formatter(options, schema).apply(batch(["ä".encode(), b"\xff", None])).to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [("k0", "ä"), ("k1", None), ("k2", None)]
    assert [row[CORRUPT] is None for row in rows] == [True, False, True]


def test_a_type_that_json_cannot_have_is_refused_before_any_row() -> None:
    with pytest.raises(pa.ArrowException):
        decode_json([], pa.struct([("a", pa.map_(pa.string(), pa.int64()))]))
