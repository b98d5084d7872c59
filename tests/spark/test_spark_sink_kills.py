"""Exactly once, whatever is killed: the driver with all that belongs to it, and Python workers.

The moments are drawn by chance, but counted in transactions that tasks ask the broker to commit:
that is where a kill may hurt. The same without markers has to find duplicates, or this test would
not see any.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from odradek.testing.broker import Broker
from odradek.testing.faults import Fault
from tests.written_records import read_topic, values

pytestmark = pytest.mark.slow

FILES = 10
ROWS = 60
DRIVER_KILLS = 3
WORKER_KILLS = 7
PROGRAM_SECONDS_MAX = 240
POLL_SECONDS = 0.002


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"out": 3}) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        lines = (f"{number}-{row}\n" for row in range(ROWS))
        (tmp_path / "in" / f"{number}.txt").write_text("".join(lines))
    return tmp_path


class Program:
    """The driver program, as a session of its own: it is killed as a whole."""

    def __init__(self, broker: Broker, folder: Path, *options: str) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        arguments = [broker.bootstrap_servers, "out", str(folder), *options]
        self.output = (folder / "output.txt").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sink_program", *arguments],
            env=environment,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._deadline = time.monotonic() + PROGRAM_SECONDS_MAX

    def wait_for_commits(self, commits: Fault, count: int) -> bool:
        """Wait for so many more transactions to be committed; False if the program ended."""
        wanted = commits.fired + count
        while commits.fired < wanted:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < self._deadline, "the program hangs"
            time.sleep(POLL_SECONDS)
        return True

    def wait(self) -> int:
        return self.process.wait(PROGRAM_SECONDS_MAX)

    def kill(self) -> None:
        """Driver and JVM at once. Python workers see it when they next talk to the JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output.close()

    def kill_worker(self, random: Random) -> bool:
        """Kill one of the processes that run tasks; False if there is none."""
        workers = [
            pid
            for daemon in _descendants(self.process.pid)
            if b"pyspark.daemon" in _command(daemon)
            for pid in _children(daemon)
        ]
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(random.choice(workers), signal.SIGKILL)
        return True


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


def counted(broker: Broker) -> Counter[bytes | None]:
    return Counter(values(read_topic(broker.bootstrap_servers, "out")))


def everything_once() -> Counter[bytes | None]:
    return Counter(f"{number}-{row}".encode() for number in range(FILES) for row in range(ROWS))


@pytest.mark.parametrize("seed", [1])
def test_drivers_and_workers_are_killed_and_every_row_is_there_once(
    broker: Broker, folder: Path, seed: int
) -> None:
    random = Random(seed)
    commits = broker.delay("EndTxn", 0.0, times=None)
    killed = Counter[str]()
    for _ in range(DRIVER_KILLS):
        program = Program(broker, folder)
        try:
            # One after the other, in the first half of the time until the driver goes.
            while program.wait_for_commits(commits, random.randint(1, 3)):
                is_enough = killed["worker"] >= WORKER_KILLS * (killed["driver"] + 1) / DRIVER_KILLS
                if is_enough:
                    killed["driver"] += 1
                    break
                killed["worker"] += program.kill_worker(random)
        finally:
            program.kill()
    program = Program(broker, folder)
    try:
        assert program.wait() == 0, (folder / "output.txt").read_text()[-5000:]
    finally:
        program.kill()
    assert killed["driver"] >= DRIVER_KILLS // 2, f"seed {seed}: it ended too soon, {killed}"
    assert killed["worker"] >= WORKER_KILLS // 2, f"seed {seed}: {killed}"
    assert counted(broker) == everything_once(), f"seed {seed}, killed {killed}"


def test_without_markers_rows_are_there_twice(broker: Broker, folder: Path) -> None:
    commits = broker.delay("EndTxn", 0.0, times=None)
    option = "odradek.testing.withoutMarker=true"
    program = Program(broker, folder, option)
    try:
        assert program.wait_for_commits(commits, 6)
    finally:
        program.kill()
    program = Program(broker, folder, option)
    try:
        assert program.wait() == 0, (folder / "output.txt").read_text()[-5000:]
    finally:
        program.kill()
    found = counted(broker)
    assert found.keys() == everything_once().keys()
    assert found.total() > everything_once().total()
