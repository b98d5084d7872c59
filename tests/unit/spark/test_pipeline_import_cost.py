"""Who runs a broker, or asks how pipelines are run, does not pay for Spark."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS_MAX = 120
COMMAND = (sys.executable, "-X", "importtime", "-m", "odradek")


def modules_of(imports: str) -> set[str]:
    """Return what Python told of its imports: ``import time: self | total | module``."""
    lines = (line for line in imports.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip() for line in lines}


def is_spark(module: str) -> bool:
    return module.split(".")[0] in ("pyspark", "py4j") or module.startswith("odradek.spark")


def test_a_broker_starts_without_spark(tmp_path: Path) -> None:
    command = [*COMMAND, "serve", "--data-dir", str(tmp_path / "data"), "--port", "0"]
    imports = tmp_path / "imports.txt"
    with (
        imports.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert "ready on" in process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
    loaded = modules_of(imports.read_text())
    assert "odradek.broker.broker_server" in loaded
    assert not any(map(is_spark, loaded)), loaded


@pytest.mark.parametrize(
    ("arguments", "expected"), [(("--help",), False), (("validate", "nowhere.yaml"), True)]
)
def test_the_help_of_pipelines_loads_no_spark(arguments: tuple[str, ...], expected: bool) -> None:
    command = [*COMMAND, "pipeline", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    loaded = modules_of(ran.stderr)
    assert "odradek.cli.tool_options" in loaded
    assert any(map(is_spark, loaded)) is expected
