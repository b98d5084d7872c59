"""``odradek stop``, the twin of ``kafka-server-stop``: ends nodes that run in the background."""

import click

from odradek.cli.local_options import LocalTool


@click.command(cls=LocalTool)
@click.option("--node-id", type=int, help="Only the node with this id.")
@click.option(
    "--process-role", metavar="ROLE", help="Only nodes with this role: broker, controller."
)
def stop(node_id: int | None, process_role: str | None) -> None:
    """Stop the nodes that `odradek serve -daemon` has started, and wait until they have ended."""
    from odradek.local.daemons import find_daemons, stop_daemon
    from odradek.local.errors import LocalClusterError

    chosen = [
        each
        for each in find_daemons()
        if node_id in (None, each.node_id) and (process_role is None or process_role in each.roles)
    ]
    if not chosen:
        raise LocalClusterError(
            "there is no such node to stop: only those that `odradek serve -daemon` started count"
        )
    for each in chosen:
        stop_daemon(each)
        click.echo(f"stopped node {each.node_id} (pid {each.process.pid})")
