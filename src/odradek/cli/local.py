"""``odradek local``: looks at the cluster that ``odradek up`` runs, and disturbs it on purpose."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.cli.local_options import LocalTool, folder_option, open_folder
from odradek.cli.tool_options import Server, ToolGroup, server_options

if TYPE_CHECKING:
    from odradek.cli.cluster_status import LocalProcess
    from odradek.local.layout import Layout


_PATIENCE: Final = {"default.api.timeout.ms": "10000", "request.timeout.ms": "3000"}
"""A cluster that is being disturbed has brokers that do not answer."""


WATCH_LINES: Final = 10


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
    from odradek.local.commands import ask_supervisor

    processes: list[LocalProcess] = []
    if server is None:
        folder = open_folder(path)
        answer = ask_supervisor(folder, {"command": "processes"}, click.echo)
        processes = _processes(folder.existing(), answer["nodes"])
        if answer["cuts"]:
            click.echo(f"cut: {answer['cuts']} (`odradek local heal` undoes it)")
        server = Server({"bootstrap.servers": answer["bootstrap"]})
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


def _processes(layout: "Layout", states: Mapping[str, Any]) -> "list[LocalProcess]":
    from odradek.cli.cluster_status import LocalProcess

    return [
        LocalProcess(
            node.id,
            ",".join(node.roles),
            states[str(node.id)]["state"],
            states[str(node.id)]["pid"],
            node.address or node.controller_address or "-",
            node.rack,
        )
        for node in layout.nodes
    ]


node_argument = click.argument("node", type=int, metavar="N")
no_wait_option = click.option(
    "--no-wait", is_flag=True, help="Do not wait until the cluster has got over it."
)


@local.command()
@folder_option
@node_argument
@no_wait_option
def kill(path: Path, node: int, no_wait: bool) -> None:
    """Kill node N (SIGKILL), and show what comes of it."""
    _order(path, "kill", node=node, wait=not no_wait)


@local.command()
@folder_option
@node_argument
@no_wait_option
def pause(path: Path, node: int, no_wait: bool) -> None:
    """Pause node N (SIGSTOP): it keeps its connections and does not answer."""
    _order(path, "pause", node=node, wait=not no_wait)


@local.command()
@folder_option
@node_argument
@no_wait_option
def resume(path: Path, node: int, no_wait: bool) -> None:
    """Let node N go on after a pause."""
    _order(path, "resume", node=node, wait=not no_wait)


@local.command()
@folder_option
@click.argument("word", metavar="N | N:M | 'N>M'")
@no_wait_option
def cut(path: Path, word: str, no_wait: bool) -> None:
    """Cut node N off from the others, N and M from each other, or what goes from N to M.

    Bytes wait until `heal`. Clients still reach every node.
    """
    _order(path, "cut", word=word, wait=not no_wait)


@local.command()
@folder_option
@no_wait_option
def heal(path: Path, no_wait: bool) -> None:
    """Undo all cuts."""
    _order(path, "heal", wait=not no_wait)


@local.command()
@folder_option
@click.option("--rack", help="The rack of the broker.")
@no_wait_option
def add(path: Path, rack: str | None, no_wait: bool) -> None:
    """Add a broker to the cluster."""
    _order(path, "add", rack=rack, wait=not no_wait)


@local.command()
@folder_option
@node_argument
def remove(path: Path, node: int) -> None:
    """Move everything away from node N, stop it, and remove it with its data."""
    _order(path, "remove", node=node)


@local.command()
@folder_option
@click.argument("name")
def snapshot(path: Path, name: str) -> None:
    """Copy the data of all nodes, at one moment, as snapshot NAME."""
    from odradek.local import running

    running.snapshot(open_folder(path), name, click.echo)


@local.command()
@folder_option
@click.argument("name")
def restore(path: Path, name: str) -> None:
    """Go back to the data, and the nodes, that snapshot NAME has. What came later is lost."""
    from odradek.local import running

    running.restore(open_folder(path), name, click.echo)


@local.command()
@folder_option
@click.argument("node", type=int, metavar="[N]", required=False)
@click.option("--rolling", is_flag=True, help="All nodes, one after the other.")
@no_wait_option
def restart(path: Path, node: int | None, rolling: bool, no_wait: bool) -> None:
    """Restart node N, cleanly; start it if it does not run.

    With --rolling all nodes in turn, each when all replicas are in sync; the active controller is
    the last one.
    """
    if (node is None) is not rolling:
        raise click.UsageError("give either the id of a node or --rolling")
    _order(path, "restart", node=node, rolling=rolling, wait=not no_wait)


@local.command()
@folder_option
@click.argument("node", type=int, metavar="[N]", required=False)
@click.option("--lines", type=click.IntRange(0), default=20, show_default=True, metavar="COUNT")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
def logs(path: Path, node: int | None, lines: int, follow: bool) -> None:
    """Show the end of the log of node N, or of all nodes."""
    from odradek.local.log_tail import follow_files, last_lines

    folder = open_folder(path)
    layout = folder.existing()
    chosen = layout.nodes if node is None else [layout.find(node)]
    prefixes = {folder.log_file(each.id): f"{each.id}| " if node is None else "" for each in chosen}
    for line in last_lines(prefixes, lines):
        click.echo(line)
    if follow:
        follow_files(prefixes, click.echo)


@local.command()
@folder_option
def watch(path: Path) -> None:
    """Show what happens to the cluster, until Ctrl-C: what `up` prints."""
    from odradek.local.log_tail import follow_files, last_lines

    folder = open_folder(path)
    folder.existing()
    for line in last_lines({folder.events_file: ""}, WATCH_LINES):
        click.echo(line)
    follow_files({folder.events_file: ""}, click.echo)


def _order(path: Path, command: str, **arguments: object) -> None:
    from odradek.local.commands import ask_supervisor

    ask_supervisor(open_folder(path), {"command": command, **arguments}, click.echo)
