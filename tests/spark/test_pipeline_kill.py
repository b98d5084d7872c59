"""``odradek pipeline run`` and its Python workers are killed, and what comes out is whole.

The moments are drawn by chance among the requests that tasks send to the broker, which holds such a
request back while the kill is done; then it goes on, and commits what nobody waits for any more.
The first driver dies only when each of its queries has done a batch, in the middle of a commit.

A machine that is so busy that half of the time is over before the last of them gets fewer kills,
but some of each kind.
"""

import json
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from pyarrow.parquet import read_table

from odradek.spark import pipeline
from odradek.testing.broker import Broker
from tests.spark.kills import Kill, Victim, kill_worker
from tests.spark.pipeline_files import (
    SECONDS_MAX,
    bounded,
    consume,
    kill_group,
    send,
    start_run,
    write_definition,
)

pytestmark = pytest.mark.slow


BATCH = 20
RECORDS = 400 * BATCH
"""Far more batches than can be done, one in a second, until the last victim is dead."""
KEYS = 7
STARTS_MAX = 12
HOLD_SECONDS = 3600.0
POLL_SECONDS = 0.02
VICTIMS: tuple[Victim, ...] = ("worker", "worker", "worker", "driver")
REQUESTS = ("Fetch", "InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn", "EndTxn")
"""Where tasks can be when they or their driver are killed; at the last one it hurts most."""
PASSING_MAX = 2
KILLS_MIN = 2
"""One of each kind."""
QUERIES = {"topic", "files", "sums"}
TEXT = f"""
source: {{topics: [numbers], format: json, schema: "n INT", records_per_batch_max: {BATCH}}}
steps:
  - {{name: numbers, sql: SELECT value.n AS n FROM source}}
  - name: sums
    sql: SELECT n % {KEYS} AS k, count(*) AS c, sum(n) AS s FROM numbers GROUP BY n % {KEYS}
sinks:
  - {{name: topic, step: numbers, topic: out}}
  - {{name: files, step: numbers, format: parquet, path: out}}
  - {{name: sums, step: sums, topic: sums, key: k, mode: update}}
spark: {{master: "local[2,20]", conf: {{spark.sql.shuffle.partitions: 2}}}}
"""


def plan_kills(seed: int) -> list[Kill]:
    chance = Random(seed)
    further = (
        Kill(each, chance.choice(REQUESTS), chance.randint(0, PASSING_MAX)) for each in VICTIMS
    )
    return [Kill("driver", "EndTxn", 0), *further]


class Killing:
    """Runs a pipeline, kills on the way, and starts it again."""

    def __init__(self, broker: Broker, path: Path) -> None:
        self._broker = broker
        self._path = path
        self._told = path.parent / "told.jsonl"
        self._deadline = time.monotonic() + SECONDS_MAX
        self._random = Random(0)
        self._starts = 0
        self._process = self._start()

    def run(self, kills: list[Kill]) -> None:
        try:
            while not self._has_told_of_all():
                self._wait()
            for number, kill in enumerate(kills):
                if number >= KILLS_MIN and time.monotonic() > self._deadline - SECONDS_MAX / 2:
                    break
                while not self._has_done(kill):
                    self._wait()
        finally:
            kill_group(self._process)
            self._process.wait()

    def _start(self, *options: str) -> subprocess.Popen[str]:
        """Start it: first, after a kill, and where Spark itself gave up.

        Its patience with new processes is short on a machine that is busy.
        """
        self._starts += 1
        assert self._starts <= STARTS_MAX, self._errors()
        with self._told.open("w") as told, (self._path.parent / "errors.txt").open("a") as errors:
            return start_run(self._path, "--json", *options, stdout=told, stderr=errors)

    def _wait(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()
        assert time.monotonic() < self._deadline, self._errors()
        time.sleep(POLL_SECONDS)

    def _has_told_of_all(self) -> bool:
        whole = self._told.read_text().rpartition("\n")[0]
        return {json.loads(line)["query"] for line in whole.splitlines()} == QUERIES

    def _has_done(self, kill: Kill) -> bool:
        """Let some requests pass and kill while the next is held back; False: nobody is there."""
        with ExitStack() as faults:
            if kill.passing:
                passing = self._broker.delay(kill.request, 0.0, times=kill.passing)
                faults.enter_context(passing)
            held = faults.enter_context(self._broker.delay(kill.request, HOLD_SECONDS, times=1))
            while not held.fired:
                self._wait()
            if kill.victim == "worker":
                return kill_worker(self._process.pid, self._random)
            kill_group(self._process)
            self._process.wait()
            return True

    def finish(self) -> None:
        """Run it with all that is left in one batch, after those that were interrupted."""
        text = self._path.read_text()
        self._path.write_text(text.replace(f"max: {BATCH}", f"max: {RECORDS}"))
        while True:
            self._process = self._start("--available-now")
            with bounded(self._process, self._deadline):
                if self._process.wait() == 0:
                    return

    def _errors(self) -> str:
        return (self._path.parent / "errors.txt").read_text()[-5000:]


def check_sums(servers: str) -> None:
    """Check the last value of each key, and that no batch was added to it twice or left out."""
    counts: dict[int, list[int]] = defaultdict(list)
    last: dict[int, tuple[int, int]] = {}
    for value, _ in consume(servers, "sums"):
        row = json.loads(value)
        counts[row["k"]].append(row["c"])
        last[row["k"]] = row["c"], row["s"]
    numbers = {k: range(k, RECORDS, KEYS) for k in range(KEYS)}
    assert last == {k: (len(each), sum(each)) for k, each in numbers.items()}
    # A batch that is applied twice tells a count again.
    assert all(each == sorted(set(each)) for each in counts.values()), counts


def rows_in_files(folder: Path) -> Counter[int]:
    """Read the files that Spark's list names: others are of batches that never finished."""
    listed: set[Path] = set()
    for path in (folder / "_spark_metadata").glob("[0-9]*"):
        version, *entries = path.read_text().splitlines()
        assert version == "v1"
        listed |= {Path(urlsplit(json.loads(entry)["path"]).path) for entry in entries}
    return Counter(n for path in listed for n in read_table(path).column("n").to_pylist())


@pytest.mark.parametrize("seed", [1])
def test_drivers_and_workers_of_a_pipeline_are_killed_and_all_of_it_comes_out_once(
    tmp_path: Path, seed: int
) -> None:
    kills = plan_kills(seed)
    with Broker(topics=["numbers", "out", "sums"]) as broker:
        servers = broker.bootstrap_servers
        path = write_definition(tmp_path, servers, TEXT, "{every: 1 second}")
        send(servers, "numbers", [b'{"n":%d}' % n for n in range(RECORDS)])
        killing = Killing(broker, path)
        killing.run(kills)
        killing.finish()

        expected, told = Counter(range(RECORDS)), ", ".join(map(str, kills))
        written = Counter(json.loads(value)["n"] for value, _ in consume(servers, "out"))
        assert written == expected, told
        assert rows_in_files(tmp_path / "out") == expected, told
        check_sums(servers)
        status = pipeline.status(pipeline.load(path))
        assert {
            each.lag for partitions in status.queries.values() for each in partitions.values()
        } == {0}
        # It may be less: a batch whose files were complete when the driver died is not read again.
        assert all(0 < each.input_rows <= RECORDS for each in status.totals.values())
        topic = status.totals["topic"]
        assert topic.input_rows == RECORDS or topic.uncounted_batches
