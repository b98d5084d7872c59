"""``odradek pipeline``: checks and runs pipelines on Spark, shows how far they are, begins anew.

Spark is an extra of its own, so it is imported when a command is called: ``pip install
odradek[spark]``. Exit codes: 0, 1 if something failed, 2 if the file is not sound.
"""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from odradek.cli.tables import print_json, show
from odradek.cli.tool_options import ToolGroup, check_one_action, reason
from odradek.core.errors import OdradekError

_FILE: Final = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_NOT_SOUND: Final = 2
_SIGNAL_EXIT_CODE: Final = 128


@click.group(cls=ToolGroup)
def pipeline() -> None:
    """Check, run, watch and reset pipelines on Spark."""


@pipeline.command()
@_FILE
@click.option("--plan", is_flag=True, help="Have Spark look at it too: takes a few seconds.")
def validate(file: Path, plan: bool) -> None:
    """Say what is wrong with the file of a pipeline, with line and field."""
    spark = _spark()
    definition = _loaded(spark, file)
    if plan:
        _finish(lambda: spark.plan(definition), spark)
    sinks = ", ".join(definition.queries)
    click.echo(f"{file}: pipeline {definition.name!r} is sound: {sinks}")


@pipeline.command()
@_FILE
@click.option("--available-now", is_flag=True, help="Process what is there, then end.")
@click.option("--once", is_flag=True, help="Process what is there in one batch, then end.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each batch.")
@click.option("--metrics-port", type=int, help="Serve Prometheus metrics on 127.0.0.1.")
def run(
    file: Path, available_now: bool, once: bool, as_json: bool, metrics_port: int | None
) -> None:
    """Run a pipeline until it ends, or until Ctrl-C."""
    spark = _spark()
    definition = _loaded(spark, file)
    if available_now and once:
        raise click.UsageError("--available-now does not go with --once")
    trigger = spark.AvailableNow() if available_now else spark.Once() if once else None
    observers = _observers(definition.name, as_json, metrics_port)
    stopped_by: list[int] = []

    def on_progress(progress: Mapping[str, Any]) -> None:
        for observer in observers:
            observer(progress)

    def work() -> None:
        spark.run(
            definition,
            trigger=trigger,
            # Not before: Spark takes Ctrl-C for itself when it starts.
            on_start=lambda: _stop_on_signals(stopped_by),
            on_progress=on_progress,
            should_stop=lambda: bool(stopped_by),
        )

    _finish(work, spark)
    if not as_json:
        click.echo("stopped; the next start goes on from here" if stopped_by else "done")
    if stopped_by:
        raise click.exceptions.Exit(_SIGNAL_EXIT_CODE + stopped_by[0])


@pipeline.command()
@_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(file: Path, as_json: bool) -> None:
    """Show how far a pipeline is, whether it runs or not."""
    spark = _spark()
    definition = _loaded(spark, file)
    found = _finish(lambda: spark.status(definition), spark)
    rows = [
        (query, str(partition), each.committed, each.end, each.lag)
        for query, partitions in found.queries.items()
        for partition, each in partitions.items()
    ]
    if as_json:
        names = ("query", "partition", "committed", "end", "lag")
        print_json(
            {
                "name": found.name,
                "epoch": found.epoch.number,
                "running": found.is_running,
                "folders": dict(found.folders),
                "partitions": [dict(zip(names, row, strict=True)) for row in rows],
            }
        )
        return
    state = "running" if found.is_running else "not running"
    click.echo(f"pipeline {found.name}, epoch {found.epoch.number}, {state}")
    for name, folder in found.folders.items():
        click.echo(f"  {name}: files in {folder}")
    _print_columns(("QUERY", "PARTITION", "COMMITTED", "END", "LAG"), rows)


@pipeline.command()
@_FILE
@click.option("--to-earliest", is_flag=True, help="Begin with the first record there is.")
@click.option("--to-latest", is_flag=True, help="Begin with the next record that comes.")
@click.option("--to-offset", type=click.IntRange(min=0), help="Begin there in every partition.")
@click.option("--to-datetime", help="Begin at a time: 2026-01-31T12:00:00Z; UTC without a zone.")
def reset(
    file: Path,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
) -> None:
    """Make the next start begin elsewhere, with nothing of what it knew."""
    check_one_action(
        {
            "--to-earliest": to_earliest,
            "--to-latest": to_latest,
            "--to-offset": to_offset is not None,
            "--to-datetime": to_datetime is not None,
        }
    )
    spark = _spark()
    definition = _loaded(spark, file)
    offsets = import_module("odradek.spark.offsets")
    if to_offset is not None:
        target = spark.ToOffset(to_offset)
    elif to_datetime is not None:
        target = offsets.AtTimestamp(_moment_ms(to_datetime), or_latest=True)
    else:
        target = offsets.Everywhere(offsets.EARLIEST if to_earliest else offsets.LATEST)
    epoch, folders = _finish(lambda: spark.reset(definition, target), spark)
    click.echo(f"pipeline {definition.name} begins epoch {epoch.number} at")
    for partition, offset in sorted(epoch.offsets.items()):
        click.echo(f"  {partition} {offset}")
    click.echo("Topics keep what is there, and get the records of the new epoch behind it.")
    for name, folder in folders.items():
        click.echo(f"Files of {name} go to {folder}; the old ones stay where they are.")


def _spark() -> Any:
    try:
        return import_module("odradek.spark.pipeline")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("odradek"):
            raise
        click.echo(f"{error}: pipelines need odradek[spark]", err=True)
        raise click.exceptions.Exit(1) from error


def _loaded(spark: Any, file: Path) -> Any:
    return _finish(lambda: spark.load(file), spark)


def _finish(work: Callable[[], Any], spark: Any) -> Any:
    """Do it; what goes wrong is told in as many lines as it has, and no more."""
    try:
        return work()
    except spark.DefinitionError as error:
        _fail(str(error), error, _NOT_SOUND)
    except (spark.PipelineError, spark.CheckpointError, ValueError) as error:
        _fail(str(error), error, 1)
    except (OdradekError, OSError) as error:
        _fail(reason(error), error, 1)


def _fail(message: str, error: Exception, code: int) -> NoReturn:
    click.echo(message, err=True)
    raise click.exceptions.Exit(code) from error


def _observers(
    name: str, as_json: bool, metrics_port: int | None
) -> list[Callable[[Mapping[str, Any]], None]]:
    display = import_module("odradek.spark.pipeline.display")
    kind = (
        display.JsonLines if as_json else display.Terminal if sys.stdout.isatty() else display.Lines
    )
    observers = [kind(sys.stdout)]
    if metrics_port is not None:
        try:
            observers.append(display.Metrics(name, metrics_port))
        except OSError as error:
            _fail(f"--metrics-port {metrics_port}: {error}", error, 1)
    return observers


def _stop_on_signals(came: list[int]) -> None:
    """Put signals into a list when they come; a second one is not waited for."""

    def on_signal(number: int, _: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def _moment_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(
            f"--to-datetime: {text!r} is not like 2026-01-31T12:00:00Z"
        ) from error
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)


def _print_columns(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [tuple(headers), *(tuple(map(show, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        texts = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        click.echo("  ".join(texts).rstrip())
