"""``odradek broker-api-versions``, the twin of ``kafka-broker-api-versions``.

What is usable is told for the client that comes with this command.
"""

from collections.abc import Mapping
from typing import Final

import click

from odradek.cli.tables import json_object, print_json
from odradek.cli.tool_options import Server, Tool, reason, server_options
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import BrokerDescription, VersionRange
from odradek.client.admin.results import Result
from odradek.protocol.apis import ALL_APIS, Api

# Spoken between nodes on the listeners of controllers only; no client misses them.
_OF_CONTROLLERS: Final = frozenset({52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 94})


@click.command(cls=Tool, no_args_is_help=True)
@server_options()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def broker_api_versions(server: Server, *, as_json: bool) -> None:
    """List the versions of the APIs that brokers speak."""

    async def work(admin: Admin) -> None:
        results = await admin.describe_api_versions()
        brokers = {each.node_id: each for each in (await admin.describe_cluster()).brokers}
        if as_json:
            print_json([_document(brokers[each], result) for each, result in results.items()])
            return
        for node_id, result in results.items():
            broker = brokers[node_id]
            rack = "null" if broker.rack is None else broker.rack
            name = f"{broker.host}:{broker.port} (id: {node_id} rack: {rack} isFenced: false)"
            if result.error is not None:
                click.echo(f"{name} -> ERROR: {reason(result.error)}")
                continue
            click.echo(f"{name} -> (\n\t" + ",\n\t".join(_lines(result.unwrap())) + "\n)")

    server.run(work)


def _document(broker: BrokerDescription, result: Result[dict[str, VersionRange]]) -> object:
    keys = {api.name: api.key for api in ALL_APIS}
    return {
        **json_object(broker._asdict()),
        "error": None if result.error is None else reason(result.error),
        "apis": [
            {
                "name": name,
                "apiKey": keys[name] if name in keys else int(name),
                **json_object(each._asdict()),
            }
            for name, each in (result.value or {}).items()
        ],
    }


def _lines(spoken: Mapping[str, VersionRange]) -> list[str]:
    lines = {}
    for api in ALL_APIS:
        if api.name in spoken:
            lines[api.key] = _line(api, spoken[api.name])
        elif api.key not in _OF_CONTROLLERS:
            lines[api.key] = f"{api.name}({api.key}): UNSUPPORTED"
    for name, versions in spoken.items():
        if name.isdecimal():
            lines[int(name)] = f"UNKNOWN({name}): {_range(versions)}"
    return [line for _, line in sorted(lines.items())]


def _line(api: Api, versions: VersionRange) -> str:
    if api.version_max < versions.min_version:
        usable = "unusable: node too new"
    elif versions.max_version < api.version_min:
        usable = "unusable: node too old"
    else:
        usable = f"usable: {min(api.version_max, versions.max_version)}"
    return f"{api.name}({api.key}): {_range(versions)} [{usable}]"


def _range(versions: VersionRange) -> str:
    low, high = versions
    return str(low) if low == high else f"{low} to {high}"
