"""``odradek delete-records``, the twin of ``kafka-delete-records``."""

from pathlib import Path
from typing import Any

import click

from odradek.cli.json_files import duplicates, field, integer, partition_of, read_rows
from odradek.cli.tool_options import Server, Tool, ToolError, reason, server_options
from odradek.client.admin.admin import Admin
from odradek.core.ids import TopicPartition


@click.command(cls=Tool, no_args_is_help=True)
@server_options()
@click.option(
    "--offset-json-file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help='{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}'
    " An offset of -1 is the end.",
)
def delete_records(server: Server, offset_json_file: Path) -> None:
    """Delete the records of partitions up to an offset.

    Unlike Kafka's tool it ends with exit code 1 if a partition fails.
    """

    async def work(admin: Admin) -> None:
        rows = read_rows(offset_json_file, "partitions", _row)
        twice = duplicates(partition for partition, _ in rows)
        if twice:
            names = ",".join(map(str, twice))
            raise ToolError(f"Offset json file contains duplicate topic partitions: {names}")
        click.echo("Executing records delete operation")
        results = await admin.delete_records(dict(rows))
        click.echo("Records delete operation completed:")
        for partition, result in results.items():
            if result.error is None:
                click.echo(f"partition: {partition}\tlow_watermark: {result.value}")
            else:
                click.echo(f"partition: {partition}\terror: {reason(result.error)}")
        if results.errors:
            raise click.exceptions.Exit(1)

    server.run(work)


def _row(row: dict[str, Any]) -> tuple[TopicPartition, int]:
    return partition_of(row), integer(field(row, "offset"))
