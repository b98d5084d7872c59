"""``odradek pipeline run`` dies in the middle, and what comes out is whole all the same."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.testing.broker import Broker
from tests.spark.pipeline_files import consume, send, write_definition

pytestmark = pytest.mark.slow

RECORDS = 400
SECONDS_MAX = 240
TEXT = """
source: {topics: [numbers], format: json, schema: "n INT", records_per_batch_max: 50}
steps:
  - {name: numbers, sql: SELECT value.n AS n FROM source}
sinks:
  - {name: topic, topic: out}
  - {name: files, format: parquet, path: out}
spark: {master: "local[2]"}
"""


def start(path: Path) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(
        [sys.executable, "-m", "odradek", "pipeline", "run", str(path), "--json"],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )


def kill_in_the_middle(path: Path) -> None:
    """Kill the driver, Python and JVM, once each of the two queries has done a micro-batch."""
    with start(path) as process:
        assert process.stdout is not None
        seen: set[str] = set()
        try:
            for line in process.stdout:
                seen.add(json.loads(line)["query"])
                if len(seen) == 2:
                    break
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_killed_pipeline_goes_on_and_writes_nothing_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Broker(topics=["numbers", "out"]) as broker:
        servers = broker.bootstrap_servers
        path = write_definition(tmp_path, servers, TEXT)
        send(servers, "numbers", [b'{"n":%d}' % n for n in range(RECORDS)])
        kill_in_the_middle(path)
        with start(path) as process:
            told, _ = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0
        last = {each["query"]: each for each in map(json.loads, told.splitlines())}
        assert all(sum(each["lag"].values()) == 0 for each in last.values())
        # Not all was done by the last run, so the first one had done something.
        assert last["topic"]["input_rows"] < RECORDS
        assert last["files"]["input_rows"] < RECORDS
        expected = Counter(range(RECORDS))
        assert Counter(json.loads(value)["n"] for value, _ in consume(servers, "out")) == expected
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert Counter(row["n"] for row in rows) == expected
