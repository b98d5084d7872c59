"""Our tool and Kafka's, asked the same of the same cluster: what they print must be the same."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from odradek.cli.main import main
from tests.interop.kafka_peer.tools import MAIN_CLASSES
from tests.interop.programs.program import Program

# Tools that want the server before a command, and one that wants it after.
BEFORE_COMMAND = ("features", "metadata-quorum", "transactions")
JAVA_ERROR = re.compile(
    r"(java\.util\.concurrent\.\w+: )?org\.apache\.kafka\.common\.errors\.\w+: "
)


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

    def ours(self, tool: str, *arguments: str | Path) -> Printed:
        result = CliRunner().invoke(main, [tool, *self._asked(tool, arguments)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Printed(result.exit_code, result.stdout, result.stderr)

    def kafkas(self, tool: str, *arguments: str | Path) -> Printed:
        asked = self._asked(tool, arguments)
        answer: dict[str, Any] = self._program.ask("run", main=MAIN_CLASSES[tool], arguments=asked)
        return Printed(answer["status"], answer["out"], answer["err"])

    def compare(self, tool: str, *arguments: str | Path, is_ordered: bool = True) -> list[str]:
        """Return the lines that both print; ``is_ordered`` is False where Kafka's order is none."""
        ours = self.ours(tool, *arguments).lines
        kafkas = self.kafkas(tool, *arguments).lines
        if not is_ordered:
            ours, kafkas = sorted(ours), sorted(kafkas)
        assert ours == kafkas
        return ours

    def _asked(self, tool: str, arguments: tuple[str | Path, ...]) -> list[str]:
        server = ["--bootstrap-server", self.servers]
        given = list(map(str, arguments))
        return [*given, *server] if tool == "cluster" else [*server, *given]
