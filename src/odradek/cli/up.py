"""``odradek up``: a cluster on this machine, made if need be, until Ctrl-C or ``odradek down``."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.local_options import LocalTool, dir_argument, folder_option, open_folder
from odradek.cli.tables import aligned

if TYPE_CHECKING:
    from odradek.local.layout import Controllers
    from odradek.local.supervisor import Supervisor


@click.command(cls=LocalTool)
@folder_option
@click.option("--nodes", type=int, help="How many brokers.  [default: 3]")
@click.option("--racks", metavar="A,B,…", help="Racks, given to the brokers in turn.")
@click.option(
    "--base-port",
    type=int,
    help="The first broker's port; those of the others follow.  [default: 9092]",
)
@click.option(
    "--controllers",
    type=click.Choice(["combined", "separate"]),
    help="Whether brokers are controllers as well, or those are nodes apart.  [default: combined]",
)
@click.option("--ephemeral", is_flag=True, help="Remove the folder when the cluster goes down.")
def up(
    path: Path,
    nodes: int | None,
    racks: str | None,
    base_port: int | None,
    controllers: "Controllers | None",
    ephemeral: bool,
) -> None:
    """Run a cluster on this machine until Ctrl-C, or `odradek down`.

    Its data lies in the folder, and the next `up` goes on with it. Prints the nodes and the
    bootstrap string when all of them serve, then what happens to them.
    """
    from odradek.local.layout import Wishes
    from odradek.local.running import bring_up

    wishes = Wishes(
        nodes=nodes,
        racks=None if racks is None else [each.strip() for each in racks.split(",")],
        base_port=base_port,
        controllers=controllers,
        is_ephemeral=ephemeral,
    )

    def on_ready(supervisor: "Supervisor", seconds: float) -> None:
        for line in _greeting(supervisor, path, seconds):
            click.echo(line)

    asyncio.run(bring_up(open_folder(path), wishes, click.echo, on_ready))
    kept = "its folder is removed" if ephemeral else f"its data stays in {path}"
    click.echo(f"the cluster is down; {kept}")


def _greeting(supervisor: "Supervisor", path: Path, seconds: float) -> list[str]:
    layout, pids, where = supervisor.layout, supervisor.pids, dir_argument(path)
    rows = [("node", "roles", "listener", "controller", "rack", "pid")]
    rows += [
        (
            str(node.id),
            ",".join(node.roles),
            node.address or "-",
            node.controller_address or "-",
            node.rack or "-",
            str(pids[node.id]),
        )
        for node in layout.nodes
    ]
    first, copies = layout.brokers[0].address, min(len(layout.brokers), 3)
    return [
        f"cluster {layout.cluster_id} in {path}: {len(layout.nodes)} nodes, up in {seconds:.1f} s",
        "",
        *aligned(rows),
        "",
        f"bootstrap {layout.bootstrap_servers}",
        "",
        f"try  odradek topics --bootstrap-server {first} --create --topic orders --partitions 6"
        f" --replication-factor {copies}",
        f"     odradek local status{where}",
        f"     odradek local kill {layout.brokers[-1].id}{where}",
        f"     odradek down{where}        or Ctrl-C here",
        "",
    ]
