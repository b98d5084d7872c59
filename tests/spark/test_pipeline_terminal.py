"""What a user of ``odradek pipeline run`` sees on a terminal, and Prometheus over HTTP."""

import json
import os
import re
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.testing.broker import Broker
from tests.readable import is_readable
from tests.spark.pipeline_files import COMMAND, kill_group, send, start_run, write_definition

pytestmark = pytest.mark.slow

SECONDS_MAX = 400
COLUMNS = 100
BATCH = 8
RECORDS = 1000 * BATCH
"""More than can be done, one batch in a second, as long as the test may take: there is a lag."""
TEXT = f"""
source: {{topics: [numbers], format: json, schema: "n INT", records_per_batch_max: {BATCH}}}
steps:
  - {{name: numbers, sql: SELECT value.n AS n FROM source}}
expectations:
  - {{name: small, step: numbers, expect: n < 100, otherwise: quarantine}}
sinks:
  - {{name: files, format: json, path: out}}
dead_letters: {{topic: dead}}
spark: {{master: "local[2,4]"}}
"""
HEADER = ["QUERY", "BATCH", "ROWS", "IN/S", "DONE/S", "BATCH", "MS", "LAG", "BAD", "DEAD"]
# A session of its own is not enough for Ctrl-C: the terminal has to be the one of the session.
IN_A_TERMINAL = """
import os, sys
stderr = os.dup(2)
os.login_tty(int(sys.argv[1]))
os.dup2(stderr, 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Screen:
    """A terminal, and the frames that were drawn on it."""

    def __init__(self) -> None:
        self._master, self.slave = os.openpty()
        termios.tcsetwinsize(self._master, (24, COLUMNS))
        self._text = ""

    def frames(self) -> list[list[str]]:
        """Return the lines of each whole frame."""
        drawn = self._text.split("\x1b[J")[:-1]
        return [re.findall(r"\x1b\[2K([^\r\n]*)\r\n", each) for each in drawn]

    def wait_for_a_frame(self, is_wanted: Callable[[list[str]], bool]) -> list[str]:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            for frame in self.frames():
                if is_wanted(frame):
                    return frame
            assert time.monotonic() < deadline, self._text[-3000:]
            if is_readable(self._master, 1):
                part = self._read()
                assert part, f"it ended: {self._text[-3000:]}"
                self._text += part

    def interrupt(self) -> str:
        """Press Ctrl-C, and return all that was written when nobody is there any more."""
        os.write(self._master, b"\x03")
        while part := self._read():
            self._text += part
        os.close(self._master)
        return self._text

    def _read(self) -> str:
        try:
            return os.read(self._master, 65536).decode()
        except OSError:  # EIO: nobody has the other end
            return ""


def rows(frame: list[str]) -> dict[str, dict[str, int]]:
    """Return the numbers of each query that has had a batch, by the names of their columns."""
    found = {}
    for line in frame[1:]:
        query, *cells = line.split()
        if not line.startswith(" ") and cells[0] != "-":
            names = ("batch", "rows", "in", "done", "ms", "lag", "bad", "dead")
            found[query] = dict(zip(names, map(int, cells), strict=True))
    return found


def is_of_both(frame: list[str]) -> bool:
    return rows(frame).keys() == {"files", "dead_letters"}


def check_frame(frame: list[str]) -> None:
    assert frame[0].split() == HEADER
    assert all(len(line) < COLUMNS for line in frame)
    files, dead = rows(frame)["files"], rows(frame)["dead_letters"]
    assert files["rows"] == BATCH * (files["batch"] + 1)
    assert dead["rows"] == BATCH * (dead["batch"] + 1)
    assert (files["bad"], files["dead"], dead["bad"], dead["dead"]) == (2, 0, 0, 2)
    assert min(files["ms"], files["lag"], dead["lag"]) > 0
    assert f"  expectation 'small': 1 of {files['rows'] - 1} rows failed" in frame
    assert f"  files: numbers-0 lag {files['lag']}" in frame
    assert f"  dead_letters: numbers-0 lag {dead['lag']}" in frame


def check_metrics(errors: Path) -> None:
    found = re.search(r"metrics on (http://127\.0\.0\.1:\d+/metrics)", errors.read_text())
    assert found is not None, errors.read_text()
    with urlopen(found[1], timeout=SECONDS_MAX) as answer:
        text = answer.read().decode()
    told = dict(re.findall(r"^odradek_pipeline_(\S+) (\S+)$", text, re.MULTILINE))
    query = 'pipeline="p",query="files"'
    assert float(told[f"input_rows{{{query}}}"]) >= BATCH
    assert float(told[f"corrupt_records{{{query}}}"]) == 1
    assert float(told[f'lag_records{{partition="0",{query},topic="numbers"}}']) > 0
    assert float(told[f'expectation_failures{{expectation="small",{query}}}']) == 1
    assert float(told['dead_letters{pipeline="p",query="dead_letters"}']) == 2


def test_progress_on_a_terminal_and_for_prometheus_until_ctrl_c(tmp_path: Path) -> None:
    with Broker(topics=["numbers", "dead"]) as broker:
        path = write_definition(tmp_path, broker.bootstrap_servers, TEXT, "{every: 1 second}")
        good = [b'{"n":1}'] * (RECORDS - 2)
        send(broker.bootstrap_servers, "numbers", [b"no json", b'{"n":100}', *good])
        screen, errors = Screen(), tmp_path / "errors.txt"
        wrapper = (sys.executable, "-c", IN_A_TERMINAL, str(screen.slave), *COMMAND)
        with errors.open("w") as stderr:
            more: dict[str, Any] = {"stderr": stderr, "pass_fds": (screen.slave,)}
            process = start_run(path, "--metrics-port=0", command=wrapper, **more)
        os.close(screen.slave)
        try:
            frame = screen.wait_for_a_frame(is_of_both)
            check_frame(frame)
            check_metrics(errors)
            # Drawn over: as many lines up as there are.
            last = screen.wait_for_a_frame(lambda each: is_of_both(each) and each != frame)
            check_frame(last)
            shown = screen.interrupt()
            assert process.wait(SECONDS_MAX) == 130, errors.read_text()
        finally:
            kill_group(process)
            process.wait()
        assert f"\x1b[{len(frame)}A" in shown
        assert shown.endswith("stopped; the next run goes on from here\r\n")
        assert "Interrupt" not in errors.read_text()
        assert "was stopped" not in errors.read_text()
        told = CliRunner().invoke(main, ["pipeline", "status", str(path), "--json"])
        totals = json.loads(told.stdout)["totals"]
        assert totals["files"]["input_rows"] >= rows(last)["files"]["rows"]
        assert totals["files"]["expectations"]["small"]["failed"] == 1
        assert totals["dead_letters"]["dead_letters"] == 2
