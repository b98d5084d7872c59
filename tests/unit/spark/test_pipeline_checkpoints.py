"""Epochs and the lock of a pipeline, and progress as Spark tells it."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from odradek.core.ids import TopicPartition
from odradek.spark.pipeline.checkpoints import CheckpointError, Checkpoints
from odradek.spark.pipeline.display import JsonLines, Lines, Metrics, Terminal, table
from odradek.spark.pipeline.progress import Count, QueryProgress

P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)


def progress(batch: int, moment: int, rows: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-01T00:00:{moment:02}.000Z",
        "batchId": batch,
        "numInputRows": rows,
        "inputRowsPerSecond": "NaN",
        "processedRowsPerSecond": 10.0,
        "durationMs": {"triggerExecution": 250, "addBatch": 200},
        "sources": [
            {"endOffset": json.dumps({"a": {"0": end}}), "latestOffset": {"a": {"0": 100}}}
        ],
        "observedMetrics": {},
        **more,
    }


def test_an_epoch_begins_where_it_was_told_and_stays(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    assert checkpoints.epoch().number == 0
    assert checkpoints.epoch().start_options() == {}
    checkpoints.begin_epoch({P0: 5, P1: 0})
    again = Checkpoints(str(tmp_path)).epoch()
    assert again.number == 1
    assert again.start_options() == {"startingOffsets": '{"a": {"0": 5, "1": 0}}'}
    assert checkpoints.of_query(again, "out") == f"{tmp_path}/epoch-1/out"
    assert checkpoints.begin_epoch({P0: 6}).number == 2


def test_only_one_can_run_a_pipeline(tmp_path: Path) -> None:
    mine, other = Checkpoints(str(tmp_path / "new")), Checkpoints(f"file://{tmp_path}/new")
    assert not other.is_locked()
    with mine.lock():
        assert other.is_locked()
        with pytest.raises(CheckpointError, match="is running already"), other.lock():
            pass
    with other.lock():
        pass


def test_a_damaged_state_is_told_and_a_remote_one_cannot_be_reset(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text('{"epoch": -1}')
    with pytest.raises(CheckpointError, match="is damaged"):
        Checkpoints(str(tmp_path)).epoch()
    remote = Checkpoints("s3a://bucket/state")
    with remote.lock():
        assert remote.epoch().number == 0
    with pytest.raises(CheckpointError, match="is not a local folder"):
        remote.begin_epoch({P0: 1})


def test_every_batch_is_counted_once() -> None:
    mine = QueryProgress("out")
    first = progress(0, 1, 40, 40, observedMetrics={"expectation e": {"rows": 40, "failed": 3}})
    second = progress(
        1,
        2,
        10,
        50,
        observedMetrics={
            "expectation e": {"rows": 10, "failed": 1},
            "corrupt records": {"rows": 10, "failed": 2},
            "dead letters": {"rows": 5, "failed": 5},
        },
    )
    idle = progress(2, 12, 0, 50, durationMs={"triggerExecution": 1})
    assert mine.take([first])
    assert mine.take([first, second])
    assert not mine.take([first, second])
    assert mine.take([idle])
    assert (mine.batches, mine.input_rows, mine.last_batch) == (2, 50, 1)
    assert mine.offsets == {P0: 50}
    assert mine.lag == {P0: 50}
    assert mine.expectations == {"e": Count(50, 4)}
    assert (mine.corrupt_records, mine.dead_letters) == (2, 5)
    assert mine.as_json()["lag"] == {"a-0": 50}


def test_progress_is_shown_as_a_table_lines_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    mine = QueryProgress("out")
    mine.take([progress(0, 1, 40, 40, observedMetrics={"expectation e": {"rows": 9, "failed": 3}})])
    lines = table({"out": mine})
    assert lines == [
        "QUERY  BATCH  ROWS  IN/S  DONE/S  BATCH MS  LAG  BAD  DEAD",
        "out        0    40     0      10       250   60    3     0",
        "  out: expectation 'e': 3 of 9 rows failed",
        "  out: a-0 lag 60",
    ]
    shown = Lines(sys.stdout)
    shown({"out": mine})
    shown({"out": mine})
    assert capsys.readouterr().out == (
        "out: batch 0, 40 rows, 0/s in, 10/s done, 250 ms, lag 60, 3 bad rows, 0 dead letters\n"
    )
    JsonLines(sys.stdout)({"out": mine})
    assert json.loads(capsys.readouterr().out)["expectations"] == {"e": {"rows": 9, "failed": 3}}
    terminal = Terminal(sys.stdout)
    terminal({"out": mine})
    terminal({"out": mine})
    assert capsys.readouterr().out.count("\x1b[4A") == 1


def test_progress_is_served_to_prometheus() -> None:
    mine = QueryProgress("out")
    mine.take([progress(0, 1, 40, 40, observedMetrics={"expectation e": {"rows": 9, "failed": 3}})])
    metrics = Metrics("p", port=0)
    try:
        metrics({"out": mine})
        with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        metrics.close()
    labels = 'partition="0",pipeline="p",query="out",topic="a"'
    assert f"odradek_pipeline_lag_records{{{labels}}} 60.0" in text
    labels = 'expectation="e",pipeline="p",query="out"'
    assert f"odradek_pipeline_expectation_failures{{{labels}}} 3.0" in text
