"""Runs seeds: ``python -m tests.simulation.replication FIRST COUNT [--processes N] [--trace]``."""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.replication.story import tell


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    if options.trace:
        outcome = tell(options.first, trace=True)
        print(*outcome.lines, outcome.reached, outcome.failure or "well", sep="\n")
        return int(outcome.failure is not None)
    seeds = range(options.first, options.first + options.count)
    begun, failed, events = time.perf_counter(), 0, 0
    reached: dict[str, int] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for outcome in pool.map(tell, seeds, chunksize=10):
            failed += outcome.failure is not None
            events += outcome.events
            for what, count in outcome.reached.items():
                reached[what] = reached.get(what, 0) + count
            if outcome.failure is not None:
                print(f"seed {outcome.seed}: {outcome.failure}", flush=True)
    took = time.perf_counter() - begun
    speed = len(seeds) * 60 / took
    print(f"{len(seeds)} seeds, {failed} failed, {took:.1f} s: {speed:.0f} a minute")
    print(f"{events} events; reached: {dict(sorted(reached.items()))}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
