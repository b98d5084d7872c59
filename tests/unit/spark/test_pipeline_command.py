"""``odradek pipeline``: what it prints and how it exits, where no Spark is needed."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.client.blocking.admin import BlockingAdmin
from odradek.spark.pipeline.checkpoints import Checkpoints
from odradek.spark.pipeline.totals import Count, Totals
from odradek.spark.sink_options import parse_sink_options
from odradek.spark.task_markers import Task
from odradek.spark.writing import write_task
from odradek.testing.broker import Broker

TEXT = """\
name: p
brokers: {servers}
source: {{topics: [a]}}
sinks:
  - {{name: files, format: json, path: out}}
checkpoint: state
"""


def write(folder: Path, servers: str) -> str:
    path = folder / "p.yaml"
    path.write_text(TEXT.format(servers=servers))
    return str(path)


def test_a_sound_file_is_told_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "validate", write(tmp_path, "localhost:9092")])
    assert result.exit_code == 0
    assert result.output.endswith("p.yaml: pipeline 'p' is sound: files\n")


def test_a_file_that_is_not_sound_is_exit_code_2(tmp_path: Path) -> None:
    path = Path(write(tmp_path, "localhost:9092"))
    path.write_text(path.read_text().replace("checkpoint", "checkpoints").replace("sinks", "sink"))
    for command in ("validate", "run", "status"):
        result = CliRunner().invoke(main, ["pipeline", command, str(path)])
        assert result.exit_code == 2
        assert result.stderr.splitlines() == [
            f"{path}:1: sinks: is missing",
            f"{path}:1: checkpoint: is missing",
            f"{path}:4: sink: unknown; did you mean 'sinks'?",
            f"{path}:6: checkpoints: unknown; did you mean 'checkpoint'?",
        ]


@pytest.mark.parametrize("arguments", [[], ["--to-latest", "--to-earliest"]])
def test_a_reset_goes_to_exactly_one_place(tmp_path: Path, arguments: list[str]) -> None:
    path = write(tmp_path, "localhost:9092")
    result = CliRunner().invoke(main, ["pipeline", "reset", path, *arguments])
    assert result.exit_code == 1
    assert "exactly one action" in result.stderr


def test_a_reset_commits_where_it_begins_and_status_shows_it(tmp_path: Path) -> None:
    with Broker(topics={"a": 2}, memory=True) as broker:
        path = write(tmp_path, broker.bootstrap_servers)
        fresh = CliRunner().invoke(main, ["pipeline", "status", path])
        assert fresh.output.splitlines() == [
            "pipeline p, epoch 0, not running",
            f"  files: files in {tmp_path / 'out'}",
            "QUERY  PARTITION  COMMITTED  END  LAG",
            "files  a-0        -          0    -",
            "files  a-1        -          0    -",
        ]
        reset = CliRunner().invoke(
            main, ["pipeline", "reset", path, "--to-datetime", "2026-01-31T00:00:00Z"]
        )
        assert reset.exit_code == 0, reset.output
        assert f"Files of files go to {tmp_path / 'out-epoch-1'}" in reset.output
        status = CliRunner().invoke(main, ["pipeline", "status", path, "--json"])
        told = json.loads(status.output)
        assert (told["epoch"], told["running"]) == (1, False)
        assert [each["lag"] for each in told["partitions"]] == [0, 0]
        with Checkpoints(str(tmp_path / "state")).lock():
            running = CliRunner().invoke(main, ["pipeline", "reset", path, "--to-earliest"])
            assert running.exit_code == 1
            assert "is running already" in running.stderr


def test_a_reset_forgets_what_sinks_of_the_old_epoch_kept(tmp_path: Path) -> None:
    with Broker(topics={"a": 1, "b": 1}, memory=True) as broker:
        path = Path(write(tmp_path, broker.bootstrap_servers))
        topic = "{name: out, topic: b}"
        path.write_text(path.read_text().replace("{name: files, format: json, path: out}", topic))
        query = tmp_path / "state" / "epoch-0" / "out"
        query.mkdir(parents=True)
        (query / "metadata").write_text('{"id":"old"}')
        given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "b"}
        for name, partition in (("old", 0), ("old", 3), ("other", 0)):
            rows = pa.RecordBatch.from_pydict({"value": ["x"]})
            task = Task("odradek-spark", name, "run", 0, partition)
            write_task(parse_sink_options(given), task, iter([rows]))
        reset = CliRunner().invoke(main, ["pipeline", "reset", str(path), "--to-earliest"])
        assert reset.exit_code == 0, reset.output
        with BlockingAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            left = sorted(each.group_id for each in admin.list_groups())
        assert left == ["odradek-spark-other-tasks", "p.out"]


def test_status_shows_what_was_counted_since_the_epoch_began(tmp_path: Path) -> None:
    totals = Totals("q", 6, batches=5, uncounted_batches=2, input_rows=100, corrupt_records=1)
    totals.expectations["small"] = Count(99, 3)
    checkpoints = Checkpoints(str(tmp_path / "state"))
    with checkpoints.lock():
        checkpoints.keep_totals(checkpoints.epoch(), {"files": totals})
    with Broker(topics=["a"], memory=True) as broker:
        path = write(tmp_path, broker.bootstrap_servers)
        shown = CliRunner().invoke(main, ["pipeline", "status", path])
        assert shown.output.splitlines()[4:] == [
            "since epoch 0 began:",
            "QUERY  BATCHES  ROWS  BAD  DEAD",
            "files  5        100   4    0",
            "  expectation 'small': 3 of 99 rows failed",
            "  files: 2 more batches are not counted: the driver was killed too soon",
        ]
        told = json.loads(CliRunner().invoke(main, ["pipeline", "status", path, "--json"]).output)
        assert told["totals"]["files"]["uncounted_batches"] == 2
        assert told["totals"]["files"]["expectations"] == {"small": {"rows": 99, "failed": 3}}


def test_a_run_has_one_trigger_and_a_port_that_can_be(tmp_path: Path) -> None:
    path = write(tmp_path, "localhost:9092")
    both = CliRunner().invoke(main, ["pipeline", "run", path, "--once", "--available-now"])
    assert both.exit_code == 1
    assert "--available-now does not go with --once" in both.stderr
    port = CliRunner().invoke(main, ["pipeline", "run", path, "--metrics-port", "70000"])
    assert port.exit_code == 1
    assert "70000" in port.stderr


def test_a_ctrl_c_that_spark_takes_for_itself_stops_a_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a handler of its own from the moment its context is there until we take it back."""

    def take_ctrl_c(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("odradek.spark.pipeline.run", take_ctrl_c)
    result = CliRunner().invoke(main, ["pipeline", "run", write(tmp_path, "localhost:9092")])
    assert result.exit_code == 130
    assert result.stdout == "stopped; the next run goes on from here\n"
