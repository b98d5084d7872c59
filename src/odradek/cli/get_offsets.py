"""``odradek get-offsets``, the twin of ``kafka-get-offsets``: ``topic:partition:offset`` lines."""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import click

from odradek.cli import name_completion
from odradek.cli.tables import print_json
from odradek.cli.tool_options import Server, Tool, ToolError, reason, server_options
from odradek.cli.topic_filter import topic_filter
from odradek.client.admin.admin import Admin
from odradek.client.admin.partitions import OffsetSpec
from odradek.core.ids import TopicPartition

Filter: TypeAlias = Callable[[TopicPartition], bool]

_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|([0-9]*)-([0-9]*)))?")
_MARKS: Final = {each.name.lower().replace("_", "-"): each for each in OffsetSpec}
_NO_OFFSET: Final = -1


@click.command(cls=Tool, no_args_is_help=True)
@server_options()
@click.option(
    "--topic-partitions",
    metavar="t1:1,t2:0-3,t3,t4:5-,t5:-3",
    help="Topics, as regular expressions, and their partitions: one, a range without its end, all.",
)
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    help="A name or a regular expression. Default: all topics.",
)
@click.option("--partitions", metavar="ID,ID,…", help="Default: all partitions.")
@click.option(
    "--time",
    "moment",
    default="latest",
    show_default=True,
    metavar="MS|MARK",
    help="The first record at or after a time in ms, or " + ", ".join(_MARKS) + " (-1 to -6).",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Leave out Kafka's own topics.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def get_offsets(
    server: Server,
    topic_partitions: str | None,
    topic: str | None,
    partitions: str | None,
    moment: str,
    *,
    exclude_internal_topics: bool,
    as_json: bool,
) -> None:
    """Print offsets of partitions by time; nothing for a partition that has no such record."""

    async def work(admin: Admin) -> None:
        if topic_partitions is not None and (topic is not None or partitions is not None):
            raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
        spec = _spec(moment)
        if topic_partitions is None:
            is_meant = _by_topic_and_ids(topic, partitions)
        else:
            is_meant = _by_rules(topic_partitions)
        found = await _partitions(admin, is_meant, include_internal=not exclude_internal_topics)
        if not found:
            raise ToolError("Could not match any topic-partitions with the specified filters")
        await _print(admin, dict.fromkeys(found, spec), as_json=as_json)

    server.run(work, report=_report)


def _report(message: str) -> None:
    click.echo(f"Error occurred: {message}", err=True)


def _spec(text: str) -> int:
    if text in _MARKS:
        return _MARKS[text]
    try:
        return int(text)
    except ValueError as error:
        marks = " / ".join(f"{number:d} or {name}" for name, number in _MARKS.items())
        problem = f"Please use {marks}, or a specified long format timestamp"
        raise ToolError(f"Malformed time argument {text}. {problem}") from error


def _by_topic_and_ids(topic: str | None, ids: str | None) -> Filter:
    is_topic = topic_filter(".*" if topic is None else topic)
    try:
        wanted = {int(each) for each in ids.split(",")} if ids else None
    except ValueError as error:
        problem = "--partitions expects a comma separated list of numeric partition ids"
        raise ToolError(f"{problem}, but received: {ids}") from error
    return lambda key: is_topic(key.topic) and (wanted is None or key.partition in wanted)


def _by_rules(text: str) -> Filter:
    rules = [_rule(each) for each in text.split(",")]
    return lambda key: any(rule(key) for rule in rules)


def _rule(text: str) -> Filter:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ToolError(f"Invalid rule specification: {text}")
    is_topic = topic_filter(match[1] or ".*")
    if match[2]:
        only = int(match[2])
        return lambda key: is_topic(key.topic) and key.partition == only
    first, end = int(match[3] or 0), int(match[4] or 2**31)
    return lambda key: is_topic(key.topic) and first <= key.partition < end


async def _partitions(
    admin: Admin, is_meant: Filter, *, include_internal: bool
) -> list[TopicPartition]:
    names = [each.name for each in await admin.list_topics(include_internal=include_internal)]
    described = (await admin.describe_topics(names)).unwrap()
    every = (
        TopicPartition(topic.name, each.partition)
        for topic in described.values()
        for each in topic.partitions
    )
    return sorted(filter(is_meant, every), key=str)


async def _print(admin: Admin, specs: dict[TopicPartition, int], *, as_json: bool) -> None:
    results = await admin.list_offsets(specs)
    found = {}
    for key, result in results.items():
        if result.error is not None:
            skipped = f"Skip getting offsets for topic-partition {key}"
            click.echo(f"{skipped} due to error: {reason(result.error)}", err=True)
        elif result.unwrap().offset != _NO_OFFSET:
            found[key] = result.unwrap().offset
    if as_json:
        print_json([{**key._asdict(), "offset": offset} for key, offset in found.items()])
        return
    for key, offset in found.items():
        click.echo(f"{key.topic}:{key.partition}:{offset}")
