"""``odradek down``: ends what ``odradek up`` started, and nothing else."""

from pathlib import Path

import click

from odradek.cli.local_options import LocalTool, folder_option, open_folder


@click.command(cls=LocalTool)
@folder_option
def down(path: Path) -> None:
    """Stop the cluster that runs in a folder. Its data stays, unless it is ephemeral."""
    from odradek.local.running import bring_down

    bring_down(open_folder(path), click.echo)
