"""The commands of a recipe in docs/operations.md, run as they are printed there.

A console block has commands after ``$`` and what they print. ``…`` in what they print is anything;
a line that is only that is any number of lines. Addresses of the examples become those of the
cluster. ``serve`` and ``kill`` are left to the processes of the test.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.processes import Cluster, ClusterNode, wait_until

PAGE: Final = Path(__file__).parents[2] / "docs" / "operations.md"
COMMAND_SECONDS_MAX: Final = 180
CLEAN_ENDS: Final = (0, 128 + 15)
EXAMPLE_PORT: Final = re.compile(r"(?<=127\.0\.0\.1[: ])90\d\d\b")
EXAMPLE_PORTS: Final[Mapping[int, Mapping[str, int]]] = {
    1: {"PLAINTEXT": 9092, "CONTROLLER": 9093},
    2: {"PLAINTEXT": 9094, "CONTROLLER": 9095},
    3: {"PLAINTEXT": 9096, "CONTROLLER": 9097},
    4: {"PLAINTEXT": 9098},
}
REPEATED: Final = ("--verify", "list-endpoints", "--under-", "log-dirs", "--status", "upgrade")
"""Words of commands that are run until they print what the page says, as it tells the reader."""


class Step(NamedTuple):
    command: str
    printed: str


def steps_of(heading: str) -> list[Step]:
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    blocks = re.findall(r"^( *)```console\n(.*?)^ *```$", section, re.M | re.S)
    text = "".join(textwrap.dedent(block) for _, block in blocks)
    parts = re.split(r"^\$ ", text, flags=re.M)[1:]
    return [Step(*part.split("\n", 1)) for part in parts]


class Recipes:
    """Runs recipes on a cluster whose nodes have the ids of the examples."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder

    def run(self, heading: str) -> None:
        for step in steps_of(heading):
            self.take(step)

    def take(self, step: Step) -> None:
        if step.command.startswith("odradek serve "):
            self._node_in(step.command).restart()
        elif step.command.startswith("kill "):
            assert self._node_in(step.command).stop() in CLEAN_ENDS
        elif any(word in step.command for word in REPEATED):
            wait_until(lambda: self._prints(step), step.command, COMMAND_SECONDS_MAX)
        else:
            assert self._prints(step), step

    def _prints(self, step: Step) -> bool:
        code, said = self.output_of(step)
        is_right = re.fullmatch(_pattern(self._here(step.printed)), said) is not None
        is_right = is_right and code == 0
        if not is_right:
            print(f"{step.command}\nexit code {code}\n{said}and not\n{step.printed}")
        return is_right

    def output_of(self, step: Step) -> tuple[int, str]:
        """Run a command; return its exit code, and what it says: stderr if it fails, too."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self._here(step.command)],
            cwd=self._folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            encoding="utf-8",
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        return run.returncode, run.stdout + (run.stderr if run.returncode else "")

    def _here(self, text: str) -> str:
        """Put the addresses and files of the cluster in the place of the examples'."""
        text = EXAMPLE_PORT.sub(lambda found: str(self._ports()[int(found[0])]), text)
        for node in self._cluster.nodes.values():
            text = text.replace(f"node-{node.id}.properties", str(node.properties))
        return text

    def _ports(self) -> dict[int, int]:
        nodes = self._cluster.nodes.values()
        return {
            port: node.places[listener].port
            for node in nodes
            for listener, port in EXAMPLE_PORTS[node.id].items()
        }

    def _node_in(self, command: str) -> ClusterNode:
        found = re.search(r"(?:node-|NODE_)(\d)", command)
        assert found is not None, command
        return self._cluster.nodes[int(found[1])]


def _pattern(printed: str) -> str:
    return "".join(
        r"(.*\n)*?" if line == "…" else rf"\s*{_line_pattern(line)}\s*\n\s*"
        for line in printed.splitlines()
    )


def _line_pattern(line: str) -> str:
    return r"\s*".join(".*".join(map(re.escape, word.split("…"))) for word in line.split())
