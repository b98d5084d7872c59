"""``odradek console-consumer``: the records of topics on stdout.

Of Kafka's options all are there. When nothing has come for ``--timeout-ms`` that is the end, with
exit code 0; what really fails is exit code 1, where Kafka's tool has 0 for that too.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import click

from odradek.cli import name_completion
from odradek.cli.client_options import (
    FILE,
    Wording,
    client_options,
    client_settings,
    compiled,
    newer,
    raw_pairs,
)
from odradek.cli.record_formatters import FORMATTERS, Formatter, formatter_for
from odradek.cli.running import run_until_stopped
from odradek.cli.standard_streams import Output
from odradek.cli.tool_options import Server, Tool, ToolError, load_properties
from odradek.client.consumer import Consumer, ConsumerRecord, TopicPartition
from odradek.client.consumer.extensions import RecordsByPartition
from odradek.client.consumer.settings import DEFINITIONS
from odradek.client.errors import KafkaError
from odradek.client.settings import as_settings

_WORDING: Final = Wording(
    "Option {old} is deprecated and will be removed in a future version. Use {new} instead.",
    "Options {old} and {new} cannot be specified together.",
)
_EARLIEST: Final = -2
_LATEST: Final = -1
_OFFSETS: Final = {"earliest": _EARLIEST, "latest": _LATEST}
_INT64_MAX: Final = 2**63 - 1
_POLL_RECORDS_MAX: Final = 500
_GROUP_NUMBERS: Final = 100_000


class Reading(NamedTuple):
    """What is read and shown."""

    topic: str | None
    include: re.Pattern[str] | None
    partition: int | None
    offset: int
    formatter: Formatter
    records_max: int | None
    timeout_seconds: float | None
    skips_errors: bool


def _note_new_consumer(_: click.Context, __: click.Parameter, value: bool) -> None:
    if value:
        click.echo("--new-consumer can be left out: there is no other any more", err=True)


@click.command(cls=Tool)
@client_options(
    old_config="--consumer.config", old_property="--consumer-property", wording=_WORDING
)
@click.option("--topic", shell_complete=name_completion.topics, help="The topic to read.")
@click.option("--include", metavar="PATTERN", help="Read all topics whose name matches.")
@click.option("--partition", type=click.IntRange(0), help="Read this partition alone.")
@click.option("--offset", help="With --partition: where to begin. A number, earliest or latest.")
@click.option("--from-beginning", is_flag=True, help="Begin with the first record there is.")
@click.option(
    "--group",
    shell_complete=name_completion.groups,
    help="The group to be in, which keeps how far it is.",
)
@click.option("--max-messages", type=int, help="Read so many, then end.")
@click.option("--timeout-ms", type=int, help="End if nothing has come for so long.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="With read_committed records of open and aborted transactions are left out.",
)
@click.option(
    "--formatter",
    "formatter_name",
    default="default",
    metavar="NAME",
    help=f"How records are shown: {', '.join(FORMATTERS)}, or the name of Kafka's class for that.",
)
@click.option("--formatter-property", multiple=True, metavar="NAME=VALUE", help="See above.")
@click.option("--property", "old_formatter_property", multiple=True, hidden=True)
@click.option("--formatter-config", type=FILE, help="A properties file for the formatter.")
@click.option("--key-deserializer", metavar="NAME", help="string, long, … or Kafka's class.")
@click.option("--value-deserializer", metavar="NAME", help="The same for values.")
@click.option("--skip-message-on-error", is_flag=True, help="Go on if one cannot be shown.")
@click.option("--enable-systest-events", is_flag=True, help="Say shutdown_complete in the end.")
@click.option("--whitelist", hidden=True)
@click.option(
    "--new-consumer", is_flag=True, hidden=True, expose_value=False, callback=_note_new_consumer
)
def console_consumer(
    server: Server,
    topic: str | None,
    include: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str | None,
    formatter_name: str,
    formatter_property: tuple[str, ...],
    old_formatter_property: tuple[str, ...],
    formatter_config: Path | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    enable_systest_events: bool,
    whitelist: str | None,
) -> None:
    """Print the records of a topic, from now on or --from-beginning.

    Properties of the default formatter: print.timestamp, print.partition, print.offset,
    print.headers, print.key, print.value (true or false); key.separator, line.separator,
    headers.separator, null.literal; key.deserializer, value.deserializer, headers.deserializer.
    """
    if whitelist is not None:
        raise click.UsageError("--whitelist is not an option any more: use --include")
    _check_places(topic, include, partition, offset, from_beginning)
    pairs = newer(
        ("--formatter-property", formatter_property),
        ("--property", old_formatter_property),
        _WORDING,
    )
    properties = {} if formatter_config is None else load_properties(formatter_config)
    if key_deserializer:
        properties["key.deserializer"] = key_deserializer
    if value_deserializer:
        properties["value.deserializer"] = value_deserializer
    settings = _consumer_settings(server, group, partition, from_beginning)
    if isolation_level is not None:
        settings["isolation.level"] = isolation_level
    reading = Reading(
        topic,
        None if include is None else compiled(include, "--include"),
        partition,
        _EARLIEST if from_beginning else _parse_offset(offset),
        _make_formatter(formatter_name, {**properties, **raw_pairs(pairs)}),
        None if max_messages is None or max_messages < 0 else max_messages,
        None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000,
        skip_message_on_error,
    )
    try:
        run_until_stopped(consume(settings, reading))
    finally:
        if enable_systest_events:
            click.echo("shutdown_complete")


def _check_places(
    topic: str | None,
    include: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
) -> None:
    if (topic is None) == (include is None):
        raise click.UsageError(
            "Exactly one of the following arguments is required: [topic], [include]"
        )
    if partition is None:
        if offset is not None:
            raise click.UsageError("The partition is required when offset is specified.")
    elif topic is None:
        raise click.UsageError("The topic is required when partition is specified.")
    elif from_beginning and offset is not None:
        raise click.UsageError("Options from-beginning and offset cannot be specified together.")


def _parse_offset(offset: str | None) -> int:
    if offset is None:
        return _LATEST
    if offset.lower() in _OFFSETS:
        return _OFFSETS[offset.lower()]
    if not (offset.isascii() and offset.isdigit() and int(offset) <= _INT64_MAX):
        raise click.UsageError(
            f"The provided offset value '{offset}' is incorrect."
            " Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(offset)


def _make_formatter(name: str, properties: Mapping[str, str]) -> Formatter:
    try:
        return formatter_for(name, properties)
    except ToolError as error:
        raise click.UsageError(str(error)) from error


def _consumer_settings(
    server: Server, group: str | None, partition: int | None, from_beginning: bool
) -> dict[str, str]:
    settings = client_settings(server, DEFINITIONS, client_id="console-consumer")
    groups = {each for each in (group, settings.get("group.id")) if each is not None}
    if len(groups) > 1:
        raise click.UsageError(
            "The group ids provided in different places (directly using '--group', via"
            " '--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            + ", ".join(f"'{each}'" for each in sorted(groups))
        )
    if groups and partition is not None:
        raise click.UsageError("Options group and partition cannot be specified together.")
    reset = settings.setdefault("auto.offset.reset", "earliest" if from_beginning else "latest")
    if from_beginning and reset != "earliest":
        raise click.UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}',"
            " please remove one option"
        )
    settings["surface.retriable.errors"] = "true"  # see _poll
    if groups:
        settings["group.id"] = groups.pop()
    elif partition is None:
        # Nobody will ask for this group's offsets again.
        number = Random().randrange(_GROUP_NUMBERS)  # noqa: S311  # any will do
        settings["group.id"] = f"console-consumer-{number}"
        settings.setdefault("enable.auto.commit", "false")
    return settings


async def consume(settings: Mapping[str, str], reading: Reading) -> None:
    """Print records until there is a reason to end.

    Raises:
        KafkaError: The cluster cannot be read.
        ToolError: A record cannot be shown.
    """
    session = _Session(reading)
    try:
        async with Consumer(settings=as_settings(settings)) as consumer:
            _begin(consumer, reading)
            await session.run(consumer)
    finally:
        click.echo(f"Processed a total of {session.count} messages", err=True)


def _begin(consumer: Consumer, reading: Reading) -> None:
    if reading.include is not None:
        consumer.subscribe(reading.include)
        return
    assert reading.topic is not None
    if reading.partition is None:
        consumer.subscribe([reading.topic])
        return
    place = TopicPartition(reading.topic, reading.partition)
    consumer.assign([place])
    if reading.offset == _EARLIEST:
        consumer.seek_to_beginning()
    elif reading.offset == _LATEST:
        consumer.seek_to_end()
    else:
        consumer.seek(place, reading.offset)


class _Session:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._output = Output()
        self.count = 0

    async def run(self, consumer: Consumer) -> None:
        reading = self._reading
        while reading.records_max is None or self.count < reading.records_max:
            wanted = _POLL_RECORDS_MAX
            if reading.records_max is not None:
                wanted = min(wanted, reading.records_max - self.count)
            polled = await self._poll(consumer, wanted)
            records = [record for share in polled.values() for record in share]
            if not records or not await self._print(consumer, records):
                return

    async def _poll(self, consumer: Consumer, wanted: int) -> RecordsByPartition:
        """Poll; what goes wrong meanwhile counts if it keeps the consumer from getting anything."""
        loop, timeout = asyncio.get_running_loop(), self._reading.timeout_seconds
        deadline = None if timeout is None else loop.time() + timeout
        trouble: KafkaError | None = None
        while True:
            left = None if deadline is None else max(deadline - loop.time(), 0)
            try:
                polled = await consumer.poll(left, wanted)
                break
            except KafkaError as error:
                if not error.retriable:
                    raise
                trouble = error
        if trouble is not None and not polled and not consumer.assignment():
            raise trouble
        return polled

    async def _print(self, consumer: Consumer, records: list[ConsumerRecord]) -> bool:
        """Write all records that there are; False if nobody reads them."""
        shown: list[bytes] = []
        count = 0
        try:
            for each in self._format(records):
                shown.append(each)
                count += 1
        finally:
            # What comes before a record that cannot be shown is still good.
            try:
                await self._output.write(b"".join(shown))
            finally:
                if not self._output.is_whole:
                    count = 0
                self.count += count
                _seek_back(consumer, records[count:])
        if self._output.is_broken:
            click.echo("Unable to write to standard out, closing consumer.", err=True)
        return not self._output.is_broken

    def _format(self, records: list[ConsumerRecord]) -> Iterator[bytes]:
        for record in records:
            try:
                yield self._reading.formatter.format(record)
            except ToolError as error:
                if not self._reading.skips_errors:
                    raise
                click.echo(f"Error processing message, skipping this message: {error}", err=True)
                yield b""


def _seek_back(consumer: Consumer, records: list[ConsumerRecord]) -> None:
    """Have what was not shown not committed either."""
    for record in reversed(records):
        with suppress(ValueError):  # the partition is somebody else's by now
            consumer.seek(record.topic_partition, record.offset)
