"""``odradek simulate``: our own workload on a simulated cluster, with faults from seeds."""

import sys
import time
from collections.abc import Coroutine
from typing import Final, NamedTuple

import click

from odradek.cli.tables import padded, print_json
from odradek.cli.tool_options import Tool
from odradek.testing.simulation.exactly_once import ExactlyOnce
from odradek.testing.simulation.schedule import KINDS
from odradek.testing.simulation.stories import FAULTS, Run, Simulation, SimulationFailedError
from odradek.testing.simulation.stories import simulate as run_story

_HEADERS: Final = ("SEED", "STORY S", "REAL S", "FAULTS", "ACKNOWLEDGED", "RESULT")
_WIDTHS: Final = (8, 8, 7, 7, 13)


@click.command(cls=Tool)
@click.option("--seeds", type=click.IntRange(1), default=20, help="How many (20).")
@click.option("--seed", type=click.IntRange(0), default=0, help="The first one (0).")
@click.option("--nodes", type=click.IntRange(1, 9), default=3, help="Brokers of the cluster (3).")
@click.option("--faults", type=click.IntRange(0), help="How many there are in a run (6).")
@click.option(
    "--kinds",
    metavar="KIND,KIND,…",
    help="Only such faults: kill, restart, pause, isolate, cut, lose-answers, slow, crash, stall.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each seed.")
def simulate(
    *, seeds: int, seed: int, nodes: int, faults: int | None, kinds: str | None, as_json: bool
) -> None:
    """Run producers and a transactional copier on simulated clusters that fail.

    The brokers and clients are the real ones; time, network and disks are not. A seed decides
    everything. The first one that fails is shown with the faults that matter, and ends the run.
    """
    wanted = KINDS if kinds is None else tuple(kinds.split(","))
    unknown = [kind for kind in wanted if kind not in KINDS]
    if unknown:
        raise click.UsageError(f"--kinds: there is no {unknown[0]!r}, but {', '.join(KINDS)}")
    runs: list[ExactlyOnce] = []
    begun = time.perf_counter()

    def story(sim: Simulation) -> Coroutine[None, None, None]:
        nonlocal begun
        begun = time.perf_counter()
        runs.append(ExactlyOnce())
        return runs[-1].story(sim)

    def show(run: Run) -> None:
        row = _Row(run, len(runs[-1].acknowledged), time.perf_counter() - begun)
        if as_json:
            print_json(row.document())
        else:
            click.echo(padded(row.cells(), _WIDTHS))

    if not as_json:
        click.echo(padded(_HEADERS, _WIDTHS))
    try:
        run_story(
            story,
            seeds=seeds,
            first=seed,
            nodes=nodes,
            faults=FAULTS if faults is None else faults,
            kinds=wanted,
            on_run=show,
        )
    except SimulationFailedError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


class _Row(NamedTuple):
    run: Run
    acknowledged: int
    real_seconds: float

    def cells(self) -> tuple[object, ...]:
        run = self.run
        result = "ok" if run.error is None else f"FAILED: {type(run.error).__name__}"
        return (
            run.seed,
            f"{run.seconds:.1f}",
            f"{self.real_seconds:.2f}",
            len(run.faults),
            self.acknowledged,
            result,
        )

    def document(self) -> dict[str, object]:
        run = self.run
        return {
            "seed": run.seed,
            "storySeconds": run.seconds,
            "realSeconds": self.real_seconds,
            "faults": [str(each) for each in run.faults],
            "acknowledged": self.acknowledged,
            "error": None if run.error is None else str(run.error),
        }
