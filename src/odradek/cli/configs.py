"""``odradek configs``, the twin of ``kafka-configs``.

Missing: quotas of users, clients and addresses; no broker here has them yet.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from odradek.cli import name_completion
from odradek.cli.config_report import describe
from odradek.cli.tool_options import (
    Either,
    Server,
    Tool,
    ToolError,
    check_not_with,
    check_one_action,
    load_properties,
    server_options,
)
from odradek.cli.user_configs import alter_user, describe_users, scram_change
from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import ConfigChange, ConfigResource
from odradek.core.config import ConfigResourceType

_RESOURCES: Final = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "broker-loggers": ConfigResourceType.BROKER_LOGGER,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
    "groups": ConfigResourceType.GROUP,
}
_USERS: Final = "users"
_QUOTAS: Final = ("clients", "ips")
_WITH_DEFAULTS: Final = ("brokers", _USERS, *_QUOTAS)
_SHORT: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "ip": "ips",
    "client_metrics": "client-metrics",
    "group": "groups",
}
_DEFAULTS: Final = {
    "client_defaults": "clients",
    "user_defaults": "users",
    "broker_defaults": "brokers",
    "ip_defaults": "ips",
}
_EITHER: Final = Either(
    "Only one of --bootstrap-server or --bootstrap-controller can be specified",
    "Either --bootstrap-server or --bootstrap-controller must be specified.",
)
# Commas and signs within brackets belong to a value: k=[v1,v2].
_OUTSIDE_BRACKETS: Final = r"(?=[^\]]*(?:\[|$))"
_LEGAL_NAME: Final = re.compile(r"[$a-zA-Z0-9._-]*")


@dataclass(frozen=True)
class Entity:
    """Whose configs: ``name`` is None for all of a type, and empty for their defaults."""

    type: str
    name: str | None

    @property
    def resource(self) -> ConfigResource:
        return ConfigResource(_RESOURCES[self.type], self.name or "")


@click.command(cls=Tool, no_args_is_help=True)
@server_options(controller=_EITHER)
@click.option("--describe", is_flag=True, help="List the configs that were set.")
@click.option("--alter", is_flag=True, help="Set configs, or take them back.")
@click.option("--all", "show_all", is_flag=True, help="With --describe: those that were not, too.")
@click.option(
    "--entity-type",
    "entity_types",
    multiple=True,
    metavar="TYPE",
    help=f"One of {', '.join((*_RESOURCES, _USERS))}. Comes later: {', '.join(_QUOTAS)}.",
)
@click.option(
    "--entity-name",
    "entity_names",
    multiple=True,
    help="Topic, broker id, group …",
    shell_complete=name_completion.entities,
)
@click.option("--entity-default", is_flag=True, help="What holds for all brokers.")
@click.option("--add-config", metavar="K1=V1,K2=[V1,V2]", help="Configs to set.")
@click.option(
    "--add-config-file", type=click.Path(dir_okay=False, path_type=Path), help="The same in a file."
)
@click.option("--delete-config", metavar="K1,K2", help="Configs to take back.")
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    help="Short for --entity-type topics --entity-name …",
)
@click.option("--broker", help="The same for brokers.")
@click.option("--broker-logger", help="The same for broker-loggers.")
@click.option("--group", shell_complete=name_completion.groups, help="The same for groups.")
@click.option("--client-metrics", help="The same for client-metrics.")
@click.option("--broker-defaults", is_flag=True, help="--entity-type brokers --entity-default")
@click.option("--user", help="The same for users.")
@click.option("--client", hidden=True)
@click.option("--ip", hidden=True)
@click.option("--client-defaults", is_flag=True, hidden=True)
@click.option("--user-defaults", is_flag=True, hidden=True)
@click.option("--ip-defaults", is_flag=True, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="With --describe: JSON instead of text.")
def configs(
    server: Server,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    add_config: str | None,
    add_config_file: Path | None,
    delete_config: str | None,
    *,
    entity_default: bool,
    show_all: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Describe and alter configs of topics, brokers, groups, client metrics and users.

    Users have SCRAM credentials: --add-config 'SCRAM-SHA-256=[iterations=8192,password=...]'.
    """
    action = check_one_action({f"--{name}": flags.pop(name) for name in ("describe", "alter")})
    given = {"describe": action == "--describe", "add-config": add_config}
    check_not_with(
        "describe", {**given, "delete-config": delete_config}, ["add-config", "delete-config"]
    )
    names = [*entity_names, *([""] if entity_default else [])]
    entity = _entity(entity_types, names, flags)
    if entity.type == _USERS and entity.name == "":
        problem = "The use of --entity-default or --user-defaults is not allowed with User SCRAM"
        raise click.UsageError(f"{problem} Credentials; quotas come later.")
    if action == "--describe" and entity.type == _USERS:
        server.run(partial(describe_users, entity.name, as_json=as_json), report=_report)
        return
    if action == "--describe":
        _check_described(entity)
        work = partial(describe, entity.type, entity.resource.type, entity.name)
        server.run(partial(work, show_all=show_all, as_json=as_json), report=_report)
        return
    changes = _changes(add_config, add_config_file, delete_config)
    if entity.name is None or (entity.name == "" and entity.type not in _WITH_DEFAULTS):
        raise click.UsageError(f"An entity name must be specified with --alter of {entity.type}")
    if entity.type == _USERS:
        server.run(partial(alter_user, entity.name, scram_change(changes)), report=_report)
        return
    server.run(partial(_alter, entity, changes), report=_report)


def _report(message: str) -> None:
    click.echo(f"Error while executing config command: {message}", err=True)


def _entity(types: tuple[str, ...], names: list[str], flags: Mapping[str, Any]) -> Entity:
    """Return whose configs are meant, from the long flags or a short one.

    Raises:
        click.UsageError: It is not clear whose, or not possible.
    """
    short = [(kind, flags[flag]) for flag, kind in _SHORT.items() if flags[flag] is not None]
    short += [(kind, "") for flag, kind in _DEFAULTS.items() if flags[flag]]
    if short and (types or names):
        problem = "should not be used in conjunction with specific entity flags"
        raise click.UsageError(f"--entity-{{type,name,default}} {problem}")
    kinds = [*types, *(kind for kind, _ in short)]
    names = [*names, *(name for _, name in short)]
    if not kinds:
        raise click.UsageError("At least one entity type must be specified")
    allowed = (*_RESOURCES, _USERS, *_QUOTAS)
    for kind in kinds:
        if kind not in allowed:
            problem = f"the entity type must be one of {', '.join(allowed)}"
            raise click.UsageError(f"Invalid entity type {kind}, {problem}")
    if any(kind in _QUOTAS for kind in kinds):
        click.echo(f"comes later: {', '.join(_QUOTAS)} have no configs yet", err=True)
        raise click.exceptions.Exit(1)
    if len(kinds) > 1 or len(names) > 1:
        raise click.UsageError("One entity type and one entity name at a time")
    entity = Entity(kinds[0], names[0] if names else None)
    if entity.name and kinds[0] in ("brokers", "broker-loggers") and not entity.name.isdecimal():
        problem = f"must be a valid integer broker id, but it is: {entity.name}"
        raise click.UsageError(f"The entity name for {kinds[0]} {problem}")
    return entity


def _check_described(entity: Entity) -> None:
    if entity.name == "" and entity.type not in _WITH_DEFAULTS:
        problem = f"must not be specified with --describe of {entity.type}"
        raise click.UsageError(f"--entity-default {problem}")
    if entity.name is None and entity.type == "broker-loggers":
        problem = f"must be specified with --describe of {entity.type}"
        raise click.UsageError(f"An entity name {problem}")


def _changes(added: str | None, file: Path | None, deleted: str | None) -> dict[str, str | None]:
    if added is not None and file is not None:
        raise click.UsageError("Only one of --add-config or --add-config-file must be specified")
    if added is None and file is None and deleted is None:
        options = "--add-config, --add-config-file, or --delete-config"
        raise click.UsageError(f"At least one of {options} must be specified with --alter")
    new = load_properties(file) if file is not None else _parsed(added or "")
    gone = [name.strip() for name in (deleted or "").split(",") if name.strip()]
    for name in new:
        if not _LEGAL_NAME.fullmatch(name):
            raise click.UsageError(f"Invalid character found for config key: {name}")
        if name in gone:
            raise click.UsageError(f"{name} is to be set and taken back")
    return {**dict.fromkeys(gone), **new}


def _parsed(text: str) -> dict[str, str]:
    pairs = {}
    for part in re.split("," + _OUTSIDE_BRACKETS, text) if text else ():
        pair = re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, part)
        if len(pair) != 2:
            problem = (
                'all configs to be added must be in the format "key=val" or'
                ' "key=[val1,val2]" to group values which contain commas.'
            )
            raise click.UsageError(f"Invalid entity config: {problem}")
        pairs[pair[0].strip()] = re.sub(r"[\[\]]", "", pair[1]).strip()
    return pairs


async def _alter(entity: Entity, changes: Mapping[str, ConfigChange], admin: Admin) -> None:
    if entity.type == "broker-loggers":
        raise ToolError("comes later: loggers of a running broker cannot be changed yet")
    (await admin.alter_configs({entity.resource: changes})).unwrap()
    if entity.name:
        click.echo(f"Completed updating config for {entity.type[:-1]} {entity.name}.")
    else:
        click.echo(f"Completed updating default config for {entity.type} in the cluster.")
