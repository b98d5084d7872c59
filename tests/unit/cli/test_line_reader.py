"""Lines into records, as the console producer reads them. Kafka's own reader is its oracle."""

import pytest

from odradek.cli.line_reader import LineReader, LineRecord
from odradek.cli.tool_options import ToolError


def read(line: bytes, **properties: str) -> LineRecord:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return LineReader(named).read(line)


def test_a_line_is_a_value_as_it_stands() -> None:
    assert read(b"a\tb \xff") == LineRecord(None, b"a\tb \xff", [])


def test_the_first_separator_ends_the_key() -> None:
    assert read(b"k\tv\tw", parse_key="TRUE ") == LineRecord(b"k", b"v\tw", [])
    assert read(b"k--v", parse_key="true", key_separator="--") == LineRecord(b"k", b"v", [])
    assert read(b"\tv", parse_key="true") == LineRecord(b"", b"v", [])


def test_headers_come_before_the_key() -> None:
    record = read(b"a:1,b:x:y,c:\tk\tv", parse_key="true", parse_headers="true")
    assert record == LineRecord(b"k", b"v", [("a", b"1"), ("b", b"x:y"), ("c", b"")])


def test_a_header_may_have_any_bytes() -> None:
    (header,) = read(b"\xff:\xfe\tv", parse_headers="true").headers
    assert header == ("\udcff", b"\xfe")


def test_the_marker_stands_for_null() -> None:
    chosen = {"parse_key": "true", "parse_headers": "true", "null_marker": "N"}
    assert read(b"N\tN\tN", **chosen) == LineRecord(None, None, [])
    assert read(b"a:N\tk\tNN", **chosen) == LineRecord(b"k", b"NN", [("a", None)])
    with pytest.raises(ToolError, match="can't be null"):
        read(b"N:1\tk\tv", **chosen)


def test_what_is_missing_is_told_with_its_line() -> None:
    reader = LineReader({"parse.key": "true"})
    reader.read(b"k\tv")
    with pytest.raises(ToolError, match="No key separator found on line number 2: 'oh'"):
        reader.read(b"oh")
    with pytest.raises(ToolError, match="No headers delimiter found on line number 1"):
        read(b"oh", parse_headers="true")
    with pytest.raises(ToolError, match="No header key separator found in pair 'oh' on line"):
        read(b"oh\tv", parse_headers="true")


def test_what_is_missing_can_be_ignored() -> None:
    chosen = {"parse_key": "true", "parse_headers": "true", "ignore_error": "true"}
    assert read(b"all", **chosen) == LineRecord(None, b"all", [])
    assert read(b"name\tk\tv", **chosen) == LineRecord(b"k", b"v", [("name", None)])


@pytest.mark.parametrize(
    "properties",
    [
        {"headers.delimiter": ","},
        {"headers.separator": ":"},
        {"null.marker": "\t"},
        {"null.marker": ":"},
        {"key.separator": ""},
        {"headers.separator": "["},
    ],
)
def test_separators_have_to_be_told_apart(properties: dict[str, str]) -> None:
    with pytest.raises(ToolError):
        LineReader(properties)


def test_unknown_properties_are_noted() -> None:
    assert LineReader({"parse.keys": "true", "topic": "t"}).unknown == ["parse.keys"]
