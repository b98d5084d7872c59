"""Kafka's own command-line tools, all in one JVM, pointed at a broker or at the controllers."""

from collections.abc import Sequence
from typing import Any

from tests.interop.group_members import HERE
from tests.interop.kafka_peer import resolve_jars
from tests.interop.kafka_peer.tools import MAIN_CLASSES, java_command
from tests.interop.programs.program import Program

# These want the address before their command.
_ADDRESS_FIRST = ("features", "metadata-quorum")


class KafkaTools(Program):
    def __init__(self) -> None:
        source = str(HERE / "KafkaTools.java")
        super().__init__(java_command(source, heap_mib=192, log_level="ERROR", libs=resolve_jars()))

    def run(self, tool: str, address: tuple[str, str], *arguments: str, stdin: str = "") -> str:
        """Return what a tool prints that ends well; ``address`` is an option and its value."""
        status, out, err = self.try_run(tool, address, *arguments, stdin=stdin)
        assert status == 0, f"{tool} {address} {arguments}: {status}\n{out}\n{err}"
        return out

    def try_run(
        self, tool: str, address: tuple[str, str], *arguments: str, stdin: str = ""
    ) -> tuple[int, str, str]:
        words = [*address, *arguments] if tool in _ADDRESS_FIRST else [*arguments, *address]
        return self.try_words(tool, words, stdin=stdin)

    def try_words(
        self, tool: str, words: Sequence[str], *, stdin: str = ""
    ) -> tuple[int, str, str]:
        """Run a tool with its address where it wants to have it; return status, out and err."""
        asked: dict[str, Any] = {"main": MAIN_CLASSES[tool], "arguments": [*words], "hooks": True}
        if stdin:
            asked["stdin"] = stdin
        answer: dict[str, Any] = self.ask("run", **asked)
        return answer["status"], answer["out"], answer["err"]
