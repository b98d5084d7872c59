"""``odradek transactions``, the twin of ``kafka-transactions``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from odradek.cli import name_completion
from odradek.cli.hanging import find_hanging as find_hanging_transactions
from odradek.cli.tables import json_object, json_partition, print_json, print_tabbed
from odradek.cli.tool_options import (
    Server,
    ToolError,
    ToolGroup,
    now_ms,
    pass_server,
    reason,
    server_options,
)
from odradek.client.admin.admin import Admin
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition

_LIST: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBE: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCERS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
_JSON_NAMES: Final = {"Duration(min)": "DurationMinutes"}
_MS_PER_MINUTE: Final = 60_000
_NONE: Final = -1

topic_option = click.option(
    "--topic", shell_complete=name_completion.topics, required=True, help="The topic."
)
partition_option = click.option("--partition", type=click.IntRange(0), required=True)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=ToolGroup, no_args_is_help=False)
@server_options(required=False)
@click.pass_context
def transactions(ctx: click.Context, server: Server | None) -> None:
    """Look into transactions and end those that hang."""
    ctx.obj = server


def _print(headers: Sequence[str], rows: list[tuple[object, ...]], *, as_json: bool) -> None:
    """Print rows of texts, numbers, partitions, and None."""
    if not as_json:
        print_tabbed(headers, [[_text(cell) for cell in row] for row in rows])
        return
    names = [_JSON_NAMES.get(name, name) for name in headers]
    print_json([json_object(dict(zip(names, map(_json, row), strict=True))) for row in rows])


def _text(cell: object) -> str:
    return ",".join(map(str, cell)) if isinstance(cell, list) else str(cell)


def _json(cell: object) -> object:
    return [json_partition(each) for each in cell] if isinstance(cell, list) else cell


@contextmanager
def _doing(problem: str) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        raise ToolError(f"{problem}: {reason(error)}") from error


@transactions.command("list")
@click.option("--duration-filter", type=int, metavar="MS", help="Only those open for longer.")
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match.")
@json_option
@pass_server
def list_command(
    server: Server,
    duration_filter: int | None,
    transactional_id_pattern: str | None,
    *,
    as_json: bool,
) -> None:
    """List transactional ids."""

    async def work(admin: Admin) -> None:
        with _doing("Failed to list transactions"):
            found = await admin.list_transactions(
                open_for_ms=duration_filter, pattern=transactional_id_pattern
            )
        rows: list[tuple[object, ...]] = [
            (each.transactional_id, each.coordinator, each.producer_id, each.state)
            for each in found
        ]
        _print(_LIST, rows, as_json=as_json)

    server.run(work)


@transactions.command()
@click.option("--transactional-id", required=True)
@json_option
@pass_server
def describe(server: Server, transactional_id: str, *, as_json: bool) -> None:
    """Describe the transaction of a transactional id."""

    async def work(admin: Admin) -> None:
        problem = f"Failed to describe transaction state of transactional-id `{transactional_id}`"
        with _doing(problem):
            results = await admin.describe_transactions([transactional_id])
            found = results[transactional_id].unwrap()
        began_ms, duration_ms = found.start_time_ms, now_ms() - found.start_time_ms
        is_open = began_ms != _NONE
        row = (
            found.coordinator,
            transactional_id,
            found.producer_id,
            found.producer_epoch,
            found.state,
            found.timeout_ms,
            began_ms if is_open else None,
            duration_ms if is_open else None,
            list(found.partitions),
        )
        _print(_DESCRIBE, [row], as_json=as_json)

    server.run(work)


@transactions.command("describe-producers")
@click.option("--broker-id", type=int, help="Ask this replica. Default: the leader.")
@topic_option
@partition_option
@json_option
@pass_server
def describe_producers(
    server: Server, broker_id: int | None, topic: str, partition: int, *, as_json: bool
) -> None:
    """Describe the producers that a partition remembers."""
    key = TopicPartition(topic, partition)

    async def work(admin: Admin) -> None:
        who = "leader" if broker_id is None else f"broker {broker_id}"
        with _doing(f"Failed to describe producers for partition {key} on {who}"):
            producers = (await admin.describe_producers([key], broker=broker_id))[key].unwrap()
        rows: list[tuple[object, ...]] = [
            (
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.last_sequence,
                each.last_timestamp,
                _offset(each.transaction_start_offset),
            )
            for each in producers
        ]
        _print(_PRODUCERS, rows, as_json=as_json)

    server.run(work)


def _offset(number: int) -> int | None:
    return None if number == _NONE else number


@transactions.command()
@topic_option
@partition_option
@click.option("--start-offset", type=int, help="Where the transaction began: find-hanging tells.")
@click.option("--producer-id", type=int, help="Brokers before 3.0: this and the two epochs.")
@click.option("--producer-epoch", type=int)
@click.option("--coordinator-epoch", type=int)
@pass_server
def abort(
    server: Server,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a transaction that hangs in a partition."""
    key = TopicPartition(topic, partition)

    async def work(admin: Admin) -> None:
        if start_offset is not None:
            ids = await _producer_at(admin, key, start_offset)
        else:
            ids = _given_producer(producer_id, producer_epoch, coordinator_epoch)
        with _doing(f"Failed to abort transaction in {key}"):
            await admin.abort_transaction(key, *ids)

    server.run(work)


def _given_producer(
    producer_id: int | None, producer_epoch: int | None, coordinator_epoch: int | None
) -> tuple[int, int, int]:
    if producer_id is None:
        raise ToolError(
            "The transaction to abort must be identified either with --start-offset (for brokers on"
            " 3.0 or above) or with --producer-id, --producer-epoch, and --coordinator-epoch (for"
            " older brokers)"
        )
    if producer_epoch is None:
        raise ToolError("Missing required argument --producer-epoch")
    if coordinator_epoch is None:
        raise ToolError("Missing required argument --coordinator-epoch")
    # -1: no marker came yet. 0 is no newer than any coordinator.
    return producer_id, producer_epoch, max(0, coordinator_epoch)


async def _producer_at(
    admin: Admin, key: TopicPartition, start_offset: int
) -> tuple[int, int, int]:
    with _doing(f"Failed to validate producer state for partition {key}"):
        producers = (await admin.describe_producers([key]))[key].unwrap()
    for each in producers:
        if each.transaction_start_offset == start_offset != _NONE:
            return each.producer_id, each.producer_epoch, max(0, each.coordinator_epoch)
    problem = f"Could not find any open transactions starting at offset {start_offset}"
    raise ToolError(f"{problem} on partition {key}")


@transactions.command("find-hanging")
@click.option("--broker-id", type=int, help="Partitions that have a replica there.")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Nothing that is younger hangs.",
)
@click.option("--topic", shell_complete=name_completion.topics, help="Partitions of this topic.")
@click.option("--partition", type=click.IntRange(0))
@json_option
@pass_server
def find_hanging(
    server: Server,
    broker_id: int | None,
    max_transaction_timeout: int,
    topic: str | None,
    partition: int | None,
    *,
    as_json: bool,
) -> None:
    """Find transactions that no coordinator is going to end."""

    async def work(admin: Admin) -> None:
        if topic is None and broker_id is None:
            problem = "requires either --topic or --broker-id to limit the scope of the search"
            raise ToolError(f"The `find-hanging` command {problem}")
        if partition is not None and topic is None:
            raise ToolError("The --partition argument requires --topic to be provided")
        now = now_ms()
        found = await find_hanging_transactions(
            admin, topic, partition, broker_id, now - max_transaction_timeout * _MS_PER_MINUTE
        )
        rows: list[tuple[object, ...]] = [
            (
                key.topic,
                key.partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.transaction_start_offset,
                producer.last_timestamp,
                (now - producer.last_timestamp) // _MS_PER_MINUTE,
            )
            for key, producer in found
        ]
        _print(_HANGING, rows, as_json=as_json)

    server.run(work)


@transactions.command("forceTerminateTransaction")
@click.option("--transactionalId", "transactional_id", required=True)
@pass_server
def force_terminate(server: Server, transactional_id: str) -> None:
    """Abort the transaction of a transactional id and lock its producer out."""

    async def work(admin: Admin) -> None:
        with _doing(f"Failed to force terminate transactionalId `{transactional_id}`"):
            (await admin.fence_producers([transactional_id])).unwrap()

    server.run(work)
