"""Java's properties format, as java.util.Properties reads it."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.core.java_properties import (
    format_properties,
    parse_properties,
    parse_property_lines,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"#\n#Sun Nov 15 11:00:00 UTC 2026\na.b=1\nc=2\n", {"a.b": "1", "c": "2"}),
        (b"! a comment\n  # another\n\n \t\na=b", {"a": "b"}),
        (b"a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        (b"  a  =  b  ", {"a": "b  "}),
        (b"a:b\nc d\ne\tf\ng : h\ni = = j", {"a": "b", "c": "d", "e": "f", "g": "h", "i": "= j"}),
        (b"a\nb=\nc:", {"a": "", "b": "", "c": ""}),
        (b"=a", {"": "a"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=b\\\n   c\\\n\td", {"a": "bcd"}),
        (b"a=b\\\n#c", {"a": "b#c"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a=b\\\\\\\nc=d", {"a": "b\\c=d"}),
        (b"a=b\\", {"a": "b"}),
        (b"#a\\\nb=c", {"b": "c"}),
        (b"a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        (b"a=\\t\\n\\r\\f\\q\\\"\\ ", {"a": '\t\n\r\fq" '}),
        (b"a=\\u00e9\\u4E2D\\ud83d\\ude00", {"a": "é中😀"}),
        (b"a=\xe9", {"a": "é"}),
    ],
)  # fmt: skip
def test_parsing(text: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\\u12g4", b"\\u=a", b"a=\\ud83d", b"a=\\u\\u1"])
def test_a_malformed_escape_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_properties(text)


def test_formatting() -> None:
    assert format_properties({"b": "x=1", "a b": " \\é😀\n"}) == (
        b"#\na\\ b=\\ \\\\\\u00e9\\ud83d\\ude00\\n\nb=x=1\n"
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t=:#!\\un\r\n"))


@settings(max_examples=50)
@given(st.dictionaries(TEXT, TEXT, max_size=4))
def test_what_is_formatted_is_parsed_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@given(st.binary() | st.text("ab=: \\u0\n#").map(str.encode))
def test_no_bytes_do_worse_than_value_error(data: bytes) -> None:
    with suppress(ValueError):
        parse_properties(data)


def test_lines_are_numbered_from_one_and_joined_lines_by_their_first() -> None:
    text = "# a comment\n\na=1\r\nb=2\\\n  3\\\n  4\rc=5\u2028\na=6"
    assert parse_property_lines(text) == [
        (3, "a", "1"),
        (4, "b", "234"),
        (7, "c", "5\u2028"),
        (8, "a", "6"),
    ]


def test_a_malformed_escape_is_found_by_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 2: malformed escape \\u12"):
        parse_property_lines("a=1\nb=\\u12")
