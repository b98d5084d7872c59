"""Our tool and Kafka's, asked the same of the same cluster: what they print must be the same."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from odradek.cli.main import main
from tests.interop.kafka_peer.tools import MAIN_CLASSES
from tests.interop.programs.program import Program

# Tools that want the server before a command, and one that wants it after.
BEFORE_COMMAND = ("features", "metadata-quorum", "transactions")
OFFLINE = ("dump-log", "storage")
JAVA_ERROR = re.compile(
    r"(java\.util\.concurrent\.\w+: )?org\.apache\.kafka\.common\.errors\.\w+: "
)


CONDITION_SECONDS_MAX = 120


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + CONDITION_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Printed(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Stdout without the names of Java's errors."""
        return JAVA_ERROR.sub("", self.out).splitlines()


class ToolPair:
    def __init__(self, program: Program, servers: str) -> None:
        self._program = program
        self.servers = servers

    def ours(self, tool: str, *arguments: str | Path, stdin: str | None = None) -> Printed:
        result = CliRunner().invoke(main, [tool, *self._asked(tool, arguments)], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Printed(result.exit_code, result.stdout, result.stderr)

    def kafkas(
        self, tool: str, *arguments: str | Path, stdin: str | None = None, hooks: bool = False
    ) -> Printed:
        """Run Kafka's; ``hooks`` for those that are not done before their JVM ends."""
        asked: dict[str, Any] = {"main": MAIN_CLASSES[tool]}
        asked["arguments"] = self._asked(tool, arguments)
        if stdin is not None:
            asked["stdin"] = stdin
        if hooks:
            asked["hooks"] = True
        answer: dict[str, Any] = self._program.ask("run", **asked)
        return Printed(answer["status"], answer["out"], answer["err"])

    def compare(self, tool: str, *arguments: str | Path, is_ordered: bool = True) -> list[str]:
        """Return the lines that both print; ``is_ordered`` is False where Kafka's order is none."""
        ours = self.ours(tool, *arguments).lines
        kafkas = self.kafkas(tool, *arguments).lines
        if not is_ordered:
            ours, kafkas = sorted(ours), sorted(kafkas)
        assert ours == kafkas
        return ours

    def wait_for_topics(self, *names: str, partitions: int = 1) -> None:
        """Wait until the broker knows what the controller did: tools ask it, and it may be late."""
        wait_until(lambda: all(self._partitions(name) == partitions for name in names))

    def wait_until_gone(self, *names: str) -> None:
        wait_until(lambda: all(self._partitions(name) == 0 for name in names))

    def _partitions(self, topic: str) -> int:
        asked = ("--describe", "--topic", topic, "--if-exists", "--json")
        described = json.loads(self.ours("topics", *asked).out)
        return sum(len(each["partitions"]) for each in described)

    def _asked(self, tool: str, arguments: tuple[str | Path, ...]) -> list[str]:
        server = ["--bootstrap-server", self.servers]
        given = list(map(str, arguments))
        if tool in OFFLINE:
            return given
        return [*given, *server] if tool == "cluster" else [*server, *given]
