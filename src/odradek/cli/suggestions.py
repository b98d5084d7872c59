"""Which command was probably meant by a word that is none."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import click

_KAFKA_NAMES: Final = {"server-start": "serve", "server-stop": "stop"}
"""Scripts of Kafka whose commands have other names here."""


def check_command(group: click.Group, ctx: click.Context, word: str) -> None:
    """Refuse a word that is no command of a group, with the one that is nearest to it.

    Raises:
        click.UsageError: There is no such command.
    """
    if word.startswith("-") or group.get_command(ctx, word) is not None:
        return
    close = nearest(word, group.list_commands(ctx))
    suggestion = f" Did you mean {close!r}?" if close is not None else ""
    raise click.UsageError(f"No such command {word!r}.{suggestion}", ctx)


def nearest(word: str, names: Iterable[str]) -> str | None:
    known = list(names)
    name = word.removeprefix("kafka-").removesuffix(".sh").removesuffix(".bat")
    name = _KAFKA_NAMES.get(name, name)
    if name in known:
        return name
    close = get_close_matches(name, known, n=1)
    return close[0] if close else None
