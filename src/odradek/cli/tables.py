"""Tables and JSON as tools print them.

JSON has one shape wherever a tool takes ``--json``: one line on stdout; lists of objects where the
text has lines; names in camelCase, those of Kafka's protocol where it has one; numbers as numbers,
and null for what the text leaves out or shows as ``-``, ``none`` or ``null``. Names come, and none
goes without a word in the changelog.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from odradek.core.ids import TopicPartition

MISSING: Final = "-"


def show(value: object) -> str:
    """Return what a cell shows for a value; nothing is a dash."""
    return MISSING if value is None else str(value)


def padded(cells: Iterable[object], widths: Sequence[int]) -> str:
    """Return one line; cells beyond the widths are not padded."""
    texts = [show(cell) for cell in cells]
    filled = [text.ljust(width) for text, width in zip(texts, widths, strict=False)]
    return " ".join(filled + texts[len(widths) :])


def column_width(least: int, texts: Iterable[object]) -> int:
    """Return the width in which all of these fit."""
    return max([least, *(len(show(text)) for text in texts)])


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return a table with columns as wide as needed and two blanks between them."""
    widths = [max(len(show(cell)) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, map(show, row), widths)).rstrip() for row in rows]


def print_tabbed(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as Kafka's newer tools do: as wide as needed, a tab after each cell."""
    lines = [tuple(headers), *(tuple(map(str, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
        click.echo("".join(f"{cell}\t" for cell in cells))


def camel_case(name: str) -> str:
    """Return the name of a field in JSON: ``group_id`` and ``GroupId`` are ``groupId``."""
    words = [word[:1].upper() + word[1:] for word in name.split("_")]
    return words[0][:1].lower() + words[0][1:] + "".join(words[1:])


def json_object(fields: Mapping[str, object]) -> dict[str, object]:
    return {camel_case(name): value for name, value in fields.items()}


def json_partition(partition: TopicPartition) -> dict[str, object]:
    return {"topic": partition.topic, "partition": partition.partition}


def print_json(document: object, *, compact: bool = False) -> None:
    """Print JSON for programs: all of it on one line if ``compact``."""
    separators = (",", ":") if compact else None
    click.echo(json.dumps(document, separators=separators, ensure_ascii=False))
