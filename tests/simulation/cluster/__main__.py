"""Runs seeds: ``python -m tests.simulation.cluster FIRST COUNT [--processes N]``.

With ``--trace`` one seed is run and its lines are printed; ``--schedule FILE`` replaces its faults.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.simulation.cluster.faults import parse_schedule
from tests.simulation.cluster.story import Outcome, tell


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--shape")
    parser.add_argument("--level", default="nodes")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--schedule", type=Path)
    options = parser.parse_args()
    if options.trace or options.schedule:
        schedule = options.schedule and parse_schedule(options.schedule.read_text())
        outcome = tell(options.first, shape=options.shape, schedule=schedule, level=options.level)
        print(outcome.describe(with_lines=options.trace))
        return int(outcome.failure is not None)
    seeds = range(options.first, options.first + options.count)
    run = partial(tell, shape=options.shape, level=options.level)
    return run_many(run, seeds, options.processes)


def run_many(run: Callable[[int], Outcome], seeds: range, processes: int) -> int:
    begun, failed, events = time.perf_counter(), 0, 0
    reached: dict[str, int] = {}
    gc.freeze()  # modules are no garbage: collections after each seed need not look at them
    with ProcessPoolExecutor(processes) as pool:
        for outcome in pool.map(run, seeds, chunksize=4):
            failed += outcome.failure is not None
            events += outcome.events
            for what, count in outcome.reached.items():
                reached[what] = reached.get(what, 0) + count
            if outcome.failure is not None:
                print(outcome.describe(), flush=True)
    took = time.perf_counter() - begun
    print(f"{len(seeds)} seeds, {failed} failed, {took:.1f} s: {took / len(seeds):.2f} s each")
    print(f"{events} trace lines; reached: {dict(sorted(reached.items()))}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
