"""Exactly once, whatever is killed: the driver with all that belongs to it, and Python workers.

The moments are drawn by chance among the requests that a task sends to the broker. The broker holds
such a request back while the kill is done, so every kill is in the middle of the work however slow
the machine is; then it goes on, and the dead have committed, or not. The same without markers has
to find duplicates, or this test would not see any.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from odradek.testing.broker import Broker
from odradek.testing.faults import Fault
from tests.long_searches import in_soak
from tests.spark.kills import Kill, Victim, kill_worker
from tests.written_records import read_topic, values

pytestmark = pytest.mark.slow


ROWS = 60
VICTIMS: tuple[Victim, ...] = in_soak(
    ("worker", "worker", "driver", "worker"),
    soak=("worker", "worker", "driver") * 2 + ("worker", "driver") * 2,
)
FILES = 2 * len(VICTIMS) + 4
"""Each kill uses up two of them at most, however late it comes."""
REQUESTS = ("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn", "EndTxn")
"""Where a task can be when it is killed; the last one is where it hurts most."""
PASSING_MAX = 2
STARTS_MAX = 20
HOLD_SECONDS = 3600.0
SECONDS_MAX = 840
"""For a whole test: ten kills take two minutes, unless the machine is very busy."""
KILLS_MIN = 3
"""Of both kinds. One that is so busy that half of the time is over by then gets no more."""
POLL_SECONDS = 0.005


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


def plan_kills(seed: int) -> list[Kill]:
    chance = Random(seed)
    return [
        Kill(victim, chance.choice(REQUESTS), chance.randint(0, PASSING_MAX)) for victim in VICTIMS
    ]


class Program:
    """The driver program, as a session of its own: it is killed as a whole."""

    def __init__(self, broker: Broker, folder: Path, *options: str) -> None:
        arguments = [broker.bootstrap_servers, "out", str(folder), *options]
        with (folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.sink_program", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for(self, fault: Fault, deadline: float) -> bool:
        """Wait until a request was hit; False if the program ended before."""
        while not fault.fired:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, "the program hangs"
            time.sleep(POLL_SECONDS)
        return True

    def kill(self) -> None:
        """Driver and JVM at once. Python workers see it when they next talk to the JVM."""
        if self.process.poll() is None:  # else the number may be somebody else's by now
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Killing:
    """Runs the program to its end, and kills on the way."""

    def __init__(self, broker: Broker, folder: Path, *options: str) -> None:
        self._broker = broker
        self._folder = folder
        self._options = options
        self._random = Random(0)
        self._starts = 0
        self._deadline = time.monotonic() + SECONDS_MAX
        self._program = self._start()

    def run(self, kills: list[Kill]) -> None:
        try:
            for number, kill in enumerate(kills):
                if number >= KILLS_MIN and time.monotonic() > self._deadline - SECONDS_MAX / 2:
                    break
                self._do(kill)
            self._program.kill()
            self._finish()
        finally:
            self._program.kill()

    def _start(self, *more: str) -> Program:
        """Start the program: first, after a kill, and where Spark itself gave up.

        Its patience with new processes is short on a machine that is busy, but a start more or
        less must not matter here.
        """
        self._starts += 1
        assert self._starts <= STARTS_MAX, self._output()
        return Program(self._broker, self._folder, *self._options, *more)

    def _do(self, kill: Kill) -> None:
        while True:
            code = self._program.process.poll()
            assert code != 0, f"the work was too short for {kill}"
            if code is not None:
                self._program = self._start()
            if self._has_done(kill):
                return

    def _finish(self) -> None:
        """Do all that is left in one batch, behind the one that was interrupted."""
        self._program = self._start("maxFilesPerTrigger=100")
        while self._program.process.wait(max(0.0, self._deadline - time.monotonic())):
            self._program = self._start("maxFilesPerTrigger=100")

    def _has_done(self, kill: Kill) -> bool:
        """Let some requests pass, and kill while the next one is held back.

        Both are told to the broker at once: nothing comes by between them, however slow this is.
        """
        with ExitStack() as faults:
            if kill.passing:
                passing = self._broker.delay(kill.request, 0.0, times=kill.passing)
                faults.enter_context(passing)
            held = self._broker.delay(kill.request, HOLD_SECONDS, times=1)
            faults.enter_context(held)
            if not self._program.wait_for(held, self._deadline):
                return False
            if kill.victim == "worker":
                return kill_worker(self._program.process.pid, self._random)
            self._program.kill()
            return True

    def _output(self) -> str:
        return (self._folder / "output.txt").read_text()[-5000:]


def counted(broker: Broker) -> Counter[bytes | None]:
    return Counter(values(read_topic(broker.bootstrap_servers, "out")))


def everything_once() -> Counter[bytes | None]:
    return Counter(f"{number}-{row}".encode() for number in range(FILES) for row in range(ROWS))


@pytest.mark.seed_row("0.4")
@pytest.mark.parametrize("seed", [1])
def test_drivers_and_workers_are_killed_and_every_row_is_there_once(
    broker: Broker, folder: Path, seed: int
) -> None:
    kills = plan_kills(seed)
    Killing(broker, folder).run(kills)
    assert counted(broker) == everything_once(), f"seed {seed}: {', '.join(map(str, kills))}"


@pytest.mark.seed_row("0.4")
def test_without_markers_rows_are_there_twice(broker: Broker, folder: Path) -> None:
    kills = [Kill("worker", "EndTxn", 1), Kill("driver", "EndTxn", 1)]
    Killing(broker, folder, "odradek.testing.withoutMarker=true").run(kills)
    found = counted(broker)
    assert found.keys() == everything_once().keys()
    assert found.total() > everything_once().total()
