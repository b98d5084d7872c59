"""One node of a local cluster, as a process that the supervisor owns.

Only the supervisor signals its nodes, and it is their parent: until it has noticed that one ended
(``reap``), the kernel gives the pid to nobody else.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import IO, Final

from odradek.local.errors import LocalClusterError
from odradek.local.folder import ClusterFolder
from odradek.local.layout import NodeLayout
from odradek.local.process_identity import ProcessIdentity, identify

OUTPUT_BYTES: Final = 1 << 12
_LOG_TAIL_BYTES: Final = 1 << 14


class NodeState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    DIED = "died"

    @property
    def has_process(self) -> bool:
        return self in (NodeState.STARTING, NodeState.RUNNING, NodeState.PAUSED)


class NodeProcess:
    def __init__(self, layout: NodeLayout, folder: ClusterFolder) -> None:
        self.layout = layout
        self.folder = folder
        self.state = NodeState.STOPPED
        self._before_pause = NodeState.STOPPED
        self.is_stopping = False
        self.identity: ProcessIdentity | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._output = b""

    @property
    def id(self) -> int:
        return self.layout.id

    @property
    def pid(self) -> int | None:
        return self.identity.pid if self.identity is not None else None

    @property
    def stdout(self) -> IO[bytes]:
        """Where it says that it is ready; without waiting for it."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout

    def start(self) -> None:
        """Start it and do not wait for it.

        Raises:
            LocalClusterError: It runs.
        """
        if self.state.has_process:
            raise LocalClusterError(f"node {self.id} is {self.state.value} already")
        command = [sys.executable, "-m", "odradek.local.supervised_node"]
        properties = self.folder.properties_file(self.id)
        with self.folder.log_file(self.id).open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # nothing here comes from outside
                [*command, str(properties)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder.node_folder(self.id),
                # Ctrl-C in the terminal is for the supervisor, who stops its nodes.
                start_new_session=True,
            )
        os.set_blocking(self.stdout.fileno(), False)
        self.identity = identify(self._process.pid)
        self.state, self.is_stopping, self._output = NodeState.STARTING, False, b""

    def on_output(self) -> bool:
        """Read what it said; False at the end of it. RUNNING when all its listeners serve."""
        chunk = self.stdout.read(OUTPUT_BYTES)
        if not chunk:
            return chunk is None
        self._output += chunk
        served = set(map(int, self._output.rpartition(b"\n")[0].split()))
        if self.state is NodeState.STARTING and served >= set(self.layout.ports):
            self.state = NodeState.RUNNING
        return True

    def hold(self, held: Mapping[int, str]) -> None:
        """Have it hold back what goes to these ports, or comes from there (``gate``)."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended
            os.write(
                self._process.stdin.fileno(), json.dumps({"hold": dict(held)}).encode() + b"\n"
            )

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said.

        Raises:
            LocalClusterError: It does not run; also below.
        """
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and resume it if it is paused: it leaves the cluster as it should."""
        self.is_stopping = True
        self._signal(signal.SIGTERM)
        if self.state is NodeState.PAUSED:
            self._signal(signal.SIGCONT)

    def pause(self) -> None:
        """SIGSTOP: it neither answers nor closes connections."""
        if self.state is NodeState.PAUSED:
            raise LocalClusterError(f"node {self.id} is paused already")
        self._signal(signal.SIGSTOP)
        self._before_pause, self.state = self.state, NodeState.PAUSED

    def resume(self) -> None:
        if self.state is not NodeState.PAUSED:
            raise LocalClusterError(f"node {self.id} is {self.state.value}, not paused")
        self._signal(signal.SIGCONT)
        self.state = self._before_pause

    def reap(self) -> int | None:
        """Return the exit code, negative for a signal, of a process that has ended by now."""
        if self._process is None or not self.state.has_process:
            return None
        code = self._process.poll()
        if code is not None:
            # One that had not come as far as to handle SIGTERM has nothing to write down.
            is_stopped = self.is_stopping and code in (0, -signal.SIGTERM)
            self.state = NodeState.STOPPED if is_stopped else NodeState.DIED
            self.identity = None
        return code

    def close_pipes(self) -> None:
        """Close what led to a process that has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.stdout.close()

    def last_words(self) -> str:
        """Return the last line of its log that says what was wrong; its last line if none does."""
        file = self.folder.log_file(self.id)
        lines = _tail(file).splitlines()
        wrong = [line for line in lines if line.startswith("Error: ") or " ERROR " in line]
        return (wrong or lines or ["it wrote no log"])[-1]

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or not self.state.has_process or self._process.poll() is not None:
            raise LocalClusterError(
                f"node {self.id} does not run ({self.state.value}):"
                f" `odradek local restart {self.id}` starts it"
            )
        self._process.send_signal(number)


def _tail(file: Path) -> str:
    if not file.exists():
        return ""
    with file.open("rb") as log:
        log.seek(max(file.stat().st_size - _LOG_TAIL_BYTES, 0))
        return log.read().decode(errors="replace")
