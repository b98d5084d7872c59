"""``odradek reassign-partitions``, the twin of ``kafka-reassign-partitions``.

Missing: --execute, --verify and --cancel. They need replicas that move between brokers, which no
broker here has yet.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

import click

from odradek.cli.json_files import duplicates, read_rows
from odradek.cli.tool_options import (
    Server,
    Tool,
    ToolError,
    check_not_with,
    check_one_action,
    check_required,
    server_options,
)
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import BrokerDescription
from odradek.client.admin.topics import TopicDescription
from odradek.client.errors import BrokerError, UnsupportedError
from odradek.controller.placement import UsableBroker, place_replicas
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition

_ANY: Final = "any"
_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_LATER: Final = ("execute", "verify", "cancel")
_BEYOND_GENERATE: Final = (
    "reassignment-json-file",
    "throttle",
    "replica-alter-log-dirs-throttle",
    "timeout",
    "additional",
    "preserve-throttles",
    "disallow-replication-factor-change",
)
_FILE: Final = click.Path(dir_okay=False, path_type=Path)

Replicas = Mapping[TopicPartition, Sequence[int]]


@click.command(cls=Tool, no_args_is_help=True)
@server_options(controller=True, has_broker_list=True)
@click.option("--generate", is_flag=True, help="Propose where partitions could go; move nothing.")
@click.option("--execute", is_flag=True, help="Comes later: begin to move partitions.")
@click.option("--verify", is_flag=True, help="Comes later: tell how far it is.")
@click.option("--cancel", is_flag=True, help="Comes later: stop moves.")
@click.option("--list", is_flag=True, help="List the moves under way.")
@click.option(
    "--topics-to-move-json-file",
    type=_FILE,
    help='{"topics": [{"topic": "foo"}, {"topic": "foo1"}], "version": 1}',
)
@click.option("--broker-list", metavar="ID,…", help="The brokers they may go to.")
@click.option("--disable-rack-aware", is_flag=True, help="Do not look at racks.")
@click.option("--reassignment-json-file", type=_FILE, hidden=True)
@click.option("--throttle", type=int, hidden=True)
@click.option("--replica-alter-log-dirs-throttle", type=int, hidden=True)
@click.option("--timeout", type=int, hidden=True)
@click.option("--additional", is_flag=True, hidden=True)
@click.option("--preserve-throttles", is_flag=True, hidden=True)
@click.option("--disallow-replication-factor-change", is_flag=True, hidden=True)
def reassign_partitions(server: Server, **flags: Any) -> None:
    """Propose moves of partitions between brokers."""
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    action = check_one_action({f"--{name}": given[name] for name in _ACTIONS}).strip("-")
    if action in _LATER:
        check_required(given, ["reassignment-json-file"])
        click.echo(f"--{action} comes later: brokers cannot move partitions yet", err=True)
        raise click.exceptions.Exit(1)
    if action == "list":
        check_not_with("list", given, [each for each in given if each not in _ACTIONS])
        server.run(_list, report=_report)
        return
    check_required(given, ["topics-to-move-json-file", "broker-list"])
    check_not_with("generate", given, _BEYOND_GENERATE)

    async def work(admin: Admin) -> None:
        topics = _topics(given["topics-to-move-json-file"])
        brokers = _brokers(given["broker-list"])
        await _generate(admin, topics, brokers, is_rack_aware=not given["disable-rack-aware"])

    server.run(work, report=_report)


def _report(message: str) -> None:
    click.echo(f"Error: {message}")


def _topics(path: Path) -> list[str]:
    names = read_rows(path, "topics", lambda row: str(row["topic"]))
    twice = duplicates(names)
    if twice:
        problem = "List of topics to reassign contains duplicate entries"
        raise ToolError(f"{problem}: [{', '.join(twice)}]")
    return names


def _brokers(text: str) -> list[int]:
    try:
        ids = [int(each) for each in text.split(",")]
    except ValueError as error:
        raise ToolError(f"--broker-list: {text!r} is not ID,ID") from error
    twice = duplicates(ids)
    if twice:
        raise ToolError(f"Broker list contains duplicate entries: {twice}")
    return ids


async def _list(admin: Admin) -> None:
    try:
        found = await admin.list_partition_reassignments()
    except UnsupportedError as error:
        raise ToolError("the brokers cannot move partitions yet") from error
    if not found:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for key, move in sorted(found.items()):
        line = f"{key}: replicas: {_ids(move.replicas)}."
        if move.adding_replicas:
            line += f" adding: {_ids(move.adding_replicas)}."
        if move.removing_replicas:
            line += f" removing: {_ids(move.removing_replicas)}."
        click.echo(line)


def _ids(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


async def _generate(
    admin: Admin, topics: Sequence[str], wanted: Sequence[int], *, is_rack_aware: bool
) -> None:
    described = await _described(admin, topics)
    cluster = await admin.describe_cluster()
    brokers = [each for each in cluster.brokers if each.node_id in wanted]
    usable = _usable(brokers, is_rack_aware=is_rack_aware)
    current = {
        TopicPartition(topic.name, each.partition): each.replicas
        for topic in described
        for each in topic.partitions
    }
    proposed = {}
    for topic in described:
        replicas = place_replicas(
            usable,
            partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            random=SystemRandom(),
        )
        for number, each in enumerate(replicas):
            proposed[TopicPartition(topic.name, number)] = each
    places = await _log_dirs(admin, current)
    click.echo(f"Current partition replica assignment\n{_document(current, places)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{_document(proposed, {})}")


async def _described(admin: Admin, topics: Sequence[str]) -> list[TopicDescription]:
    results = await admin.describe_topics(topics)
    for name, error in results.errors.items():
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(error, BrokerError) and error.code is unknown:
            raise ToolError(f"Topic {name} not found.") from error
    return list(results.unwrap().values())


def _usable(brokers: Sequence[BrokerDescription], *, is_rack_aware: bool) -> list[UsableBroker]:
    racks = {each.node_id: each.rack if is_rack_aware else None for each in brokers}
    without = sum(rack is None for rack in racks.values())
    if 0 < without < len(racks) and is_rack_aware:
        raise ToolError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to"
            " make replica assignment without rack information."
        )
    return [UsableBroker(node_id, rack, fenced=False) for node_id, rack in racks.items()]


async def _log_dirs(admin: Admin, current: Replicas) -> dict[tuple[int, TopicPartition], str]:
    brokers = {each for replicas in current.values() for each in replicas}
    found = await admin.describe_log_dirs(brokers, partitions=list(current))
    return {
        (node_id, key): path
        for node_id, result in found.items()
        if result.value is not None
        for path, described in result.value.items()
        for key, replica in described.replicas.items()
        if not replica.is_future
    }


def _document(replicas: Replicas, places: Mapping[tuple[int, TopicPartition], str]) -> str:
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": list(brokers),
            "log_dirs": [places.get((each, key), _ANY) for each in brokers],
        }
        for key, brokers in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
