"""``odradek pipeline run`` is told to stop: it ends in order, and the next one goes on."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from odradek.spark.pipeline.checkpoints import Checkpoints
from odradek.testing.broker import Broker
from tests.spark.pipeline_files import (
    SECONDS_MAX,
    bounded,
    consume,
    send,
    start_run,
    write_definition,
)

pytestmark = pytest.mark.slow

POLL_SECONDS = 0.05
TEXT = """
source: {topics: [numbers], format: json, schema: "n INT", records_per_batch_max: 100}
steps:
  - {name: numbers, sql: SELECT value.n AS n FROM source}
sinks:
  - {name: topic, topic: out}
spark: {master: "local[2,4]"}
"""
RECORDS = 300


def stop_after_a_batch(path: Path, deadline: float) -> tuple[list[str], str, int]:
    """Send SIGTERM to the whole group, Spark's JVM included, as a service manager does."""
    with (
        start_run(path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        bounded(process, deadline),
    ):
        assert process.stdout is not None
        first = process.stdout.readline()
        if first:
            os.killpg(process.pid, signal.SIGTERM)
        rest, errors = process.communicate()
    return [first, *rest.splitlines(keepends=True)], errors, process.returncode


def interrupt_at_once(path: Path, deadline: float) -> tuple[str, str, int]:
    """Send SIGINT as soon as the pipeline counts as running: Spark is not there yet."""
    with (
        start_run(path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        bounded(process, deadline),
    ):
        checkpoints = Checkpoints(str(path.with_name("state")))
        while not checkpoints.is_locked() and process.poll() is None:
            time.sleep(POLL_SECONDS)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
    return output, errors, process.returncode


def test_a_run_that_is_told_to_stop_ends_in_order_and_the_next_goes_on(tmp_path: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    with Broker(topics=["numbers", "out"]) as broker:
        servers = broker.bootstrap_servers
        path = write_definition(tmp_path, servers, TEXT, trigger=None)
        send(servers, "numbers", [b'{"n":%d}' % n for n in range(RECORDS)])

        lines, errors, code = stop_after_a_batch(path, deadline)
        assert code == 0, errors
        assert lines[0].startswith("topic: batch "), errors
        assert lines[-1] == "stopped; the next run goes on from here\n"
        assert "KeyboardInterrupt" not in errors
        assert "odradek/cli" not in errors

        output, errors, code = interrupt_at_once(path, deadline)
        assert code == 130, errors
        assert output.endswith("stopped; the next run goes on from here\n")
        assert "KeyboardInterrupt" not in errors
        assert "odradek/cli" not in errors

        with (
            start_run(path, "--available-now", stdout=subprocess.PIPE) as process,
            bounded(process, deadline),
        ):
            output, _ = process.communicate()
        assert process.returncode == 0
        assert output.splitlines()[-1] == "done"
        written = Counter(json.loads(value)["n"] for value, _ in consume(servers, "out"))
        assert written == Counter(range(RECORDS))
