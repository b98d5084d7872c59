"""Kafka's command-line tools, unmodified, one after another in one JVM."""

from pathlib import Path
from typing import Any

from tests.interop.kafka_peer import MAIN_CLASSES, resolve_jars
from tests.interop.kafka_peer.tools import ToolRun, java_command
from tests.interop.programs.program import Program


class ToolProgram(Program):
    """For what is asked of a tool; `kafka_tool` runs one as its script does."""

    def __init__(self) -> None:
        source = str(Path(__file__).with_name("KafkaTools.java"))
        super().__init__(java_command(source, heap_mib=192, log_level="ERROR", libs=resolve_jars()))

    def tool(
        self, name: str, *arguments: str | Path, stdin: str | None = None, check: bool = True
    ) -> ToolRun:
        """Run `kafka-<name>.sh arguments...`, and what it leaves to the end of its JVM."""
        words = list(map(str, arguments))
        asked: dict[str, Any] = {"main": MAIN_CLASSES[name], "arguments": words, "hooks": True}
        if stdin is not None:
            asked["stdin"] = stdin
        answer = self.ask("run", **asked)
        ran = ToolRun([name, *words], answer["status"], answer["out"], answer["err"])
        assert not check or ran.returncode == 0, ran
        return ran
