"""``odradek consumer-perf-test``: how fast a consumer reads.

``--socket-buffer-size`` is taken and has no effect.
"""

import time
from collections.abc import Collection
from random import Random
from typing import Any, Final, NamedTuple

import click

from odradek.cli import name_completion
from odradek.cli.client_options import (
    Wording,
    client_options,
    client_settings,
    compiled,
    newer,
)
from odradek.cli.java_dates import JavaDateFormat
from odradek.cli.metric_lines import metric_lines
from odradek.cli.producer_stats import MIB
from odradek.cli.progress import Progress
from odradek.cli.running import run_until_stopped
from odradek.cli.tool_options import Server, Tool
from odradek.client.consumer import Consumer, RebalanceListener, TopicPartition
from odradek.client.consumer.settings import DEFINITIONS
from odradek.client.settings import as_settings

_WORDING: Final = Wording(
    "Warning: {old} is deprecated. Use {new} instead.",
    'Option "[{old}]" can\'t be used with option "[{new}]"',
)
_POLL_SECONDS: Final = 0.1
_GROUP_NUMBERS: Final = 100_000
_FETCH_COLUMNS: Final = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
_COLUMNS: Final = f"data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {_FETCH_COLUMNS}"


class Plan(NamedTuple):
    """What is read, and how it is reported."""

    topics: Any
    records: int
    timeout_ms: int
    interval_ms: int
    is_detailed: bool
    dates: JavaDateFormat
    has_metrics: bool


@click.command(cls=Tool)
@client_options(old_config="--consumer.config", wording=_WORDING)
@click.option("--topic", shell_complete=name_completion.topics, help="The topic to read.")
@click.option("--include", metavar="PATTERN", help="Read all topics whose name matches.")
@click.option("--num-records", type=int, help="How many records to read. REQUIRED.")
@click.option("--messages", type=int, hidden=True)
@click.option(
    "--group", shell_complete=name_completion.groups, help="The group to be in; one of its own."
)
@click.option("--fetch-size", type=int, default=MIB, help="max.partition.fetch.bytes; 1 MiB.")
@click.option("--from-latest", is_flag=True, help="Begin at the end instead of the beginning.")
@click.option(
    "--timeout",
    type=int,
    is_flag=False,
    flag_value=10_000,
    default=10_000,
    show_default=True,
    help="End if nothing has come for so many ms.",
)
@click.option("--show-detailed-stats", is_flag=True, help="Report every --reporting-interval.")
@click.option(
    "--reporting-interval", type=click.IntRange(1), default=5000, show_default=True, help="In ms."
)
@click.option(
    "--date-format",
    default="yyyy-MM-dd HH:mm:ss:SSS",
    show_default=True,
    help="As for Java's SimpleDateFormat.",
)
@click.option("--hide-header", is_flag=True, help="Print figures alone.")
@click.option("--socket-buffer-size", type=int, hidden=True)
@click.option("--print-metrics", is_flag=True, help="Print the consumer's metrics at the end.")
def consumer_perf_test(
    server: Server,
    topic: str | None,
    include: str | None,
    num_records: int | None,
    messages: int | None,
    date_format: str,
    hide_header: bool,
    print_metrics: bool,
    **options: Any,
) -> None:
    """Read records as fast as can be, and report rates."""
    if (topic is None) == (include is None):
        raise click.UsageError(
            "Exactly one of the following arguments is required: [topic], [include]"
        )
    records = newer(("--num-records", num_records), ("--messages", messages), _WORDING)
    if records is None:
        raise click.UsageError('Missing required argument "[num-records]"')
    try:
        dates = JavaDateFormat(date_format)
    except ValueError as error:
        raise click.UsageError(f"--date-format: {error}") from error
    plan = Plan(
        [topic] if include is None else compiled(include, "--include"),
        records,
        options["timeout"],
        options["reporting_interval"],
        options["show_detailed_stats"],
        dates,
        print_metrics,
    )
    if not hide_header:
        first = "time, threadId" if plan.is_detailed else "start.time, end.time"
        click.echo(f"{first}, {_COLUMNS}")
    run_until_stopped(read_all(_consumer_settings(server, options), plan))


def _consumer_settings(server: Server, options: dict[str, Any]) -> dict[str, str]:
    number = Random().randrange(_GROUP_NUMBERS)  # noqa: S311  # any will do
    return client_settings(server, DEFINITIONS, client_id="perf-consumer-client") | {
        "group.id": options["group"] or f"perf-consumer-{number}",
        "max.partition.fetch.bytes": str(options["fetch_size"]),
        "auto.offset.reset": "latest" if options["from_latest"] else "earliest",
        "check.crcs": "false",
    }


class JoinTimes(RebalanceListener):
    """Measures how long the consumer had no partitions."""

    def __init__(self, now_ms: int) -> None:
        self.total_ms = 0
        self.lately_ms = 0
        self._owned: set[TopicPartition] = set()
        self._start_ms = now_ms

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if not self._owned:
            elapsed_ms = _now_ms() - self._start_ms
            self.total_ms += elapsed_ms
            self.lately_ms += elapsed_ms
        self._owned.update(partitions)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._owned.difference_update(partitions)
        if not self._owned:
            self._start_ms = _now_ms()


class Count(NamedTuple):
    at_ms: int
    records: int = 0
    size: int = 0


async def read_all(settings: dict[str, str], plan: Plan) -> None:
    """Read what was asked for, or until nothing comes any more, and print the figures.

    Raises:
        KafkaError: It cannot be read.
    """
    async with (
        Consumer(settings=as_settings(settings)) as consumer,
        Progress("read", plan.records) as progress,
    ):
        start = Count(_now_ms())
        joins = JoinTimes(start.at_ms)
        consumer.subscribe(plan.topics, joins)
        end = await _read(consumer, plan, joins, progress)
        if end.records < plan.records:
            progress.say(
                "WARNING: Exiting before consuming the expected number of records: timeout"
                f" ({plan.timeout_ms} ms) exceeded. You can use the --timeout option to increase"
                " the timeout."
            )
        if not plan.is_detailed:
            times = [plan.dates.format(_wall_ms(each.at_ms)) for each in (start, end)]
            progress.say(", ".join([*times, rates(start, end, end, joins.total_ms)]))
        if plan.has_metrics:
            progress.say("\n".join(metric_lines(consumer.metrics())))


async def _read(consumer: Consumer, plan: Plan, joins: JoinTimes, progress: Progress) -> Count:
    """Read on; return when and with how much that ended."""
    last = now = Count(_now_ms())
    heard_ms = now.at_ms
    while now.records < plan.records and now.at_ms - heard_ms <= plan.timeout_ms:
        records, size = now.records, now.size
        polled = await consumer.poll(_POLL_SECONDS)
        for share in polled.values():
            records += len(share)
            size += sum([len(each.value or b"") + len(each.key or b"") for each in share])
        now = Count(_now_ms(), records, size)
        progress.done = records
        if polled:
            heard_ms = now.at_ms
        if polled and now.at_ms - last.at_ms >= plan.interval_ms:
            if plan.is_detailed:
                at = plan.dates.format(_wall_ms(now.at_ms))
                progress.say(f"{at}, 0, {rates(last, now, now, joins.lately_ms)}")
            joins.lately_ms = 0
            last = now
    return now


def rates(start: Count, end: Count, total: Count, joining_ms: int) -> str:
    """Return the figures between two times, in the columns of the header."""
    elapsed_ms = max(end.at_ms - start.at_ms, 1)
    fetching_ms = end.at_ms - start.at_ms - joining_ms
    mebibytes = (end.size - start.size) / MIB
    records = end.records - start.records
    per_fetching = 1000.0 / fetching_ms if fetching_ms > 0 else 0.0
    return (
        f"{total.size / MIB:.4f}, {1000.0 * mebibytes / elapsed_ms:.4f}, {total.records},"
        f" {1000.0 * records / elapsed_ms:.4f}, {joining_ms}, {fetching_ms},"
        f" {mebibytes * per_fetching:.4f}, {records * per_fetching:.4f}"
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _wall_ms(monotonic_ms: int) -> int:
    """Return the time of day of a moment by the clock that only goes forward."""
    return time.time_ns() // 1_000_000 - (_now_ms() - monotonic_ms)
