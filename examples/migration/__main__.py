"""Moves a cluster of Kafka to Odradek and back while its clients work, and judges what they saw.

    $ python -m examples.migration
    $ python -m examples.migration --nodes 1

Three nodes of Kafka, each broker and controller, serve clients of librdkafka and of ours:
idempotent and transactional producers, groups of both protocols, copiers that read and write in
transactions. Odradek's nodes join, partitions and votes move to them, and Kafka's nodes leave. Then
the same in the other direction, onto empty disks. No client is stopped or told.

At the end the checker of ``odradek.testing.anomalies`` must find nothing, and all replicas must be
the same, batch by batch. Needs Java and Maven, which fetches Kafka; ends by itself.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path

from examples.migration.journey import Journey


def main() -> int:
    parser = argparse.ArgumentParser(description="From Kafka to Odradek and back, under load.")
    parser.add_argument("--nodes", type=int, default=3, choices=(1, 2, 3), help="of each kind")
    parser.add_argument("--seed", type=int, default=1, help="decides what clients do, not when")
    options = parser.parse_args()
    # Nodes come and go: that clients lose connections is no news.
    logging.getLogger("odradek").addHandler(logging.NullHandler())
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="odradek-migration-"))
    problems = Journey(folder, options.nodes, options.seed).run()
    for problem in problems:
        print(f"WRONG: {problem}")
    if problems:
        print(f"the nodes' logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"all is well; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
