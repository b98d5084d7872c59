"""``odradek cluster``, the twin of ``kafka-cluster``."""

from collections.abc import Callable
from typing import Any, Final

import click

from odradek.cli.tables import column_width, json_object, padded, print_json
from odradek.cli.tool_options import Either, Server, ToolError, ToolGroup, server_options
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import ClusterDescription
from odradek.client.errors import UnsupportedError

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_EITHER: Final = Either(
    "argument --bootstrap-controller/-C: not allowed with argument --bootstrap-server/-b",
    "one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required",
    has_short_names=True,
)
_STATE: Final = 4
_HEADERS: Final = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")
"""Controllers have no state."""


@click.group(cls=ToolGroup, no_args_is_help=False)
def cluster() -> None:
    """Show the id of a cluster and its endpoints; unregister a broker."""


def _connection_options() -> Callable[[Any], Any]:
    return server_options(controller=_EITHER, old_config=["--config"])


@cluster.command("cluster-id")
@_connection_options()
@json_option
def cluster_id(server: Server, *, as_json: bool) -> None:
    """Print the id of the cluster."""

    async def work(admin: Admin) -> None:
        found = (await admin.describe_cluster()).cluster_id
        if as_json:
            print_json({"clusterId": found})
        else:
            click.echo(f"Cluster ID: {found}")

    server.run(work)


@cluster.command()
@_connection_options()
@click.option("--id", "-i", "node_id", type=int, required=True, help="The id of the broker.")
def unregister(server: Server, node_id: int) -> None:
    """Make the cluster forget a broker that is gone for good."""

    async def work(admin: Admin) -> None:
        try:
            await admin.unregister_broker(node_id)
        except UnsupportedError as error:
            problem = "The target cluster does not support the broker unregistration API."
            raise ToolError(problem) from error
        click.echo(f"Broker {node_id} is no longer registered.")

    server.run(work, report=click.echo)


@cluster.command("list-endpoints")
@_connection_options()
@click.option("--include-fenced-brokers", is_flag=True, help="Show brokers that are fenced, too.")
@json_option
def list_endpoints(server: Server, *, include_fenced_brokers: bool, as_json: bool) -> None:
    """List the brokers, or the controllers, and where clients reach them."""
    if include_fenced_brokers and server.uses_controllers:
        problem = "The option --include-fenced-brokers is only supported with"
        raise click.UsageError(f"{problem} --bootstrap-server option")

    async def work(admin: Admin) -> None:
        described = await admin.describe_cluster(include_fenced_brokers=include_fenced_brokers)
        _print_endpoints(described, controllers=server.uses_controllers, as_json=as_json)

    server.run(work)


def _print_endpoints(described: ClusterDescription, *, controllers: bool, as_json: bool) -> None:
    nodes = described.brokers
    if as_json:
        print_json([json_object(each._asdict()) for each in nodes])
        return
    racks = [each.rack for each in nodes if each.rack is not None]
    host_width = column_width(0, (each.host for each in nodes))
    rack_width = max(map(len, racks), default=10)
    kind = "controller" if controllers else "broker"
    rows: list[tuple[object, ...]] = [_HEADERS]
    for node_id, host, port, rack, is_fenced in nodes:
        state = "fenced" if is_fenced else "unfenced"
        rows.append((node_id, host, port, rack or "null", state, kind))
    widths = [10, host_width, 10, rack_width, 10, 15]
    if controllers:
        rows = [(*row[:_STATE], *row[_STATE + 1 :]) for row in rows]
        del widths[_STATE]
    for row in rows:
        click.echo(padded(row, widths))
