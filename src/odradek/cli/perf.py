"""``odradek perf``: measurements that Kafka has no script for.

``perf partitions`` answers how many partitions a topic should have, on the cluster at hand: the
way is the usual one, producer-perf-test and consumer-perf-test for each number, done in one go.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import click

from odradek.cli.client_options import FILE
from odradek.cli.partition_sweep import ClientSettings, Measured, Sweep, run_sweep
from odradek.cli.progress import Progress
from odradek.cli.running import run_until_stopped
from odradek.cli.sweep_plot import can_draw, draw_png
from odradek.cli.tables import json_object, print_json
from odradek.cli.text_plot import bar_chart
from odradek.cli.tool_options import Server, ToolGroup, server_options
from odradek.client.admin.admin import SETTINGS as ADMIN_SETTINGS
from odradek.client.consumer.settings import DEFINITIONS as CONSUMER_SETTINGS
from odradek.client.producer.settings import DEFINITIONS as PRODUCER_SETTINGS

_PARTITIONS_MAX: Final = 10_000
_STEPS_MAX: Final = 100
_PREFIX_NUMBERS: Final = 1_000_000


@click.group(cls=ToolGroup)
def perf() -> None:
    """Measure a cluster."""


def _counts(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    parts = text.split(",")
    if not all(each.strip().isdigit() for each in parts) or len(parts) > _STEPS_MAX:
        raise click.BadParameter(f"{text!r} is not a list like 1,2,4")
    counts = [int(each) for each in parts]
    if not all(1 <= each <= _PARTITIONS_MAX for each in counts):
        raise click.BadParameter(f"numbers of partitions go from 1 to {_PARTITIONS_MAX}")
    return list(dict.fromkeys(counts))


@perf.command()
@server_options()
@click.option(
    "--partitions",
    callback=_counts,
    default="1,2,4,8,16,32",
    show_default=True,
    metavar="N,N,…",
    help="The numbers to try.",
)
@click.option("--num-records", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--record-size", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--replication-factor", type=click.IntRange(1), default=1, show_default=True)
@click.option("--topic-prefix", help="Topics are PREFIX-1, PREFIX-2, …; one of its own.")
@click.option("--keep-topics", is_flag=True, help="Do not delete them afterwards.")
@click.option(
    "--timeout", type=click.IntRange(1), default=30_000, show_default=True, help="In ms, to read."
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON instead of a plot.")
@click.option(
    "--plot",
    "--png",
    type=FILE,
    metavar="FILE.png",
    help="Draw the plot into a file too: pip install 'odradek[plot]'.",
)
def partitions(
    server: Server,
    partitions: list[int],
    topic_prefix: str | None,
    is_json: bool,
    plot: Path | None,
    **options: Any,
) -> None:
    """Measure how fast topics of more and more partitions are written and read.

    Settings of the client (acks, batch.size, …) come with --command-property.
    """
    if plot is not None and not can_draw():
        raise click.UsageError("--plot needs matplotlib: pip install 'odradek[plot]'")
    number = Random().randrange(_PREFIX_NUMBERS)  # noqa: S311  # it only has to differ
    sweep = Sweep(
        partitions,
        options["num_records"],
        options["record_size"],
        options["replication_factor"],
        topic_prefix or f"perf-partitions-{number}",
        options["keep_topics"],
        options["timeout"] / 1000,
    )
    found: list[Measured] = []

    async def work() -> None:
        async with Progress("", sweep.records_in_all) as progress:
            found.extend(await run_sweep(sweep, _settings(server), progress))

    run_until_stopped(work())
    if is_json:
        print_json([json_object(each._asdict()) for each in found])
    else:
        print_plot(found)
    if plot is not None:
        title = f"{sweep.records:,} records of {sweep.record_size:,} bytes, one client each way"
        draw_png(found, title, plot)


def _settings(server: Server) -> ClientSettings:
    kinds = (ADMIN_SETTINGS, PRODUCER_SETTINGS, CONSUMER_SETTINGS)
    known = server.known({name: each for kind in kinds for name, each in kind.items()})
    return ClientSettings(*({n: v for n, v in known.items() if n in kind} for kind in kinds))


def print_plot(found: Sequence[Measured]) -> None:
    charts = (
        ("producer, MB/sec by partitions", [each.producer_mb_sec for each in found]),
        ("consumer, MB/sec by partitions", [each.consumer_mb_sec for each in found]),
    )
    labels = [str(each.partitions) for each in found]
    for title, values in charts:
        for line in ("", *bar_chart(title, dict(zip(labels, values, strict=True)))):
            click.echo(line)
