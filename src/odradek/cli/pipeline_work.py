"""What the commands of ``odradek pipeline`` do; whoever imports this imports Spark."""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, NoReturn, Self, TypeVar

import click

from odradek.cli.tables import print_json, show
from odradek.cli.tool_options import reason
from odradek.core.errors import OdradekError
from odradek.spark import pipeline
from odradek.spark.java import NoJavaError
from odradek.spark.offsets import EARLIEST, LATEST, AtTimestamp, Everywhere
from odradek.spark.pipeline.display import JsonLines, Lines, Metrics, Terminal, farthest

T = TypeVar("T")
Observer = Callable[[Mapping[str, pipeline.QueryProgress]], None]

_NOT_SOUND: Final = 2
_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LAG_COLUMNS: Final = ("QUERY", "PARTITION", "COMMITTED", "END", "LAG")
_TOTAL_COLUMNS: Final = ("QUERY", "BATCHES", "ROWS", "BAD", "DEAD")


def validate(file: Path, *, has_plan: bool) -> None:
    definition = _loaded(file)
    if has_plan:
        _finish(lambda: pipeline.plan(definition))
    queries = ", ".join(definition.queries)
    click.echo(f"{file}: pipeline {definition.name!r} is sound: {queries}")


# Run.


def trigger(*, is_available_now: bool, is_once: bool) -> pipeline.Trigger | None:
    return pipeline.AvailableNow() if is_available_now else pipeline.Once() if is_once else None


def run(
    file: Path, trigger: pipeline.Trigger | None, *, as_json: bool, metrics_port: int | None
) -> None:
    definition = _loaded(file)
    kind = JsonLines if as_json else Terminal if sys.stdout.isatty() else Lines
    shown = kind(sys.stdout)
    observers = [*_metrics(definition.name, metrics_port), shown]

    def on_stage(text: str) -> None:
        # A table that draws over itself must know of other lines.
        if isinstance(shown, Terminal):
            shown.note(text)
        else:
            click.echo(text, err=True)

    def on_progress(progress: Mapping[str, pipeline.QueryProgress]) -> None:
        for observer in observers:
            observer(progress)

    def work() -> None:
        pipeline.run(
            definition,
            trigger=trigger,
            # Again, because Spark takes Ctrl-C for itself when it starts.
            on_session=stop.install,
            on_stage=on_stage,
            on_progress=on_progress,
            should_stop=lambda: stop.came is not None,
        )

    with Stop() as stop:
        try:
            _finish(work)
        except KeyboardInterrupt:  # the second time, or while Spark has Ctrl-C to itself
            stop.came = signal.SIGINT
    if not as_json:
        click.echo("done" if stop.came is None else "stopped; the next run goes on from here")
    if stop.came == signal.SIGINT:
        raise click.exceptions.Exit(_INTERRUPTED)


class Stop:
    """Remembers that a signal came; whoever sends a second one does not want to wait."""

    def __init__(self) -> None:
        self.came: int | None = None
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def install(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.came is not None:
            raise KeyboardInterrupt
        self.came = number

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _metrics(name: str, port: int | None) -> list[Observer]:
    """Return who is told first, if anybody: what a person sees is in the metrics already."""
    if port is None:
        return []
    try:
        metrics = Metrics(name, port)
    except OSError as error:
        _fail(f"--metrics-port {port}: {error.strerror or error}", error, 1)
    click.echo(f"metrics on http://127.0.0.1:{metrics.port}/metrics", err=True)
    return [metrics]


# Status.


def status(file: Path, *, as_json: bool) -> None:
    definition = _loaded(file)
    found = _finish(lambda: pipeline.status(definition))
    if as_json:
        print_json(_status_json(found))
        return
    state = "running" if found.is_running else "not running"
    click.echo(f"pipeline {found.name}, epoch {found.epoch.number}, {state}")
    for name, folder in found.folders.items():
        click.echo(f"  {name}: files in {folder}")
    _print_columns(_LAG_COLUMNS, _lag_rows(found))
    _print_totals(found)


def _lag_rows(found: pipeline.Status) -> list[tuple[object, ...]]:
    return [
        (query, str(partition), each.committed, each.end, each.lag)
        for query, partitions in found.queries.items()
        for partition, each in partitions.items()
    ]


def _status_json(found: pipeline.Status) -> dict[str, object]:
    names = [name.lower() for name in _LAG_COLUMNS]
    return {
        "name": found.name,
        "epoch": found.epoch.number,
        "running": found.is_running,
        "folders": dict(found.folders),
        "partitions": [dict(zip(names, row, strict=True)) for row in _lag_rows(found)],
        "totals": {query: each.as_json() for query, each in found.totals.items()},
    }


def _print_totals(found: pipeline.Status) -> None:
    if not any(each.batches for each in found.totals.values()):
        return
    click.echo(f"since epoch {found.epoch.number} began:")
    rows = [
        (query, each.batches, each.input_rows, each.bad_rows, each.dead_letters)
        for query, each in found.totals.items()
    ]
    _print_columns(_TOTAL_COLUMNS, rows)
    for name, count in farthest(found.totals.values()).items():
        click.echo(f"  expectation '{name}': {count.failed} of {count.rows} rows failed")
    for query, each in found.totals.items():
        if each.uncounted_batches:
            told = "not counted: the driver was killed too soon"
            click.echo(f"  {query}: {each.uncounted_batches} more batches are {told}")


# Reset.


def target(to_offset: int | None, to_datetime: str | None, *, is_earliest: bool) -> pipeline.Target:
    if to_offset is not None:
        return pipeline.ToOffset(to_offset)
    if to_datetime is not None:
        return AtTimestamp(_moment_ms(to_datetime), or_latest=True)
    return Everywhere(EARLIEST if is_earliest else LATEST)


def reset(file: Path, target: pipeline.Target) -> None:
    definition = _loaded(file)
    epoch, folders = _finish(lambda: pipeline.reset(definition, target))
    click.echo(f"pipeline {definition.name} begins epoch {epoch.number} at")
    for partition, offset in sorted((epoch.offsets or {}).items()):
        click.echo(f"  {partition} {offset}")
    click.echo("Topics keep what is there, and get the records of the new epoch behind it.")
    for name, folder in folders.items():
        click.echo(f"Files of {name} go to {folder}; the old ones stay where they are.")


def _moment_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(
            f"--to-datetime: {text!r} is not like 2026-01-31T12:00:00Z"
        ) from error
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(zoned.timestamp() * 1000)


# What all have in common.


def _loaded(file: Path) -> pipeline.Definition:
    return _finish(lambda: pipeline.load(file))


def _finish(work: Callable[[], T]) -> T:
    """Do it; what goes wrong is told in as many lines as it has, and no more."""
    try:
        return work()
    except pipeline.DefinitionError as error:
        _fail(str(error), error, _NOT_SOUND)
    except (pipeline.PipelineError, pipeline.CheckpointError, NoJavaError, ValueError) as error:
        _fail(str(error), error, 1)
    except (OdradekError, OSError) as error:
        _fail(reason(error), error, 1)


def _fail(message: str, error: Exception, code: int) -> NoReturn:
    click.echo(message, err=True)
    raise click.exceptions.Exit(code) from error


def _print_columns(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [tuple(headers), *(tuple(map(show, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        texts = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        click.echo("  ".join(texts).rstrip())
