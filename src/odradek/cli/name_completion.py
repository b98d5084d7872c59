"""Names of topics and groups for shells that complete a word: what the cluster has, at once or not.

The cluster is the one that the words before point at. Somebody waits at a prompt: nothing takes
longer than ``SECONDS_MAX``, and whatever goes wrong is no names, without a word.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from odradek.client.settings import as_settings

SECONDS_MAX: Final = 2.0
NAMES_MAX: Final = 1_000
VARIABLE: Final = "_ODRADEK_COMPLETE"
"""By which a shell asks: the process is there for that alone."""

_Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a topic; Kafka's own from their first underscore on."""

    async def ask(admin: Any) -> list[str]:
        found = await admin.list_topics(include_internal=incomplete.startswith("_"))
        return [each.name for each in found]

    return _complete(ctx, ask, incomplete)


def groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    async def ask(admin: Any) -> list[str]:
        return [each.group_id for each in await admin.list_groups()]

    return _complete(ctx, ask, incomplete)


def topic_list(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the last of several names with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{before}{comma}{each.value}") for each in topics(ctx, param, last)]


def entities(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of what ``--entity-type`` says."""
    types = ctx.params.get("entity_types") or ()
    complete: _Complete | None = {"topics": topics, "groups": groups}.get(types[0] if types else "")
    return [] if complete is None else complete(ctx, param, incomplete)


def _complete(
    ctx: click.Context, ask: Callable[[Any], Awaitable[list[str]]], incomplete: str
) -> list[CompletionItem]:
    names = names_within(lambda: _ask(ctx, ask), SECONDS_MAX)
    if names is None:
        if VARIABLE in os.environ:
            # A name server that does not answer keeps a thread, and the thread the process.
            os._exit(0)
        return []
    fitting = sorted(each for each in names if each.startswith(incomplete))
    return [CompletionItem(each) for each in fitting[:NAMES_MAX]]


def names_within(ask: Callable[[], list[str]], seconds: float) -> list[str] | None:
    """Return names, none if something fails, None if it takes longer."""
    found: list[list[str]] = []

    def work() -> None:
        try:
            found.append(ask())
        except Exception:  # whatever it is, nobody at a prompt wants to read it
            found.append([])

    thread = threading.Thread(target=work, name="odradek-completion", daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def _ask(ctx: click.Context, ask: Callable[[Any], Awaitable[list[str]]]) -> list[str]:
    # Here: most completions are of options, and must not pay for a client.
    from odradek.cli.tool_options import make_server
    from odradek.client.admin.admin import SETTINGS, Admin

    given = _given(ctx)
    if given.get("bootstrap_server") is None:
        return []
    server = make_server(
        given["bootstrap_server"], given.get("command_config"), given.get("command_property") or ()
    )
    known = {name: each for name, each in server.settings.items() if name in SETTINGS}

    async def session() -> list[str]:
        async with Admin(as_settings(known)) as admin:
            return await ask(admin)

    logging.disable()
    try:
        return asyncio.run(session())
    finally:
        logging.disable(logging.NOTSET)


def _given(ctx: click.Context) -> dict[str, Any]:
    """Return the options so far; those of a group of commands stand before the command."""
    outer = {} if ctx.parent is None else _given(ctx.parent)
    return {**outer, **ctx.params}
