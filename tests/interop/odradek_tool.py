"""Our command-line tools as processes, run as ``kafka_tool`` runs Kafka's."""

import subprocess
import sys
from pathlib import Path

TOOL_SECONDS_MAX = 180
COMMAND = str(Path(sys.executable).with_name("odradek"))


def odradek_tool(
    name: str, *arguments: str | Path, stdin: str | bytes | None = None, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    """Run ``odradek name arguments…``; ``check`` wants exit code 0."""
    text = stdin.encode() if isinstance(stdin, str) else stdin
    run = subprocess.run(
        [COMMAND, *name.split(), *map(str, arguments)],
        input=text or b"",
        capture_output=True,
        timeout=TOOL_SECONDS_MAX,
        check=False,
    )
    out, err = (each.decode("utf-8", "replace") for each in (run.stdout, run.stderr))
    if check:
        assert run.returncode == 0, err
    return subprocess.CompletedProcess(run.args, run.returncode, out, err)
