"""Kafka's own command-line tools, all in one JVM, pointed at a broker or at the controllers."""

from collections.abc import Sequence

from tests.interop.tool_program import ToolProgram

# These want the address before their command.
_ADDRESS_FIRST = ("features", "metadata-quorum")


class KafkaTools(ToolProgram):
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
        ran = self.tool(tool, *words, stdin=stdin or None, check=False)
        return ran.returncode, ran.stdout, ran.stderr
