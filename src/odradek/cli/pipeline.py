"""``odradek pipeline``: checks and runs pipelines on Spark, shows how far they are, begins anew.

Spark is an extra of its own and slow to import, so ``pipeline_work`` is loaded when a command is
called: ``pip install odradek[spark]``. Exit codes: 0, 1 if something failed, 2 if the file is not
sound; ``run`` ends with 0 on SIGTERM, as ``serve`` does, and with 130 on Ctrl-C, as all tools do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from odradek.cli.tool_options import ToolGroup, check_one_action

_FILE: Final = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.group(cls=ToolGroup)
def pipeline() -> None:
    """Check, run, watch and reset pipelines on Spark."""


@pipeline.command()
@_FILE
@click.option("--plan", is_flag=True, help="Have Spark look at it too: takes a few seconds.")
def validate(file: Path, plan: bool) -> None:
    """Say what is wrong with the file of a pipeline, with line and field."""
    with _spark_extra():
        from odradek.cli import pipeline_work
    pipeline_work.validate(file, has_plan=plan)


@pipeline.command()
@_FILE
@click.option("--available-now", is_flag=True, help="Process what is there, then end.")
@click.option("--once", is_flag=True, help="Process what is there in one batch, then end.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each batch.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve Prometheus metrics on 127.0.0.1; 0 picks a port.",
)
def run(
    file: Path, available_now: bool, once: bool, as_json: bool, metrics_port: int | None
) -> None:
    """Run a pipeline until it ends, or until Ctrl-C or SIGTERM; the next run goes on from there."""
    if available_now and once:
        raise click.UsageError("--available-now does not go with --once")
    with _spark_extra():
        from odradek.cli import pipeline_work
    trigger = pipeline_work.trigger(is_available_now=available_now, is_once=once)
    pipeline_work.run(file, trigger, as_json=as_json, metrics_port=metrics_port)


@pipeline.command()
@_FILE
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(file: Path, as_json: bool) -> None:
    """Show how far a pipeline is and what it has counted, whether it runs or not."""
    with _spark_extra():
        from odradek.cli import pipeline_work
    pipeline_work.status(file, as_json=as_json)


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
    with _spark_extra():
        from odradek.cli import pipeline_work
    target = pipeline_work.target(to_offset, to_datetime, is_earliest=to_earliest)
    pipeline_work.reset(file, target)


@contextmanager
def _spark_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("odradek"):
            raise
        click.echo(f"{error}: pipelines need odradek[spark]", err=True)
        raise click.exceptions.Exit(1) from error
