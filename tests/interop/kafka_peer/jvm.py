"""A Java process that a test owns: it starts, comes to be ready, stops or is killed.

The kernel is asked to stop it when the thread that started it ends (setpriv --pdeathsig), so a
killed test run leaves none behind.
"""

import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.interop.ports import HOST

START_SECONDS_MAX = 300  # on a machine with fifty other things to do it took more than 90
STOP_SECONDS_MAX = 180
POLL_SECONDS = 0.1


class Jvm:
    def __init__(self, command: Sequence[str], log_file: Path, ready: Callable[[], bool]) -> None:
        """Start it with its output to the end of `log_file`, and wait until it is `ready`."""
        self.log_file = log_file
        with log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*until_parent_ends(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=log_file.parent,
            )
        try:
            self._wait_until(ready)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """SIGTERM, and wait for the shutdown hooks to run."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"did not stop on SIGTERM\n{self.log_tail()}") from None
        # The JVM reports the signal that it was stopped by.
        assert code in (0, 128 + signal.SIGTERM), f"exited with {code}\n{self.log_tail()}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def log_tail(self, characters: int = 4000) -> str:
        return self.log_file.read_text(errors="replace")[-characters:]

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"ended while starting\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not ready in {START_SECONDS_MAX} s\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)


def until_parent_ends() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []


def listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except OSError:
        return False
    return True


def broker_is_ready(port: int) -> bool:
    """Does the broker answer Metadata, and list itself?

    An answer to ApiVersions would come too early: the listener opens before the controller has
    unfenced the broker, and a topic created in that moment finds no broker to live on.
    """
    api_key, version, correlation_id, no_client_id, no_topics = 3, 0, 7, -1, 0
    request = struct.pack(">hhihi", api_key, version, correlation_id, no_client_id, no_topics)
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            reply = connection.makefile("rb").read(12)
    except OSError:
        return False
    if len(reply) < 12:
        return False
    _, correlation, brokers = struct.unpack(">iii", reply)
    return bool(correlation == correlation_id and brokers > 0)
