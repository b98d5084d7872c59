"""The JSON files that tools read: partitions with offsets, topics to move, elections.

Errors in a file are reported in the words of Kafka's tools, as far as they have words for it.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from odradek.cli.tool_options import ToolError
from odradek.core.ids import TopicPartition

T = TypeVar("T")

FILE_BYTES_MAX: Final = 64 * 2**20
_VERSION: Final = 1


class Words(NamedTuple):
    """What a tool says of a file without text, and of one without its field; None: it may miss."""

    empty: str = "The input string shouldn't be empty"
    missing: str | None = "Missing {} field"
    has_version: bool = True
    """Whether the tool looks at the version of the file."""


_WORDS: Final = Words()


def read_file(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ToolError: It cannot be read, or is larger than any file written by hand.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ToolError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"Unable to read file {path}: {error}") from error


def read_rows(
    path: Path, name: str, row: Callable[[dict[str, Any]], T], words: Words = _WORDS
) -> list[T]:
    """Return the rows of ``{"version": 1, name: [row, row…]}``.

    Raises:
        ToolError: The file is something else.
    """
    text = read_file(path)
    if not text:
        raise ToolError(words.empty)
    try:
        document = object_in(json.loads(text))
    except ValueError as error:
        raise ToolError(f"The input string is not a valid JSON: {error}") from error
    version = integer(document.get("version", _VERSION)) if words.has_version else _VERSION
    if version != _VERSION:
        raise ToolError(f"Not supported version field value {version}")
    if name not in document and words.missing is not None:
        raise ToolError(words.missing.format(name))
    return [row(object_in(each)) for each in array(document.get(name, []))]


def partition_of(row: dict[str, Any]) -> TopicPartition:
    return TopicPartition(text_of(field(row, "topic")), integer(field(row, "partition")))


# Each raises ToolError if the value is something else.


def field(row: dict[str, Any], name: str) -> Any:
    if name not in row:
        raise ToolError(f"No such field exists: `{name}`")
    return row[name]


def integer(value: Any) -> int:
    return value if type(value) is int else _refuse("`Integer` value", value)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else _refuse("`String` value", value)


def array(value: Any) -> list[Any]:
    return value if isinstance(value, list) else _refuse("JSON array", value)


def object_in(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else _refuse("JSON object", value)


def _refuse(what: str, value: Any) -> NoReturn:
    found = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    raise ToolError(f"Expected {what}, received {found}")


def duplicates(items: Iterable[T]) -> list[T]:
    """Return what comes more than once, each once."""
    seen: set[T] = set()
    found: dict[T, None] = {}
    for item in items:
        if item in seen:
            found[item] = None
        seen.add(item)
    return list(found)
