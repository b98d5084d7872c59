"""``odradek producer-perf-test``: how fast a producer gets rid of records, and how soon.

The keys of Kafka 4.4 (``--record-key-range`` and ``--key-distribution``) are there.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import click

from odradek.cli import name_completion
from odradek.cli.client_options import FILE, Wording, client_options, client_settings
from odradek.cli.metric_lines import metric_lines
from odradek.cli.payloads import Payload, chosen_from, numbers, random_letters, read_payloads
from odradek.cli.producer_stats import ProducerStats
from odradek.cli.progress import Progress
from odradek.cli.running import run_until_stopped
from odradek.cli.throttle import Throttle
from odradek.cli.tool_options import Server, Tool, ToolError, reason
from odradek.client.producer import Producer, RecordMetadata
from odradek.client.producer.settings import DEFINITIONS
from odradek.client.settings import as_settings
from odradek.core.ids import Uuid

_WORDING: Final = Wording(
    "Option {old} has been deprecated and will be removed in a future version. Use {new} instead.",
    "{new} and {old} cannot be specified together.",
)
_MANY_VALUES: Final = ("--command-property", "--producer-props")
_TRANSACTION_MS: Final = 3000
_FAILURES_SHOWN_MAX: Final = 10

Key = Callable[[int], bytes | None]


class ManyValuesTool(Tool):
    """Takes ``--command-property a=1 b=2``, as this one of Kafka's tools does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeat_names(args))


def repeat_names(args: list[str]) -> list[str]:
    """Put the option in front of each of its values."""
    repeated: list[str] = []
    name: str | None = None
    for each in args:
        if each.startswith("--"):
            name = each if each in _MANY_VALUES else None
        elif name is not None and repeated[-1] != name:
            repeated.append(name)
        repeated.append(each)
    return repeated


class Load(NamedTuple):
    """What is sent, and how it is reported."""

    topic: str
    records: int
    payload: Payload
    key: Key
    throughput: float
    warmup_records: int = 0
    interval_ms: int = 5000
    transaction_ms: int | None = None
    has_metrics: bool = False


@click.command(cls=ManyValuesTool)
@client_options(
    old_config="--producer.config",
    old_property="--producer-props",
    wording=_WORDING,
    required=False,
)
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    required=True,
    help="The topic to send to. REQUIRED.",
)
@click.option("--num-records", type=int, required=True, help="How many records. REQUIRED.")
@click.option("--record-size", type=int, help="Bytes of a value. This or one of the next two.")
@click.option("--payload-file", type=FILE, help="A file with values, picked at random.")
@click.option("--payload-monotonic", is_flag=True, help="Values are 0, 1, 2, …")
@click.option("--payload-delimiter", default="\\n", show_default=True, help="Between such values.")
@click.option("--throughput", type=float, required=True, help="Records a second; -1: no limit.")
@click.option("--transactional-id", help="Send in transactions, under this id.")
@click.option("--transaction-duration-ms", type=int, help="How long one lasts; 3000.")
@click.option("--warmup-records", type=int, default=0, help="Report without the first ones too.")
@click.option("--reporting-interval", type=int, default=5000, show_default=True, help="In ms.")
@click.option("--record-key-range", type=int, help="How many different keys.")
@click.option(
    "--key-distribution",
    type=click.Choice(["none", "range", "random"], case_sensitive=False),
    default="none",
    help="No keys, one after the other, or at random.",
)
@click.option("--random-seed", type=int, default=0, show_default=True)
@click.option("--print-metrics", is_flag=True, help="Print the producer's metrics at the end.")
def producer_perf_test(server: Server, print_metrics: bool, **options: Any) -> None:
    """Send records as fast as can be, or as asked for, and report rates and latencies.

    Exit code 1 if any record was not delivered.
    """
    _check(options)
    settings = client_settings(server, DEFINITIONS, client_id="perf-producer-client")
    duration_ms = options["transaction_duration_ms"]
    transactional_id = options["transactional_id"] or settings.get("transactional.id")
    if duration_ms is not None or transactional_id:
        duration_ms = duration_ms or _TRANSACTION_MS
        random_id = Uuid.random(Random())  # noqa: S311  # it only has to differ
        settings["transactional.id"] = transactional_id or f"performance-producer-{random_id}"

    async def work() -> None:
        random = Random(options["random_seed"])  # noqa: S311  # the same load every time
        load = Load(
            options["topic"],
            options["num_records"],
            _payload(options, random),
            _key(options, random),
            options["throughput"],
            max(options["warmup_records"], 0),
            options["reporting_interval"],
            duration_ms,
            print_metrics,
        )
        async with Progress("sent", load.records) as progress:
            await run_load(settings, load, progress.say, progress)

    run_until_stopped(work())


def _check(options: dict[str, Any]) -> None:
    payloads = [options["record_size"] is not None, options["payload_file"] is not None]
    if sum([*payloads, options["payload_monotonic"]]) != 1:
        raise click.UsageError(
            "Exactly one of --record-size, --payload-file or --payload-monotonic is required."
        )
    for name in ("num_records", "record_size", "transaction_duration_ms", "reporting_interval"):
        _check_positive(name, options[name])
    _check_positive("record_key_range", options["record_key_range"])
    if options["warmup_records"] >= options["num_records"]:
        raise click.UsageError(
            "The value for --warmup-records must be strictly fewer than the number of records in"
            " the test, --num-records."
        )
    if (options["key_distribution"] == "none") != (options["record_key_range"] is None):
        raise click.UsageError("--record-key-range goes with --key-distribution range or random.")


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value <= 0:
        raise click.UsageError(f"--{name.replace('_', '-')} should be greater than zero.")


def _payload(options: dict[str, Any], random: Random) -> Payload:
    if options["payload_monotonic"]:
        return numbers
    if options["record_size"] is not None:
        return random_letters(options["record_size"], random)
    path: Path = options["payload_file"]
    click.echo(f"Reading payloads from: {path.absolute()}")
    payloads = read_payloads(path, options["payload_delimiter"])
    click.echo(f"Number of records read: {len(payloads)}")
    return chosen_from(payloads, random)


def _key(options: dict[str, Any], random: Random) -> Key:
    count = options["record_key_range"]
    if options["key_distribution"] == "range":
        return lambda index: b"%d" % (index % count)
    if options["key_distribution"] == "random":
        return lambda _: b"%d" % random.randrange(count)
    return lambda _: None


async def run_load(
    settings: dict[str, str], load: Load, report: Callable[[str], None], progress: Progress
) -> ProducerStats:
    """Send it all, report on it, and return the figures.

    Raises:
        KafkaError: It could not be sent.
        ToolError: Some of it was not delivered.
    """
    async with Producer(as_settings(settings)) as producer:
        if load.transaction_ms is not None:
            await producer.init_transactions()
        if load.warmup_records:
            report(
                f"Warmup first {load.warmup_records} records."
                " Steady state results will print after the complete test summary."
            )
        run = _Run(load, report, progress)
        await run.send_all(producer)
        if load.has_metrics:
            await producer.flush()
            metrics = producer.metrics()
    run.report_totals()
    if load.has_metrics:
        report("\n".join(metric_lines(metrics)))
    run.check_all_delivered()
    return run.stats


class _Run:
    def __init__(self, load: Load, report: Callable[[str], None], progress: Progress) -> None:
        self._load = load
        self._report = report
        self._progress = progress
        self._failed = 0
        self._steady: ProducerStats | None = None
        self.stats = ProducerStats(load.records, _now_ms(), load.interval_ms, report)

    async def send_all(self, producer: Producer) -> None:
        load = self._load
        throttle = Throttle(load.throughput)
        transaction_start_ms: int | None = None
        for index in range(load.records):
            value = load.payload(index)
            if load.transaction_ms is not None and transaction_start_ms is None:
                await producer.begin_transaction()
                transaction_start_ms = _now_ms()
            start_ms = _now_ms()
            if load.warmup_records and index == load.warmup_records:
                self._begin_steady_state(start_ms)
            sent = await producer.send(load.topic, value, load.key(index))
            sent.add_done_callback(partial(self._on_done, start_ms, len(value), self._steady))
            if (
                transaction_start_ms is not None
                and load.transaction_ms is not None
                and start_ms - transaction_start_ms >= load.transaction_ms
            ):
                await producer.commit_transaction()
                transaction_start_ms = None
            if load.throughput >= 0:
                await throttle.wait(index + 1)
        if transaction_start_ms is not None:
            await producer.commit_transaction()

    def _begin_steady_state(self, now_ms: int) -> None:
        load = self._load
        self._steady = ProducerStats(
            load.records - load.warmup_records,
            now_ms,
            load.interval_ms,
            self._report,
            is_steady_state=True,
        )
        self.stats.is_silent = True

    def _on_done(
        self,
        start_ms: int,
        size: int,
        steady: ProducerStats | None,
        sent: "asyncio.Future[RecordMetadata]",
    ) -> None:
        error = None if sent.cancelled() else sent.exception()
        if error is not None or sent.cancelled():
            self._on_failure(error)
            return
        now_ms = _now_ms()
        self._progress.done += 1
        self.stats.add(now_ms - start_ms, size, now_ms)
        if steady is not None:
            steady.add(now_ms - start_ms, size, now_ms)

    def _on_failure(self, error: BaseException | None) -> None:
        self._failed += 1
        if self._failed <= _FAILURES_SHOWN_MAX and isinstance(error, Exception):
            click.echo(f"a record was not delivered: {reason(error)}", err=True)

    def report_totals(self) -> None:
        self.stats.report_total(_now_ms())
        if self._steady is not None:
            self._steady.report_total(_now_ms())

    def check_all_delivered(self) -> None:
        if self._failed:
            raise ToolError(f"{self._failed} records were not delivered")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
