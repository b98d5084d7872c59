"""``odradek local``: looks at the cluster that ``odradek up`` runs, and disturbs it on purpose."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.local_options import LocalTool, folder_option, open_folder
from odradek.cli.tool_options import Server, ToolGroup, server_options

if TYPE_CHECKING:
    from odradek.cli.cluster_status import LocalProcess
    from odradek.local.folder import ClusterFolder


_PATIENCE: Final = {"default.api.timeout.ms": "10000", "request.timeout.ms": "3000"}
"""A cluster that is being disturbed has brokers that do not answer."""


class LocalGroup(ToolGroup):
    command_class = LocalTool


@click.group(cls=LocalGroup, no_args_is_help=False)
def local() -> None:
    """Look at the cluster that `odradek up` runs, and disturb it on purpose."""


@local.command()
@folder_option
@server_options(required=False)
def status(path: Path, server: Server | None) -> None:
    """Show the nodes, the quorum and the partitions: of the local cluster, or of any Kafka."""
    from odradek.cli.cluster_status import ask_status, process_lines, status_lines
    from odradek.client.admin.admin import SETTINGS, Admin
    from odradek.client.errors import KafkaTimeoutError
    from odradek.client.settings import as_settings

    processes: list[LocalProcess] = []
    if server is None:
        folder = open_folder(path)
        layout = folder.existing()
        processes = _processes(folder)
        running = [
            each.listener
            for each in processes
            if each.state == "running" and "broker" in each.roles
        ]
        server = Server({"bootstrap.servers": ",".join(running) or layout.bootstrap_servers})
    settings = as_settings({**_PATIENCE, **server.known(SETTINGS)})

    async def show() -> None:
        async with Admin(settings) as admin:
            found = await ask_status(admin)
        for line in status_lines(found, processes):
            click.echo(line)

    try:
        asyncio.run(show())
    except KafkaTimeoutError:
        if not processes:
            raise
        click.echo("no broker answers\n")
        for line in process_lines(processes):
            click.echo(line)


def _processes(folder: "ClusterFolder") -> "list[LocalProcess]":
    from odradek.cli.cluster_status import LocalProcess
    from odradek.local.commands import ask_supervisor

    states = ask_supervisor(folder, {"command": "processes"}, click.echo)["nodes"]
    return [
        LocalProcess(
            node.id,
            ",".join(node.roles),
            states[str(node.id)]["state"],
            states[str(node.id)]["pid"],
            node.address or node.controller_address or "-",
            node.rack,
        )
        for node in folder.existing().nodes
    ]
