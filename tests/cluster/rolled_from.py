"""Nodes of an earlier commit are replaced by this version one by one, under load.

    python -m tests.cluster.rolled_from COMMIT

The first node goes to this version, back, and to this version again. Fails if a write of a producer
with acks=all fails, if a record is lost or doubled, or if replicas differ in the end. Needs the
history of the repository; the earlier code runs with the packages of today, without its compiled
parts.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.flavours import Odradek
from tests.cluster.processes import COMBINED, Cluster
from tests.cluster.recipes import Recipes
from tests.cluster.test_operations import CONFIGS, TOPIC, load, restart

ROOT: Final = Path(__file__).parents[2]
MAIN: Final = "from odradek.cli.main import main; main()"


class Checkout(Odradek):
    """The code of a commit, unpacked into a folder."""

    name = "checkout"

    def __init__(self, commit: str, folder: Path) -> None:
        archive = ["git", "-C", str(ROOT), "archive", commit, "src"]
        packed = subprocess.run(archive, check=True, capture_output=True).stdout
        folder.mkdir()
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
        self._command = ["env", f"PYTHONPATH={folder / 'src'}", sys.executable, "-c", MAIN]

    def format(self, properties: Path, arguments: Sequence[str]) -> None:
        words = ["storage", "format", "-c", str(properties), *arguments]
        subprocess.run([*self._command, *words], check=True, capture_output=True)

    def command(self, properties: Path) -> list[str]:
        return [*self._command, "serve", str(properties)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Roll a cluster from a commit to this version.")
    parser.add_argument("commit")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        older, newer = Checkout(options.commit, folder / "older"), Odradek()
        with Cluster(folder / "nodes", COMBINED, older, configs=CONFIGS, is_relayed=False) as made:
            made.start()
            recipes = Recipes(made, folder)
            first, second, third = made.brokers
            with load(made, TOPIC) as writers:
                for node, version in (
                    *((first, newer), (first, older), (first, newer)),
                    *((second, newer), (third, newer)),
                ):
                    restart(recipes, writers, node, version)
                    kind = "this version" if version is newer else options.commit
                    print(f"node {node.id} runs {kind}", flush=True)
        slowest = max(each.slowest_seconds for each in writers)
        written = sum(each.acknowledged for each in writers)
        print(f"{written} records written, none failed, the slowest took {slowest:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
