"""``odradek groups``, the twin of ``kafka-groups``."""

from collections.abc import Callable
from typing import Any, Final

import click

from odradek.cli.tables import column_width, json_object, padded, print_json
from odradek.cli.tool_options import (
    Server,
    Tool,
    check_not_with,
    check_one_action,
    server_options,
)
from odradek.client.admin.admin import Admin
from odradek.client.admin.groups import CONSUMER_PROTOCOL_TYPE, GroupListing

_TYPES: Final = ("classic", "consumer", "share", "streams")
_FILTERS: Final = ("group-type", "protocol", "consumer", "share", "streams")


@click.command(cls=Tool, no_args_is_help=True)
@server_options()
@click.option("--list", "is_list", is_flag=True, help="List the groups.")
@click.option("--group-type", help=f"Only groups of a type: {', '.join(_TYPES)}.")
@click.option("--protocol", help="Only groups of a protocol type, such as consumer or connect.")
@click.option("--consumer", is_flag=True, help="Only groups of consumers, of either protocol.")
@click.option("--share", is_flag=True, help="Only share groups.")
@click.option("--streams", is_flag=True, help="Only streams groups.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def groups(server: Server, *, is_list: bool, as_json: bool, **flags: Any) -> None:
    """List groups of all types."""
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    check_one_action({"--list": is_list})
    for kind in ("consumer", "share", "streams"):
        check_not_with(kind, given, _FILTERS)
    if flags["group_type"] is not None and flags["group_type"].lower() not in _TYPES:
        raise click.UsageError("--group-type must be a valid group type.")
    is_wanted = _filter(**flags)

    async def work(admin: Admin) -> None:
        found = [each for each in await admin.list_groups() if is_wanted(each)]
        if as_json:
            print_json([json_object(each._asdict()) for each in found])
            return
        rows = [(each.group_id, each.type.capitalize(), each.protocol_type) for each in found]
        width = column_width(20, (cell for row in rows for cell in row))
        click.echo(padded(("GROUP", "TYPE", "PROTOCOL"), [width] * 3))
        for row in rows:
            click.echo(padded(row, [width] * 3) + " ")

    server.run(work, report=_report)


def _report(message: str) -> None:
    click.echo(f"Error while executing groups command : {message}")


def _filter(
    group_type: str | None, protocol: str | None, *, consumer: bool, share: bool, streams: bool
) -> Callable[[GroupListing], bool]:
    def is_wanted(group: GroupListing) -> bool:
        if consumer:
            of_consumers = group.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)
            return of_consumers or group.type == "consumer"
        if share or streams:
            return group.type == ("share" if share else "streams")
        return (group_type is None or group.type == group_type.lower()) and (
            protocol is None or group.protocol_type == protocol
        )

    return is_wanted
