"""``odradek log-dirs``, the twin of ``kafka-log-dirs``."""

from collections.abc import Collection, Iterable
from typing import Final

import click

from odradek.cli import name_completion
from odradek.cli.tables import print_json
from odradek.cli.tool_options import Server, Tool, ToolError, server_options
from odradek.client.admin.admin import Admin
from odradek.client.admin.log_dirs import LogDirDescription
from odradek.client.errors import BrokerError, KafkaError
from odradek.core.errors import ErrorCode

# Scripts compare with the name of Java's class.
_OFFLINE: Final = "org.apache.kafka.common.errors.KafkaStorageException"


@click.command(cls=Tool, no_args_is_help=True)
@server_options(has_broker_list=True)
@click.option("--describe", is_flag=True, help="Describe log directories. REQUIRED.")
@click.option(
    "--topic-list",
    shell_complete=name_completion.topic_list,
    default="",
    metavar="TOPIC,…",
    help="Default: all topics.",
)
@click.option("--broker-list", default="", metavar="ID,…", help="Default: all brokers.")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON only.")
def log_dirs(
    server: Server, topic_list: str, broker_list: str, *, describe: bool, as_json: bool
) -> None:
    """Show the log directories of brokers and what is in them, as JSON."""
    if not describe:
        raise click.UsageError('Missing required argument "[describe]"')
    try:
        wanted = [int(each) for each in broker_list.split(",") if each]
    except ValueError as error:
        raise click.UsageError(f"--broker-list: {broker_list!r} is not ID,ID") from error
    topics = {each for each in topic_list.split(",") if each}

    async def work(admin: Admin) -> None:
        brokers = [each.node_id for each in (await admin.describe_cluster()).brokers]
        unknown = [each for each in wanted if each not in brokers]
        if unknown:
            raise ToolError(
                f"ERROR: The given brokers do not exist from --broker-list: {_ids(unknown)}."
                f" Current existent brokers: {_ids(brokers)}"
            )
        asked = sorted(set(wanted or brokers))
        if not as_json:
            click.echo("Querying brokers for log directories information")
        found = (await admin.describe_log_dirs(asked)).unwrap()
        if not as_json:
            click.echo(f"Received log directory information from brokers {_ids(asked)}")
        rows = [
            {"broker": node_id, "logDirs": [_log_dir(*each, topics) for each in dirs.items()]}
            for node_id, dirs in found.items()
        ]
        print_json({"version": 1, "brokers": rows}, compact=True)

    server.run(work)


def _ids(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _log_dir(path: str, described: LogDirDescription, topics: Collection[str]) -> dict[str, object]:
    return {
        "logDir": path,
        "error": _error_name(described.error),
        "partitions": [
            {
                "partition": str(partition),
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for partition, replica in described.replicas.items()
            if not topics or partition.topic in topics
        ],
    }


def _error_name(error: KafkaError | None) -> str | None:
    if error is None:
        return None
    is_offline = isinstance(error, BrokerError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR
    return _OFFLINE if is_offline else str(error)
