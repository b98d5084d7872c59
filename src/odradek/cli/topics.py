"""``odradek topics``, the twin of ``kafka-topics``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

import click

from odradek.cli import name_completion
from odradek.cli.offset_report import report_offsets
from odradek.cli.tables import print_json
from odradek.cli.tool_options import (
    Server,
    Tool,
    ToolError,
    check_not_with,
    check_one_action,
    check_required,
    server_options,
)
from odradek.cli.topic_filter import topic_filter
from odradek.cli.topic_report import Report, describe
from odradek.client.admin.admin import Admin
from odradek.client.admin.topics import (
    CLUSTER_DEFAULT,
    PARTITIONS_PER_PAGE,
    NewPartitions,
    NewTopic,
    TopicListing,
)
from odradek.client.errors import BrokerError
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.core.topic_names import has_collision_chars

_INT16_MAX: Final = 2**15 - 1
_ACTIONS: Final = ("list", "describe", "create", "alter", "delete")
_REPORTS: Final = (
    "under-replicated-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
    "unavailable-partitions",
)
_COLLISION: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_')"
    " could collide. To avoid issues it is best to use either, but not both."
)


@dataclass(frozen=True)
class Options:
    """The flags as they were given, under their own names."""

    list: bool
    create: bool
    delete: bool
    alter: bool
    describe: bool
    topic: str | None
    topic_id: str | None
    config: tuple[str, ...]
    delete_config: tuple[str, ...]
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    topics_with_overrides: bool
    if_exists: bool
    if_not_exists: bool
    exclude_internal: bool
    partition_size_limit_per_response: int | None
    offsets: bool
    json: bool

    def by_flag(self) -> dict[str, object]:
        return {each.name.replace("_", "-"): getattr(self, each.name) for each in fields(self)}


@click.command(cls=Tool, no_args_is_help=True)
@server_options()
@click.option("--list", is_flag=True, help="List all topics, or those that --topic matches.")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--delete", is_flag=True, help="Delete topics, but none of Kafka's own.")
@click.option("--alter", is_flag=True, help="Give topics more partitions. For configs: configs.")
@click.option("--describe", is_flag=True, help="Show topics and their partitions.")
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    help="A name; except with --create, a regular expression will do.",
)
@click.option("--topic-id", help="The id of the topic to describe.")
@click.option("--config", multiple=True, metavar="NAME=VALUE", help="A config of the new topic.")
@click.option("--delete-config", multiple=True, hidden=True)
@click.option(
    "--partitions",
    type=int,
    help="How many partitions, in all. With more of them, keys go elsewhere than before.",
)
@click.option("--replication-factor", type=int, help="How many replicas each partition has.")
@click.option(
    "--replica-assignment", metavar="ID:ID,ID:ID,…", help="The brokers of each partition."
)
@click.option("--under-replicated-partitions", is_flag=True, help="Show these only.")
@click.option("--unavailable-partitions", is_flag=True, help="Only those without a live leader.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Only with too few in sync.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Only with just enough in sync.")
@click.option("--topics-with-overrides", is_flag=True, help="Only topics with configs of their own")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is no error.")
@click.option("--if-not-exists", is_flag=True, help="A topic that is there already is no error.")
@click.option("--exclude-internal", is_flag=True, help="Leave out Kafka's own topics.")
@click.option("--partition-size-limit-per-response", type=click.IntRange(1), help="Page size.")
@click.option("--offsets", is_flag=True, help="Show where replicas and groups are in each log.")
@click.option("--json", is_flag=True, help="With --list and --describe: JSON instead of text.")
def topics(server: Server, **flags: Any) -> None:
    """Create, delete, describe, list and alter topics."""
    options = Options(**flags)
    action = _check(options)
    work = {
        "list": _list,
        "describe": _describe,
        "create": _create,
        "alter": _alter,
        "delete": _delete,
    }[action]
    server.run(partial(work, options), report=_report)


def _report(message: str) -> None:
    click.echo(f"Error while executing topic command : {message}")


def _check(options: Options) -> str:
    """Return the action, if the flags go together.

    Raises:
        click.UsageError: They do not.
    """
    given = options.by_flag()
    action = check_one_action({f"--{name}": bool(given[name]) for name in _ACTIONS}).strip("-")
    if options.delete_config:
        click.echo("--delete-config is not an option any more: use odradek configs", err=True)
    if action == "describe" and options.if_exists and not (options.topic or options.topic_id):
        raise click.UsageError("--topic or --topic-id is required to describe a topic")
    if action not in ("list", "describe"):
        check_required(given, ["topic"])
    if action == "alter":
        if options.config:
            raise click.UsageError("--alter does not change configs: use odradek configs")
        check_required(given, ["partitions"])
    _check_places(given)
    return action


def _check_places(given: Mapping[str, object]) -> None:
    allowed = {
        "config": ("alter", "create"),
        "partitions": ("alter", "create"),
        "replication-factor": ("create",),
        "replica-assignment": ("alter", "create"),
        "topics-with-overrides": ("describe",),
        "if-exists": ("alter", "delete", "describe"),
        "if-not-exists": ("create",),
        "exclude-internal": ("list", "describe"),
        "json": ("list", "describe"),
        "offsets": ("describe",),
        **dict.fromkeys(_REPORTS, ("describe",)),
    }
    for name, actions in allowed.items():
        check_not_with(name, given, [each for each in _ACTIONS if each not in actions])
    if given["create"]:
        check_not_with("replica-assignment", given, ["partitions", "replication-factor"])
    for name in _REPORTS:
        check_not_with(name, given, ["topics-with-overrides", "offsets"])
    check_not_with("topics-with-overrides", given, ["offsets"])


async def _create(options: Options, admin: Admin) -> None:
    name = options.topic or ""
    configs = _configs(options.config)
    if has_collision_chars(name):
        click.echo(_COLLISION)
    factor, count = options.replication_factor, options.partitions
    if factor is not None and not 1 <= factor <= _INT16_MAX:
        raise ToolError(f"The replication factor must be between 1 and {_INT16_MAX} inclusive")
    if count is not None and count < 1:
        raise ToolError("The partitions must be greater than 0")
    topic = NewTopic(
        name,
        CLUSTER_DEFAULT if count is None else count,
        CLUSTER_DEFAULT if factor is None else factor,
        dict(enumerate(_assignment(options.replica_assignment))),
        configs,
    )
    error = (await admin.create_topics([topic]))[name].error
    if error is None:
        click.echo(f"Created topic {name}.")
    elif not (options.if_not_exists and _is_code(error, ErrorCode.TOPIC_ALREADY_EXISTS)):
        raise error


def _is_code(error: Exception, code: ErrorCode) -> bool:
    return isinstance(error, BrokerError) and error.code is code


def _configs(texts: Sequence[str]) -> dict[str, str]:
    pairs = [tuple(map(str.strip, text.split("="))) for text in texts]
    if any(len(pair) != 2 or not pair[1] for pair in pairs):
        problem = 'all configs to be added must be in the format "key=val".'
        raise ToolError(f"requirement failed: Invalid topic config: {problem}")
    return {pair[0]: pair[1] for pair in pairs}


def _assignment(text: str | None) -> list[list[int]]:
    if not text:
        return []
    try:
        partitions = [[int(each) for each in part.split(":")] for part in text.split(",")]
    except ValueError as error:
        raise ToolError(f"--replica-assignment: {text!r} is not ID:ID,ID:ID") from error
    for number, brokers in enumerate(partitions):
        twice = sorted({str(each) for each in brokers if brokers.count(each) > 1})
        if twice:
            problem = "Partition replica lists may not contain duplicate entries"
            raise ToolError(f"{problem}: {','.join(twice)}")
        if len(brokers) != len(partitions[0]):
            raise ToolError(f"Partition {number} has different replication factor: {brokers}")
    return partitions


async def _list(options: Options, admin: Admin) -> None:
    names = [each.name for each in await _matching(options, admin)]
    if options.json:
        print_json(names)
    else:
        click.echo("\n".join(names))


async def _matching(options: Options, admin: Admin) -> list[TopicListing]:
    found = await admin.list_topics(include_internal=not options.exclude_internal)
    if options.topic is None:
        return found
    is_meant = topic_filter(options.topic)
    return [each for each in found if is_meant(each.name)]


async def _existing(options: Options, admin: Admin) -> list[TopicListing]:
    """Return the topics that are meant.

    Raises:
        ToolError: There are none, and that is not what was expected.
    """
    found = await _matching(options, admin)
    if not found and options.topic and not options.if_exists:
        raise ToolError(f"Topic '{options.topic}' does not exist as expected")
    return found


async def _alter(options: Options, admin: Admin) -> None:
    names = [each.name for each in await _existing(options, admin)]
    assert options.partitions is not None
    assignment = _assignment(options.replica_assignment)
    described = (await admin.describe_topics(names)).unwrap() if assignment else {}
    wanted = {}
    for name in names:
        new = assignment[len(described[name].partitions) :] if assignment else None
        wanted[name] = NewPartitions(options.partitions, new)
    if wanted:
        (await admin.create_partitions(wanted)).unwrap()


async def _delete(options: Options, admin: Admin) -> None:
    found = await _existing(options, admin)
    internal = [each.name for each in found if each.is_internal]
    if internal:
        # Kafka's tool lets them go, and with them all groups or transactions there are.
        problem = "Kafka's own and cannot be deleted with this tool"
        raise ToolError(f"{', '.join(internal)} is {problem}")
    (await admin.delete_topics([each.name for each in found])).unwrap()


async def _describe(options: Options, admin: Admin) -> None:
    wanted: list[str] | list[Uuid]
    topic_id = _topic_id(options.topic_id)
    if topic_id is None:
        wanted = [each.name for each in await _existing(options, admin)]
    else:
        if options.topic is not None:
            click.echo("--topic-id is given: --topic is not looked at", err=True)
        found = await admin.list_topics(include_internal=not options.exclude_internal)
        wanted = [each.topic_id for each in found if each.topic_id == topic_id]
        if not wanted and not options.if_exists:
            raise ToolError(f"TopicId '{topic_id}' does not exist as expected")
    limit = options.partition_size_limit_per_response or PARTITIONS_PER_PAGE
    results = await admin.describe_topics(wanted, partitions_per_page=limit)
    if options.offsets:
        await report_offsets(admin, results.unwrap().values(), as_json=options.json)
        return
    report = Report(
        under_replicated=options.under_replicated_partitions,
        unavailable=options.unavailable_partitions,
        under_min_isr=options.under_min_isr_partitions,
        at_min_isr=options.at_min_isr_partitions,
        only_overrides=options.topics_with_overrides,
        as_json=options.json,
    )
    await describe(admin, list(results.unwrap().values()), report)


def _topic_id(text: str | None) -> Uuid | None:
    if text is None:
        return None
    try:
        found = Uuid.from_text(text)
    except ValueError as error:
        raise ToolError(f"--topic-id: {text!r} is not the id of a topic") from error
    return None if found == ZERO_UUID else found
