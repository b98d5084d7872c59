"""``odradek local``: looks at the cluster that ``odradek up`` runs, and disturbs it on purpose."""

from pathlib import Path
from typing import Final

import click

from odradek.cli.local_options import LocalTool, dir_argument, folder_option, open_folder
from odradek.cli.tool_options import Server, ToolGroup, server_options
from odradek.client.settings import SERVERS

WATCH_LINES: Final = 10


class LocalGroup(ToolGroup):
    command_class = LocalTool


@click.group(cls=LocalGroup, no_args_is_help=False)
def local() -> None:
    """Look at the cluster that `odradek up` runs, and disturb it on purpose."""


@local.command()
@folder_option
@server_options(required=False)
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(0),
    default=0,
    metavar="SECONDS",
    help="Look at the ISRs for so long first: names replicas that leave them and rejoin.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(path: Path, server: Server | None, seconds: float, as_json: bool) -> None:
    """Show the nodes, the quorum and the partitions, and say what is wrong and what to do.

    Of the local cluster, or of any Kafka with --bootstrap-server.
    """
    from odradek.cli.status_report import LocalView, report_status

    if server is not None:
        report_status(server, None, seconds=seconds, as_json=as_json)
        return
    from odradek.local.commands import ask_supervisor

    folder = open_folder(path)
    answer = ask_supervisor(folder, {"command": "processes"}, click.echo)
    view = LocalView.of(folder.existing(), answer, dir_argument(path))
    report_status(Server({SERVERS: answer["bootstrap"]}), view, seconds=seconds, as_json=as_json)


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
