"""``python -m fuzz --runs N``: damage valid bytes and see that every decoder refuses or decodes.

The target ``node`` is a running broker that gets valid requests of every API and version.

Prints one line per target with the seed and the figures. A finding is saved under
``fuzz/findings`` as a line of corpus (those of the node are printed), and the exit code is 1.
"""

import argparse
import resource
import sys
from pathlib import Path

from fuzz.session import Session
from fuzz.targets import TARGETS

NODE = "node"
ADDRESS_SPACE_SLACK_BYTES = 2 << 30
"""More than any input needs; an allocation on an attacker's word becomes a MemoryError."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="inputs per target")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same inputs")
    parser.add_argument("--node-requests", type=int, default=50_000, help="requests to the node")
    parser.add_argument("--target", choices=[*TARGETS, NODE, "all"], default="all")
    arguments = parser.parse_args()
    failed = False
    if arguments.target in (NODE, "all"):  # first: the others limit the address space
        failed |= fuzz_node(arguments.node_requests, arguments.seed)
    for name in TARGETS if arguments.target == "all" else {arguments.target} - {NODE}:
        session = Session(TARGETS[name](), arguments.seed)
        limit_address_space()
        report = session.run(arguments.runs)
        print(report)
        for kind, path in report.findings.items():
            print(f"  {kind}: {path}")
        failed |= report.failed
    return 1 if failed else 0


def fuzz_node(requests: int, seed: int) -> bool:
    from fuzz.node_session import NodeSession  # a broker and all that belongs to it

    report = NodeSession(seed).run(requests)
    print(report)
    for kind, text in report.findings.items():
        print(f"  {kind}: {text}")
    return report.failed


def limit_address_space() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE_SLACK_BYTES, hard))


if __name__ == "__main__":
    sys.exit(main())
