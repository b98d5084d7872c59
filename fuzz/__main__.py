"""``python -m fuzz --runs N``: damage valid bytes and see that every decoder refuses or decodes.

Prints one line per target with the seed and the figures. A finding is saved under
``fuzz/findings`` as a line of corpus, and the exit code is 1.
"""

import argparse
import resource
import sys
from pathlib import Path

from fuzz.session import Session
from fuzz.targets import TARGETS

ADDRESS_SPACE_SLACK_BYTES = 2 << 30
"""More than any input needs; an allocation on an attacker's word becomes a MemoryError."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="inputs per target")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same inputs")
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    arguments = parser.parse_args()
    names = list(TARGETS) if arguments.target == "all" else [arguments.target]
    failed = False
    for name in names:
        session = Session(TARGETS[name](), arguments.seed)
        limit_address_space()
        report = session.run(arguments.runs)
        print(report)
        for kind, path in report.findings.items():
            print(f"  {kind}: {path}")
        failed |= report.failed
    return 1 if failed else 0


def limit_address_space() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE_SLACK_BYTES, hard))


if __name__ == "__main__":
    sys.exit(main())
