"""Options of the tools that produce and consume: settings of their client, by new and old names.

Kafka 4.2 gave these tools one pair of names, ``--command-config`` and ``--command-property``. The
old ones still work and say so on stdout, each tool in its own words, as Kafka's do.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from odradek.cli.tool_options import Server, key_values, load_properties, server_options
from odradek.client.settings import Definition

F = TypeVar("F", bound=Callable[..., Any])

FILE: Final = click.Path(dir_okay=False, path_type=Path)
_ASSIGNORS: Final[Mapping[str, str]] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_JAVA_CLIENTS: Final = "org.apache.kafka.clients.consumer."


class Wording(NamedTuple):
    """How a tool speaks of its old names; ``{old}`` and ``{new}`` are filled in."""

    deprecated: str
    together: str


def client_options(
    *,
    old_config: str | None = None,
    old_property: str | None = None,
    wording: Wording,
    required: bool = True,
) -> Callable[[F], F]:
    """Add the options by which a client is set up; the command gets them as ``server``.

    Without ``required`` the address may be among the settings instead.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*arguments: Any, server: Server | None, **options: Any) -> Any:
            params = click.get_current_context().params
            config = params["command_config"]
            if old_config is not None:
                config = newer(
                    ("--command-config", config), (old_config, options.pop("old_config")), wording
                )
            properties = params["command_property"]
            if old_property is not None:
                old = options.pop("old_property")
                properties = newer(("--command-property", properties), (old_property, old), wording)
            settings = {} if config is None else load_properties(config)
            settings |= key_values(properties, "--command-property")
            if server is not None:
                settings["bootstrap.servers"] = server.settings["bootstrap.servers"]
            return function(*arguments, server=Server(settings), **options)

        decorated: Any = server_options(required=required)(call)
        if old_config is not None:
            decorated = click.option(old_config, "old_config", type=FILE, hidden=True)(decorated)
        if old_property is not None:
            option = click.option(old_property, "old_property", multiple=True, hidden=True)
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]  # what click makes of functions

    return decorate


def newer(new: tuple[str, Any], old: tuple[str, Any], wording: Wording) -> Any:
    """Return what was given under either name, and warn of the old one.

    Raises:
        click.UsageError: Both were given.
    """
    if old[1] is None or old[1] == ():
        return new[1]
    names = {"old": old[0], "new": new[0]}
    if new[1] is not None and new[1] != ():
        raise click.UsageError(wording.together.format(**names))
    click.echo(wording.deprecated.format(**names))
    return old[1]


def raw_pairs(texts: Sequence[str]) -> dict[str, str]:
    """Read ``name=value``; blanks count, for a separator may be one."""
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def client_settings(
    server: Server, definitions: Mapping[str, Definition], **defaults: str
) -> dict[str, str]:
    """Return the settings for a client, in Kafka's names; ``defaults`` give way.

    Java's class names of assignors are taken for their short ones.
    """
    settings = {name.replace("_", "."): value for name, value in defaults.items()}
    settings |= server.known(definitions)
    strategy = settings.get("partition.assignment.strategy")
    if strategy is not None:
        names = (each.strip() for each in strategy.split(","))
        settings["partition.assignment.strategy"] = ",".join(map(assignor_name, names))
    return settings


def assignor_name(name: str) -> str:
    return _ASSIGNORS.get(name.removeprefix(_JAVA_CLIENTS), name)


def compiled(pattern: str, option: str) -> re.Pattern[str]:
    """Return a pattern for names of topics.

    Raises:
        click.UsageError: It is none.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise click.UsageError(f"{option}: {pattern!r} is not a pattern: {error}") from error
