"""`odradek up` as a user runs it: a process of its own, commands from others, lines on stdout."""

import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.local.folder import ClusterFolder
from odradek.local.layout import CONTROLLER_PORTS_FROM
from odradek.local.ports import is_free
from odradek.local.process_identity import ProcessIdentity
from tests.cluster.flavours import ODRADEK_COMMAND
from tests.interop.ports import free_ports, reserve

UP_SECONDS_MAX = 120
COMMAND_SECONDS_MAX = 180
POLL_SECONDS = 0.02


def free_base_port(nodes: int) -> int:
    """Return a base port whose cluster finds all its ports free."""
    while True:
        (base,) = free_ports(1)
        others = [base + CONTROLLER_PORTS_FROM, *(base + n for n in range(1, nodes))]
        others += [base + CONTROLLER_PORTS_FROM + n for n in range(1, nodes)]
        if all(is_free(port) and reserve(port) for port in others):
            return base


class LocalCluster:
    """`odradek up`, until the end of ``with``."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.output_file = folder.with_name(folder.name + ".out")
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [ODRADEK_COMMAND, "up", "--dir", str(self.folder), *self._options]
        with self.output_file.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self.wait_for_line(r"^bootstrap ")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def output(self) -> str:
        return self.output_file.read_text()

    @property
    def bootstrap_servers(self) -> str:
        found = re.search(r"^bootstrap (\S+)$", self.output, re.MULTILINE)
        assert found is not None, self.output
        return found[1]

    def identities(self) -> list[ProcessIdentity]:
        """The processes of the nodes that run now."""
        record = ClusterFolder(self.folder).read_run()
        assert record is not None
        return list(record.nodes.values())

    def wait_for_line(self, pattern: str, seconds_max: float = UP_SECONDS_MAX) -> str:
        """Return the first line of its output that has the pattern in it."""
        deadline = time.monotonic() + seconds_max
        while True:
            # Asked before the output is read: what it says last is seen.
            has_ended = self.process.poll() is not None
            found = re.search(f"(?m)^.*?{pattern.removeprefix('^')}.*$", self.output)
            if found is not None:
                return found[0]
            assert not has_ended, f"`odradek up` ended\n{self.output}"
            assert time.monotonic() < deadline, f"no line {pattern!r} in\n{self.output}"
            time.sleep(POLL_SECONDS)

    def local(self, *words: str) -> str:
        """Run `odradek local …` and return what it prints."""
        run = self.run("local", words[0], "--dir", str(self.folder), *words[1:])
        assert run.returncode == 0, run
        return run.stdout

    def down(self) -> str:
        run = self.run("down", "--dir", str(self.folder))
        assert run.returncode == 0, run
        assert self.process.wait(COMMAND_SECONDS_MAX) == 0, self.output
        return run.stdout

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [ODRADEK_COMMAND, *words],
            capture_output=True,
            encoding="utf-8",
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self.output)
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(COMMAND_SECONDS_MAX)
