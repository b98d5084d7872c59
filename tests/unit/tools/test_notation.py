"""The notation is read as documented, and mistakes are reported with their line."""

from pathlib import Path

import pytest

from tools.notation import NotationError, Versions, parse_file


def definition(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.kmsg"
    path.write_text(text)
    return path


def test_fields_carry_what_the_line_says(tmp_path: Path) -> None:
    text = """\
# About.
api 7 Thing unstable 3

request versions 1-3 legacy 0 flexible 2+
  name   string?2+  1-2  = null ignorable
  items  [Item]?    tag 4
    id   int32      = -1

response versions 1-3
"""
    parsed = parse_file(definition(tmp_path, text))
    assert (parsed.api, parsed.api_key, parsed.unstable, parsed.doc) == ("Thing", 7, 3, "About.")
    request = parsed.messages[0]
    assert list(request.known_versions) == [0, 1, 2, 3]
    name, items = request.fields
    assert (name.versions, name.nullable) == (Versions(1, 2), Versions.parse("2+"))
    assert (name.default, name.ignorable) == ("null", True)
    assert (items.is_array, items.tag, items.type) == (True, 4, "Item")
    assert items.fields[0].default == "-1"


def test_a_shared_struct_is_found_wherever_it_is_used(tmp_path: Path) -> None:
    text = "message M versions 0\n  a  S\n  b  [S]\n\n  struct S\n    x  int8\n"
    message = parse_file(definition(tmp_path, text)).messages[0]
    assert [f.fields[0].name for f in message.fields] == ["x", "x"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("massage M versions 0\n", "x.kmsg:1: unknown statement"),
        ("request versions 0\n", "x.kmsg:1: a request or response needs an api line"),
        ("message M versions 0\n  a  int8  wrong\n", "x.kmsg:2: unknown word 'wrong'"),
        ("message M versions 0\n  a  [int8\n", "x.kmsg:2: not a type"),
        ("message M versions 0\n  a  Missing\n", "no fields for struct Missing"),
        ("message M versions 0\n  a  int8\n   b  int8\n", "x.kmsg:3: below a, which"),
        ("message M versions zero\n", "not a version range"),
        ("  a int8\n", "x.kmsg:1: a field outside of a message"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(NotationError, match=problem):
        parse_file(definition(tmp_path, text))
