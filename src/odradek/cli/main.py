"""The ``odradek`` command."""

import click

from odradek.cli.dump_log import dump_log
from odradek.cli.serve import serve
from odradek.cli.storage import storage
from odradek.protocol import __main__ as protocol_table


@click.group()
@click.version_option(package_name="odradek")
def main() -> None:
    """Kafka in Python."""


@main.command()
def protocol() -> None:
    """List the APIs this version speaks: KEY NAME MIN-MAX."""
    protocol_table.main()


main.add_command(dump_log)
main.add_command(serve)
main.add_command(storage)
