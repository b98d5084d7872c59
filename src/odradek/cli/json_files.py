"""The JSON files that tools read: partitions with offsets, topics to move, elections."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from odradek.cli.tool_options import ToolError
from odradek.core.ids import TopicPartition

T = TypeVar("T")

FILE_BYTES_MAX: Final = 64 * 2**20
_VERSION: Final = 1


def read_file(path: Path) -> str:
    """Return the text of a file.

    Raises:
        ToolError: It cannot be read, or nobody writes so much by hand.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ToolError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"Unable to read file {path}: {error}") from error


def read_rows(path: Path, field: str, row: Callable[[dict[str, Any]], T]) -> list[T]:
    """Return the rows of ``{"version": 1, field: [row, row…]}``.

    Raises:
        ToolError: The file is something else.
    """
    try:
        document = json.loads(read_file(path))
    except ValueError as error:
        raise ToolError(f"The input string is not a valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ToolError(f"{path} has no JSON object in it")
    if document.get("version", _VERSION) != _VERSION:
        raise ToolError(f"Not supported version field value {document['version']}")
    if field not in document:
        raise ToolError(f"Missing {field} field")
    try:
        return [row(each) for each in document[field]]
    except (TypeError, ValueError, KeyError) as error:
        raise ToolError(f"{path}: a row of {field} is wrong: {error!r}") from error


def partition_of(row: dict[str, Any]) -> TopicPartition:
    topic, partition = row["topic"], row["partition"]
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise TypeError(f"{row} has no topic or no partition")
    return TopicPartition(topic, partition)


def duplicates(items: Iterable[T]) -> list[T]:
    """Return what comes more than once, each once."""
    seen: set[T] = set()
    found: dict[T, None] = {}
    for item in items:
        if item in seen:
            found[item] = None
        seen.add(item)
    return list(found)
