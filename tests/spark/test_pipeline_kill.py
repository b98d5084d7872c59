"""``odradek pipeline run`` dies in the middle, and what comes out is whole all the same.

It dies while a transaction of one of its sinks is being committed: the broker holds the request
back until the driver is dead, and then commits what nobody waits for any more.
"""

import json
import subprocess
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.spark import pipeline
from odradek.testing.broker import Broker
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
"""Far more batches than can be done, one in a second, until the last query has done one, too."""
KEYS = 7
STARTS_MAX = 8
HOLD_SECONDS = 3600.0
POLL_SECONDS = 0.02
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
spark: {{master: "local[2,4]", conf: {{spark.sql.shuffle.partitions: 2}}}}
"""


def kill_in_the_middle(broker: Broker, path: Path, deadline: float) -> bool:
    """Kill driver and JVM once every query has done a batch and one of them is committing.

    False if it ended before: Spark's patience with new processes is short on a busy machine.
    """
    with (
        start_run(path, "--json", stdout=subprocess.PIPE) as process,
        bounded(process, deadline),
    ):
        assert process.stdout is not None
        seen: set[str] = set()
        for line in process.stdout:
            seen.add(json.loads(line)["query"])
            if seen == QUERIES:
                break
        with broker.delay("EndTxn", HOLD_SECONDS, times=1) as held:
            while not held.fired and process.poll() is None:
                time.sleep(POLL_SECONDS)
            is_in_time = process.poll() is None
            kill_group(process)
            process.wait()
            return is_in_time


def run_to_the_end(path: Path, deadline: float) -> None:
    """Run it with all that is left in one batch, after those that were interrupted."""
    path.write_text(path.read_text().replace(f"max: {BATCH}", f"max: {RECORDS}"))
    errors = ""
    for _ in range(STARTS_MAX):
        with (
            start_run(
                path, "--available-now", stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process,
            bounded(process, deadline),
        ):
            _, errors = process.communicate()
        if process.returncode == 0:
            return
    raise AssertionError(errors)


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


def test_a_killed_pipeline_goes_on_and_writes_nothing_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    with Broker(topics=["numbers", "out", "sums"]) as broker:
        servers = broker.bootstrap_servers
        path = write_definition(tmp_path, servers, TEXT, "{every: 1 second}")
        send(servers, "numbers", [b'{"n":%d}' % n for n in range(RECORDS)])
        assert any(kill_in_the_middle(broker, path, deadline) for _ in range(STARTS_MAX))
        run_to_the_end(path, deadline)

        expected = Counter(range(RECORDS))
        assert Counter(json.loads(value)["n"] for value, _ in consume(servers, "out")) == expected
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert Counter(row["n"] for row in rows) == expected
        check_sums(servers)
        status = pipeline.status(pipeline.load(path))
        assert {
            each.lag for partitions in status.queries.values() for each in partitions.values()
        } == {0}
        # What was counted is not more than there is, and what could not be counted is told.
        for each in status.totals.values():
            assert each.input_rows == RECORDS or each.uncounted_batches
            assert each.input_rows <= RECORDS
