"""Lines of text into records: headers, key and value, between separators of one's choice."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.cli.tool_options import ToolError

_DEFAULTS: Final[Mapping[str, str]] = {
    "parse.key": "false",
    "parse.headers": "false",
    "ignore.error": "false",
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
}
_NULL: Final = "null.marker"
_UNEQUAL: Final = (
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    (_NULL, "key.separator"),
    (_NULL, "headers.separator"),
    (_NULL, "headers.delimiter"),
    (_NULL, "headers.key.separator"),
)

Headers = list[tuple[str, bytes | None]]


class LineRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


class LineReader:
    """Reads ``h1:v1,h2:v2<TAB>key<TAB>value``, or what of it is wanted.

    Bytes that are no UTF-8 stay as they are. ``headers.separator`` is a regular expression.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Take the properties of Kafka's LineMessageReader.

        Raises:
            ToolError: One is empty, or two cannot be told apart.
        """
        self.unknown = sorted(properties.keys() - {*_DEFAULTS, _NULL, "topic"})
        texts = {**_DEFAULTS, **properties}
        for name in _DEFAULTS:
            if not texts[name]:
                raise ToolError(f"{name} may not be empty")
        for one, other in _UNEQUAL:
            if texts.get(one) == texts[other]:
                raise ToolError(f"{one} and {other} may not be equal")
        self._parses_key = _is_true(texts["parse.key"])
        self._parses_headers = _is_true(texts["parse.headers"])
        self._ignores_errors = _is_true(texts["ignore.error"])
        self._key_separator = texts["key.separator"].encode()
        self._headers_delimiter = texts["headers.delimiter"].encode()
        self._header_key_separator = texts["headers.key.separator"]
        self._null = texts[_NULL].encode() if _NULL in texts else None
        self._line_number = 0
        try:
            self._headers_separator = re.compile(texts["headers.separator"])
        except re.error as error:
            raise ToolError(f"headers.separator is no pattern: {error}") from error

    def read(self, line: bytes) -> LineRecord:
        """Return the record of the next line.

        Raises:
            ToolError: A separator is not there, and ``ignore.error`` is not set.
        """
        self._line_number += 1
        headers, key = None, None
        rest = line
        if self._parses_headers:
            headers, rest = self._split(line, rest, self._headers_delimiter, "headers delimiter")
        if self._parses_key:
            key, rest = self._split(line, rest, self._key_separator, "key separator")
        is_null = self._null is not None and headers == self._null
        return LineRecord(
            self._or_null(key),
            self._or_null(rest),
            [] if headers is None or is_null else self._headers(headers),
        )

    def _or_null(self, field: bytes | None) -> bytes | None:
        return None if self._null is not None and field == self._null else field

    def _split(
        self, line: bytes, rest: bytes, separator: bytes, name: str
    ) -> tuple[bytes | None, bytes]:
        field, found, behind = rest.partition(separator)
        if found:
            return field, behind
        if self._ignores_errors:
            return None, rest
        shown = line.decode("utf-8", "replace")
        raise ToolError(f"No {name} found on line number {self._line_number}: '{shown}'")

    def _headers(self, text: bytes) -> Headers:
        pairs = self._headers_separator.split(text.decode("utf-8", "surrogateescape"))
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()  # as Java's split does
        return [self._header(pair) for pair in pairs]

    def _header(self, pair: str) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self._header_key_separator)
        if not found:
            if self._ignores_errors:
                return pair, None
            raise ToolError(
                f"No header key separator found in pair '{pair}' on line number {self._line_number}"
            )
        if self._null is not None and name.encode("utf-8", "surrogateescape") == self._null:
            raise ToolError(
                f"Header keys should not be equal to the null marker '{name}' as they can't be null"
            )
        return name, self._or_null(value.encode("utf-8", "surrogateescape"))


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"
