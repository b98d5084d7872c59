"""Who is killed, and when: drivers, and the Python processes that run their tasks."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

Victim = Literal["driver", "worker"]


class Kill(NamedTuple):
    victim: Victim
    request: str
    passing: int
    """How many of these requests are let through before."""

    def __str__(self) -> str:
        return f"{self.victim} at {self.request} {self.passing}"


def kill_worker(driver: int, random: Random) -> bool:
    """Kill one of the processes that run tasks of a driver; False if there is none."""
    workers = [
        pid
        for daemon in _descendants(driver)
        if _command(daemon).endswith(b"\0pyspark.daemon\0pyspark.worker\0")
        for pid in _children(daemon)
    ]
    for pid in random.sample(workers, len(workers)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for tasks in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (tasks / "children").read_text().split())
    return found


def _descendants(pid: int) -> list[int]:
    children = _children(pid)
    return children + [each for child in children for each in _descendants(child)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
