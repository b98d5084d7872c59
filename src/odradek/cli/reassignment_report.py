"""What is known of partitions and their replicas before, while and after they move.

The words are those of Kafka's tool.
"""

from collections.abc import Collection, Sequence

import click

from odradek.cli.reassignment_plan import LogDirs, Plan, Replicas, comma_separated
from odradek.cli.reassignment_progress import explanations
from odradek.cli.reassignment_throttle import ANSWER_MS_MAX, clear_throttles
from odradek.cli.tables import print_json
from odradek.cli.tool_options import ToolError
from odradek.client.admin.admin import Admin
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.partitions import Reassignment
from odradek.client.admin.topics import TopicDescription
from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError, UnsupportedError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition


async def reassignments(
    admin: Admin, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the moves under way.

    Raises:
        ToolError: The brokers are of a kind that moves nothing.
    """
    try:
        return await admin.list_partition_reassignments(partitions)
    except UnsupportedError as error:
        raise ToolError("the brokers cannot move partitions yet") from error


async def described(admin: Admin, topics: Sequence[str]) -> list[TopicDescription]:
    """Describe topics.

    Raises:
        ToolError: One of them is not there.
    """
    results = await admin.describe_topics(topics)
    for name, error in results.errors.items():
        if _is_unknown(error):
            raise ToolError(f"Topic {name} not found.") from error
    return list(results.unwrap().values())


def _is_unknown(error: KafkaError) -> bool:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return isinstance(error, BrokerError) and error.code is unknown


def replicas_of(topics: Collection[TopicDescription]) -> dict[TopicPartition, tuple[int, ...]]:
    return {
        TopicPartition(topic.name, each.partition): tuple(each.replicas)
        for topic in topics
        for each in topic.partitions
    }


async def running(admin: Admin) -> set[int]:
    return {each.node_id for each in (await admin.describe_cluster()).brokers}


async def log_dirs_of(
    admin: Admin, replicas: Replicas
) -> tuple[dict[TopicPartitionReplica, str], dict[TopicPartitionReplica, str]]:
    """Return where replicas are on their brokers, and where some are on the way to.

    A broker that does not run is not asked, nor waited for long (KAFKA-13392): moves that take
    replicas away from dead brokers are the most usual ones.
    """
    places: tuple[dict[TopicPartitionReplica, str], dict[TopicPartitionReplica, str]] = ({}, {})
    brokers = {each for ids in replicas.values() for each in ids} & await running(admin)
    if not brokers:
        return places
    found = await admin.describe_log_dirs(
        brokers, partitions=list(replicas), timeout_ms=ANSWER_MS_MAX
    )
    for node_id, result in found.items():
        if isinstance(result.error, KafkaTimeoutError):
            continue
        for path, directory in result.unwrap().items():
            for key, replica in directory.replicas.items():
                places[replica.is_future][TopicPartitionReplica(*key, node_id)] = path
    return places


async def log_dir_moves(
    admin: Admin, wanted: LogDirs
) -> tuple[dict[TopicPartitionReplica, str], dict[TopicPartitionReplica, str]]:
    """Return the same for the replicas of a plan that names directories."""
    replicas: dict[TopicPartition, list[int]] = {}
    for topic, partition, broker in wanted:
        replicas.setdefault(TopicPartition(topic, partition), []).append(broker)
    return await log_dirs_of(admin, replicas)


def by_broker(replica: TopicPartitionReplica) -> tuple[int, str, int]:
    return replica.broker, replica.topic, replica.partition


def replica_name(replica: TopicPartitionReplica) -> str:
    return "-".join(map(str, replica))


async def print_reassignments(admin: Admin, *, as_json: bool, explains: bool) -> None:
    """Print moves, and on stderr why they are not over: scripts read the lines of Kafka's tool."""
    found = dict(sorted((await reassignments(admin)).items()))
    reasons = await explanations(admin, found) if found and explains else {}
    if as_json:
        print_json([_move_json(key, move, reasons.get(key)) for key, move in found.items()])
        return
    if not found:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for key, move in found.items():
        line = f"{key}: replicas: {comma_separated(move.replicas)}."
        if move.adding_replicas:
            line += f" adding: {comma_separated(move.adding_replicas)}."
        if move.removing_replicas:
            line += f" removing: {comma_separated(move.removing_replicas)}."
        click.echo(line)
        for reason in reasons.get(key, ()):
            click.echo(f"  {reason}", err=True)


def _move_json(
    key: TopicPartition, move: Reassignment, reasons: list[str] | None
) -> dict[str, object]:
    row: dict[str, object] = {
        "topic": key.topic,
        "partition": key.partition,
        "replicas": list(move.replicas),
        "addingReplicas": list(move.adding_replicas),
        "removingReplicas": list(move.removing_replicas),
    }
    return row if reasons is None else {**row, "waitsFor": reasons}


async def verify(admin: Admin, plan: Plan, *, keeps_throttles: bool) -> None:
    """Tell how far moves are, and take limits back when none goes on."""
    under_way = await reassignments(admin)
    results = await admin.describe_topics(plan.topics)
    for error in results.errors.values():
        if not _is_unknown(error):
            raise error
    there = replicas_of([each.value for each in results.values() if each.value is not None])
    click.echo("Status of partition reassignment:")
    for key, wanted in sorted(plan.replicas.items()):
        click.echo(_state(key, wanted, there.get(key, ()), is_moving=key in under_way))
    moving = await _print_log_dir_moves(admin, plan.log_dirs)
    if not under_way and not moving and not keeps_throttles:
        await clear_throttles(admin, plan.brokers, plan.topics)


def _state(
    key: TopicPartition, wanted: Sequence[int], current: Sequence[int], *, is_moving: bool
) -> str:
    if is_moving:
        return f"Reassignment of partition {key} is still in progress."
    if list(current) == list(wanted):
        return f"Reassignment of partition {key} is completed."
    return (
        f"There is no active reassignment of partition {key}, but replica set is"
        f" {comma_separated(current)} rather than {comma_separated(wanted)}."
    )


async def _print_log_dir_moves(admin: Admin, wanted: LogDirs) -> bool:
    """Print how far moves between directories are, and return whether one goes on."""
    current, future = await log_dir_moves(admin, wanted)
    lines = [
        _log_dir_state(each, wanted[each], current.get(each), future.get(each))
        for each in sorted(wanted, key=by_broker)
    ]
    click.echo("\n".join(lines))
    return any(each in future for each in wanted)


def _log_dir_state(
    replica: TopicPartitionReplica, wanted: str, current: str | None, future: str | None
) -> str:
    partition = f"Partition {replica.topic}-{replica.partition}"
    if current is None:
        where = f"is not found in any live log dir on broker {replica.broker}."
        return f"{partition} {where} There is likely an offline log directory on the broker."
    if future == wanted:
        return f"Reassignment of replica {replica_name(replica)} is still in progress."
    if future is not None:
        where = f"is being moved to log dir {future} instead of {wanted}."
    elif current == wanted:
        return f"Reassignment of replica {replica_name(replica)} completed successfully."
    else:
        where = f"is not being moved from log dir {current} to {wanted}."
    return f"{partition} on broker {replica.broker} {where}"
