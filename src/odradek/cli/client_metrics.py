"""``odradek client-metrics``, the twin of ``kafka-client-metrics``: which metrics clients push.

A subscription is a config resource of its own (KIP-714): which metrics, how often, from whom.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import SystemRandom
from typing import Final

import click

from odradek.cli.tool_options import Server, Tool, check_not_with, server_options
from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import ConfigChange, ConfigResource
from odradek.core.config import ConfigResourceType
from odradek.core.ids import Uuid

Work = Callable[[Admin], Awaitable[None]]

_SETTINGS: Final = ("generate-name", "interval", "match", "metrics")
_NOT_WITH: Final = {"delete": _SETTINGS, "describe": _SETTINGS, "list": ("name", *_SETTINGS)}
_TIMEOUT_MS: Final = 30_000


@click.command(cls=Tool, no_args_is_help=True)
@server_options()
@click.option("--alter", is_flag=True, help="Make a subscription, or change it.")
@click.option("--delete", is_flag=True, help="Delete a subscription.")
@click.option("--describe", is_flag=True, help="Show one subscription, or all.")
@click.option("--list", "is_list", is_flag=True, help="List the names of subscriptions.")
@click.option("--name", help="The name of the subscription.")
@click.option("--generate-name", is_flag=True, help="With --alter: make up a name.")
@click.option("--interval", metavar="MS", help="How often to push; empty: take it back.")
@click.option(
    "--match",
    multiple=True,
    metavar="K1=V1,K2=V2",
    help="Which clients, by patterns: client_id, client_instance_id, client_software_name,"
    " client_software_version, client_source_address, client_source_port.",
)
@click.option("--metrics", multiple=True, metavar="M1,M2", help="Which metrics, by prefix.")
def client_metrics(
    server: Server,
    name: str | None,
    interval: str | None,
    match: tuple[str, ...],
    metrics: tuple[str, ...],
    *,
    generate_name: bool,
    is_list: bool,
    **actions: bool,
) -> None:
    """Describe and alter which metrics clients push to the brokers."""
    chosen = [each for each, is_chosen in {**actions, "list": is_list}.items() if is_chosen]
    if len(chosen) != 1:
        named = "--alter, --delete, --describe or --list"
        raise click.UsageError(f"Command must include exactly one action: {named}.")
    (action,) = chosen
    given = {"interval": interval, "match": match, "metrics": metrics, "name": name}
    check_not_with(
        action, {**given, action: True, "generate-name": generate_name}, _NOT_WITH.get(action, ())
    )
    if action == "alter":
        _check_alter(name, interval, generate_name=generate_name)
        work: Work = partial(_alter, name, _changes(interval, match, metrics))
    elif action == "delete":
        if name is None:
            problem = "name must be specified with --delete."
            raise click.UsageError(f"A client metrics resource {problem}")
        work = partial(_delete, name)
    else:
        work = partial(_describe, name) if action == "describe" else _list
    server.run(work, report=_report)


def _report(message: str) -> None:
    click.echo(f"Error while executing client metrics command : {message}")


def _check_alter(name: str | None, interval: str | None, *, generate_name: bool) -> None:
    if (name is not None) == generate_name:
        raise click.UsageError("One of --name or --generate-name must be specified with --alter.")
    if interval and not interval.removeprefix("-").isdecimal():
        problem = "Enter an integer, or leave empty to reset."
        raise click.UsageError(f"Invalid interval value. {problem}")


def _changes(
    interval: str | None, match: tuple[str, ...], metrics: tuple[str, ...]
) -> dict[str, ConfigChange]:
    """Return what is to be set; what was given as nothing goes back to its default."""
    texts = {} if interval is None else {"interval.ms": interval}
    if metrics:
        texts["metrics"] = ",".join(metrics)
    if match:
        texts["match"] = ",".join(match)
    return {name: text or None for name, text in texts.items()}


async def _alter(name: str | None, changes: Mapping[str, ConfigChange], admin: Admin) -> None:
    name = str(Uuid.random(SystemRandom())) if name is None else name
    await _apply(admin, name, changes)
    click.echo(f"Altered client metrics config for {name}.")


async def _delete(name: str, admin: Admin) -> None:
    await _apply(admin, name, dict.fromkeys(await _configs(admin, name)))
    click.echo(f"Deleted client metrics config for {name}.")


async def _apply(admin: Admin, name: str, changes: Mapping[str, ConfigChange]) -> None:
    resource = ConfigResource.client_metrics(name)
    (await admin.alter_configs({resource: changes}, timeout_ms=_TIMEOUT_MS)).unwrap()


async def _describe(name: str | None, admin: Admin) -> None:
    names = await _names(admin)
    if name is not None and name not in names:
        problem = "doesn't exist and doesn't have dynamic config."
        click.echo(f"The client metric resource {name} {problem}")
        return
    for each in names if name is None else [name]:
        click.echo(f"Client metrics configs for {each} are:")
        for config, value in (await _configs(admin, each)).items():
            click.echo(f"  {config}={'null' if value is None else value}")


async def _list(admin: Admin) -> None:
    click.echo("\n".join(await _names(admin)))


async def _names(admin: Admin) -> list[str]:
    kind = ConfigResourceType.CLIENT_METRICS
    found = await admin.list_config_resources([kind], timeout_ms=_TIMEOUT_MS)
    return sorted(each.name for each in found)


async def _configs(admin: Admin, name: str) -> dict[str, str | None]:
    resource = ConfigResource.client_metrics(name)
    results = await admin.describe_configs([resource], timeout_ms=_TIMEOUT_MS)
    return {key: entry.value for key, entry in sorted(results[resource].unwrap().items())}
