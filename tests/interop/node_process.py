"""`odradek serve` as a process of its own, which tests may kill."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.ports import HOST, free_ports
from tests.readable import is_readable

COMMAND = (str(Path(sys.executable).with_name("odradek")), "serve")
READY_SECONDS_MAX = 90  # a machine with ten times more to do than cores starts slowly
STOP_SECONDS_MAX = 60
_READY = re.compile(rb"odradek ready on (?P<host>[^ ]+):(?P<port>\d+)\n")


class NodeProcess:
    """Runs from `with` on; started anew with `start`, on the port it had before."""

    def __init__(
        self,
        data_dir: Path,
        options: Sequence[str] = (),
        *,
        log_file: Path | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        """What it logs goes to the end of ``log_file``, or where the tests' own lines go."""
        self.data_dir = data_dir
        self.log_file = log_file
        self._command = command
        self.port = 0
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        self.port = self.port or free_ports(1)[0]
        arguments = ["--data-dir", str(self.data_dir), "--port", str(self.port), *self._options]
        with nullcontext() if self.log_file is None else self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments], stdout=subprocess.PIPE, stderr=log
            )
        self.port = int(self._read_ready()["port"])

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is closed."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> int:
        """Send a signal; gives the exit code."""
        process = self.process
        process.send_signal(number)
        try:
            return process.wait(STOP_SECONDS_MAX)
        finally:
            assert process.stdout is not None
            process.stdout.close()

    def rss_kib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def cpu_seconds(self) -> float:
        """Return how long it has worked since it was started, whatever else the machine did."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()

    def _read_ready(self) -> dict[str, str]:
        """Wait for the one line that says where the node listens."""
        assert self.process.stdout is not None
        output, said = self.process.stdout.fileno(), b""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if not is_readable(output, 1):
                continue
            chunk = os.read(output, 4096)
            said += chunk
            if match := _READY.fullmatch(said):
                return {name: value.decode() for name, value in match.groupdict().items()}
            if not chunk:
                break
        self.kill()
        raise AssertionError(f"the node is not ready; it said {said!r}")
