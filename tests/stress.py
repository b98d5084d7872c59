"""Run a command while processes under it are paused at random: what only holds by luck breaks.

``python -m tests.stress --seed 1 -- python -m pytest -q tests/interop``: every now and then one of
the processes that the command started, or the command itself, stands still for a while, as on a
machine that swaps or has too much to do. A test that fails then, and not otherwise, trusts in the
order of two things that nobody ordered, or in a time limit that is too short.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path


def descendants(root: int) -> list[int]:
    """Return the processes that live under one, itself included."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


def pause(pid: int, seconds: float) -> None:
    with suppress(ProcessLookupError):  # it has ended
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:  # whoever interrupts this leaves nobody standing
            os.kill(pid, signal.SIGCONT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--every", type=float, default=1.0, help="seconds between pauses, mean")
    parser.add_argument("--longest", type=float, default=1.5, help="seconds of a pause")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    chance = random.Random(options.seed)
    with subprocess.Popen(options.command) as process:
        while process.poll() is None:
            time.sleep(chance.expovariate(1 / options.every))
            pause(chance.choice(descendants(process.pid)), chance.uniform(0, options.longest))
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
