r"""Java's properties format: ``server.properties``, and Kafka's ``meta.properties`` on disk.

One ``key=value`` per line, in ISO 8859-1. ``:`` or blanks may stand for the ``=``; blanks before a
key and around the separator do not count. A line that begins with ``#`` or ``!`` is a comment. A
backslash at the end of a line joins it with the next, whose leading blanks go. ``\t \n \r \f`` and
``\uXXXX`` are characters; before any other, a backslash stands for nothing.
"""

import re
from typing import Final, NamedTuple

_BLANK: Final = " \t\f"
_LINE_END: Final = re.compile("\r\n|\r|\n")
_ENDS_IN_BACKSLASH: Final = re.compile(r"(?<!\\)(\\\\)*\\$")
_KEY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.?)", re.DOTALL)
_UNICODE: Final = re.compile("u[0-9A-Fa-f]{4}")
_MEANING: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPECIAL: Final = {meaning: f"\\{letter}" for letter, meaning in _MEANING.items()}


class Property(NamedTuple):
    line: int
    """Of the file, counted from one; the first, if backslashes join several."""
    key: str
    value: str


def parse_properties(data: bytes) -> dict[str, str]:
    r"""Return the properties; of a key that comes twice, the last value.

    Raises:
        ValueError: A ``\u`` without four hexadecimal digits, or half of a pair of them.
    """
    return {key: value for _, key, value in parse_property_lines(data.decode("latin-1"))}


def parse_property_lines(text: str) -> list[Property]:
    r"""Return every property in the order of the file, a key that comes twice both times.

    Raises:
        ValueError: A ``\u`` without four hexadecimal digits, or half of a pair of them.
    """
    properties = []
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # it matches the empty string
        try:
            key, value = _unescape(match[1]), _unescape(line[match.end() :])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        properties.append(Property(number, key, value))
    return properties


def format_properties(properties: dict[str, str]) -> bytes:
    """Return a file with a line for each property, sorted by key."""
    lines = [
        f"{_escape(key, ' =:#!')}={_escape_value(properties[key])}" for key in sorted(properties)
    ]
    return "\n".join(["#", *lines, ""]).encode("ascii")


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    joins = False
    for number, physical in enumerate(_LINE_END.split(text), start=1):
        line = physical.lstrip(_BLANK)
        if joins:
            first, start = lines.pop()
        elif not line or line[0] in "#!":
            continue
        else:
            first, start = number, ""
        line = start + line
        joins = _ENDS_IN_BACKSLASH.search(line) is not None
        lines.append((first, line[:-1] if joins else line))
    return lines


def _unescape(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[:1] != "u":
            return _MEANING.get(escaped, escaped)
        if not _UNICODE.fullmatch(escaped):
            raise ValueError(f"malformed escape \\{escaped}")
        return chr(int(escaped[1:], 16))

    # A character beyond the first 65,536 is two escapes, which become one character here.
    return _ESCAPE.sub(meaning, text).encode("utf-16", "surrogatepass").decode("utf-16")


def _escape_value(text: str) -> str:
    """Escape a value; a blank in front would be taken for a part of the separator."""
    escaped = _escape(text, "")
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape(text: str, special: str) -> str:
    escaped = ""
    for character in text:
        if character in _SPECIAL:
            escaped += _SPECIAL[character]
        elif character == "\\" or character in special:
            escaped += "\\" + character
        elif " " <= character <= "~":
            escaped += character
        else:
            units = character.encode("utf-16-be").hex()
            escaped += f"\\u{units[:4]}" + (f"\\u{units[4:]}" if units[4:] else "")
    return escaped
