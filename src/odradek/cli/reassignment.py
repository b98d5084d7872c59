"""Begins and stops moves of partitions between brokers and log directories.

The words are those of Kafka's tool. ``TerseError`` is what it says without ``Error:`` before it.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import click

from odradek.cli.reassignment_plan import LogDirs, Plan, Replicas, comma_separated, document
from odradek.cli.reassignment_report import (
    by_broker,
    described,
    log_dir_moves,
    log_dirs_of,
    reassignments,
    replica_name,
    replicas_of,
)
from odradek.cli.reassignment_throttle import (
    clear_throttles,
    limit_log_dirs,
    limit_replication,
    moves_with,
)
from odradek.cli.tool_options import ToolError, reason
from odradek.client.admin.admin import Admin
from odradek.client.errors import KafkaError, KafkaTimeoutError
from odradek.core.ids import TopicPartition

_TRY_MS_MIN: Final = 1000
"""A move of a log directory is tried once, however short the time for it is."""


class TerseError(ToolError):
    """What cannot be done is told in these words alone."""


class Throttles(NamedTuple):
    """Bytes a second; None is no limit."""

    replication: int | None = None
    log_dirs: int | None = None


async def execute(
    admin: Admin,
    plan: Plan,
    throttles: Throttles,
    *,
    is_additional: bool,
    keeps_factor: bool,
    timeout_ms: int,
) -> None:
    """Begin to move partitions as planned."""
    under_way = await reassignments(admin)
    if under_way and not is_additional:
        raise TerseError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to"
            " override this and create a new partition assignment in addition to the existing one."
            " The --additional flag can also be used to change the throttle by resubmitting the"
            " current reassignment."
        )
    await _check_brokers(admin, plan.brokers)
    current = await _current(admin, plan.replicas)
    places, _ = await log_dirs_of(admin, current)
    before = document(current, places)
    click.echo(f"Current partition replica assignment\n\n{before}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    if throttles != Throttles():
        click.echo(
            "Warning: You must run --verify periodically, until the reassignment completes, to"
            " ensure the throttle is removed."
        )
    if throttles.replication is not None:
        moves = moves_with(under_way, plan.replicas, current)
        await limit_replication(admin, moves, throttles.replication)
    if throttles.log_dirs is not None:
        brokers = {each.broker for each in plan.log_dirs}
        await limit_log_dirs(admin, brokers, throttles.log_dirs)
    results = await admin.alter_partition_reassignments(
        plan.replicas, allow_replication_factor_change=not keeps_factor
    )
    if results.errors:
        raise TerseError(f"Error reassigning partition(s):\n{_reasons(results.errors)}")
    keys = sorted(plan.replicas)
    click.echo(f"Successfully started partition reassignment{_s(keys)} for {comma_separated(keys)}")
    await _move_log_dirs(admin, plan.log_dirs, timeout_ms)


async def _check_brokers(admin: Admin, brokers: Collection[int]) -> None:
    there = {each.node_id for each in (await admin.describe_cluster()).brokers}
    for each in brokers:
        if each not in there:
            raise ToolError(f"Unknown broker id {each}")


async def _current(admin: Admin, wanted: Replicas) -> dict[TopicPartition, tuple[int, ...]]:
    topics = await described(admin, sorted({key.topic for key in wanted}))
    found = {key: each for key, each in replicas_of(topics).items() if key in wanted}
    missing = [str(key) for key in wanted if key not in found]
    if missing:
        raise ToolError(f"Unable to find partition: {', '.join(missing)}")
    return found


async def _move_log_dirs(admin: Admin, wanted: LogDirs, timeout_ms: int) -> None:
    """Begin moves between directories; a replica that is new on its broker has to come first."""
    if not wanted:
        return
    limit_ms = max(timeout_ms, _TRY_MS_MIN)
    results = await admin.alter_replica_log_dirs(wanted, timeout_ms=limit_ms)
    late = []
    for replica in sorted(wanted, key=by_broker):
        error = results[replica].error
        topic, partition, broker = replica
        if isinstance(error, KafkaTimeoutError):
            late.append(replica_name(replica))
        elif error is not None:
            problem = f"Failed to alter dir for {replica_name(replica)}"
            raise ToolError(f"{problem}: {reason(error)}") from error
        else:
            done = f"Successfully started moving log directory to {wanted[replica]}"
            click.echo(f"{done} for replica {topic}-{partition} with broker {broker} ")
    if late:
        problem = f"Timed out before log directory move{_s(late)} could be started"
        raise TerseError(f"{problem} for: {comma_separated(late)}")


async def cancel(admin: Admin, plan: Plan, *, keeps_throttles: bool, timeout_ms: int) -> None:
    """Stop moves, and take limits back."""
    found = await reassignments(admin, list(plan.replicas))
    keys = sorted(
        key for key, each in found.items() if each.adding_replicas or each.removing_replicas
    )
    if keys:
        results = await admin.alter_partition_reassignments(dict.fromkeys(keys))
        if results.errors:
            problem = f"Error cancelling partition reassignment{_s(results.errors)} for"
            raise TerseError(f"{problem}:\n{_reasons(results.errors)}")
        done = f"Successfully cancelled partition reassignment{_s(keys)}"
        click.echo(f"{done} for: {comma_separated(keys)}")
    else:
        click.echo("None of the specified partition reassignments are active.")
    current, future = await log_dir_moves(admin, plan.log_dirs)
    back = {each: current[each] for each in plan.log_dirs if each in future and each in current}
    if back:
        await _move_log_dirs(admin, back, timeout_ms)
    else:
        click.echo("None of the specified partition moves are active.", nl=False)
    if not keeps_throttles:
        await clear_throttles(admin, plan.brokers, plan.topics)


def _reasons(errors: Mapping[TopicPartition, KafkaError]) -> str:
    return "\n".join(f"{key}: {reason(error)}" for key, error in sorted(errors.items()))


def _s(items: Collection[object]) -> str:
    return "" if len(items) == 1 else "s"
