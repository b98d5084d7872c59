"""Epochs, totals and the lock of a pipeline, and progress as Spark tells it."""

import io
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from odradek.core.ids import TopicPartition
from odradek.spark.pipeline.checkpoints import CheckpointError, Checkpoints
from odradek.spark.pipeline.display import JsonLines, Lines, Metrics, Terminal, table
from odradek.spark.pipeline.progress import QueryProgress
from odradek.spark.pipeline.totals import Count, Totals

P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)


def progress(batch: int, moment: int, rows: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-01T00:00:{moment:02}.000Z",
        "id": "q",
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


def test_who_asks_whether_it_runs_keeps_nobody_from_running_it(tmp_path: Path) -> None:
    mine, other = Checkpoints(str(tmp_path)), Checkpoints(str(tmp_path))
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            other.is_locked()

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        try:
            for _ in range(1000):
                with mine.lock():
                    assert other.is_locked()
        finally:
            is_over.set()
        looking.result()


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
    totals = mine.totals
    assert (totals.batches, totals.input_rows, mine.last_batch) == (2, 50, 1)
    assert mine.offsets == {P0: 50}
    assert mine.lag == {P0: 50}
    assert totals.expectations == {"e": Count(50, 4)}
    assert (totals.corrupt_records, totals.dead_letters) == (2, 5)
    assert totals.bad_rows == 6
    assert mine.as_json()["lag"] == {"a-0": 50}


def test_a_lag_that_nobody_has_told_is_not_zero() -> None:
    repeated = progress(0, 1, 40, 40)
    repeated["sources"] = [{"endOffset": {"a": {"0": 40}}, "latestOffset": None}]
    mine = QueryProgress("out")
    mine.take([repeated])
    assert (mine.needs_ends, mine.total_lag, mine.as_json()["lag"]) == (True, None, {})
    assert table({"out": mine})[1].split() == "out 0 40 0 10 250 - 0 0".split()
    mine.measure({P0: 45, P1: 3})
    assert (mine.needs_ends, mine.lag) == (False, {P0: 5})


def test_a_record_counts_once_however_often_it_is_read() -> None:
    mine = QueryProgress("dead_letters")
    observed = {"source": {"rows": 20, "failed": 0}, "dead letters": {"rows": 1, "failed": 1}}
    mine.take([progress(0, 1, 40, 40, observedMetrics=observed)])
    assert (mine.totals.input_rows, mine.totals.dead_letters) == (20, 1)
    assert mine.processed_rows_per_second == 5.0


def test_totals_go_on_from_one_run_to_the_next_and_say_what_they_missed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    epoch = checkpoints.epoch()
    first = QueryProgress("out", checkpoints.totals(epoch, ["out"])["out"])
    observed = {"expectation e": {"rows": 40, "failed": 3}}
    first.take([progress(0, 1, 40, 40, observedMetrics=observed)])
    checkpoints.keep_totals(epoch, {"out": first.totals})

    second = QueryProgress("out", checkpoints.totals(epoch, ["out"])["out"])
    assert second.last_batch is None
    # Batch 1 was committed when the driver was killed, and nobody heard of it.
    second.take([progress(0, 10, 40, 40), progress(2, 11, 5, 60, observedMetrics=observed)])
    totals = second.totals
    assert (totals.batches, totals.input_rows, totals.uncounted_batches) == (2, 45, 1)
    assert totals.expectations == {"e": Count(80, 6)}

    # Somebody threw the checkpoint of the query away: it is another one now.
    second.take([progress(0, 20, 7, 7, id="another")])
    totals = second.totals
    assert (totals.batches, totals.input_rows, totals.uncounted_batches) == (1, 7, 0)
    assert checkpoints.totals(checkpoints.begin_epoch({P0: 1}), ["out"]) == {"out": Totals()}


@pytest.mark.parametrize("written", ["{", "[]", '{"out": {}}', '{"out": []}'])
def test_damaged_totals_begin_anew(tmp_path: Path, written: str) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    (tmp_path / "totals-0.json").write_text(written)
    mine = QueryProgress("out", checkpoints.totals(checkpoints.epoch(), ["out"])["out"])
    mine.take([progress(3, 1, 40, 40)])
    assert (mine.totals.input_rows, mine.totals.uncounted_batches) == (40, 3)


def test_a_remote_checkpoint_counts_from_the_start_of_a_run() -> None:
    remote = Checkpoints("s3a://bucket/state")
    totals = remote.totals(remote.epoch(), ["out"])
    mine = QueryProgress("out", totals["out"])
    mine.take([progress(7, 1, 40, 40), progress(8, 2, 1, 41)])
    assert (mine.totals.input_rows, mine.totals.uncounted_batches) == (41, 0)
    remote.keep_totals(remote.epoch(), totals)


def test_progress_is_shown_as_a_table_lines_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    mine = QueryProgress("out")
    mine.take([progress(0, 1, 40, 40, observedMetrics={"expectation e": {"rows": 9, "failed": 3}})])
    lines = table({"out": mine})
    assert lines == [
        "QUERY  BATCH  ROWS  IN/S  DONE/S  BATCH MS  LAG  BAD  DEAD",
        "out        0    40     0      10       250   60    3     0",
        "  expectation 'e': 3 of 9 rows failed",
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
    # A note takes the place of the table, and stays: the next one is drawn below it.
    terminal.note("starting more")
    terminal({"out": mine})
    assert capsys.readouterr().out.startswith("\x1b[4A\x1b[2Kstarting more\n\x1b[J\x1b[2KQUERY")


def test_an_expectation_is_told_once_as_the_query_has_it_that_is_ahead() -> None:
    shown = {}
    for number, name in enumerate(("slow", "fast")):
        shown[name] = QueryProgress(name)
        counts = {"expectation e": {"rows": 10 * number + 10, "failed": number}}
        shown[name].take([progress(0, 1, 40, 100, observedMetrics=counts)])
    assert table(shown)[3:] == ["  expectation 'e': 1 of 20 rows failed"]


class SmallScreen(io.StringIO):
    def fileno(self) -> int:
        return 1


def test_a_table_is_cut_to_the_size_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = QueryProgress("out")
    mine.take([progress(0, 1, 40, 40, observedMetrics={"expectation e": {"rows": 9, "failed": 3}})])
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((20, 3)))
    out = SmallScreen()
    Terminal(out)({"out": mine})
    assert out.getvalue() == "\x1b[2KQUERY  BATCH  ROWS \n\x1b[2Kout        0    40 \n\x1b[J"


def test_a_run_that_goes_on_tells_only_of_its_own_batches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Lines(sys.stdout)({"out": QueryProgress("out", Totals("q", 5, batches=6, input_rows=60))})
    assert capsys.readouterr().out == ""


def test_progress_is_served_to_prometheus() -> None:
    mine = QueryProgress("out")
    mine.take([progress(0, 1, 40, 40, observedMetrics={"expectation e": {"rows": 9, "failed": 3}})])
    metrics = Metrics("p", port=0)
    try:
        metrics({"out": mine})
        with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=120) as answer:
            text = answer.read().decode()
    finally:
        metrics.close()
    labels = 'partition="0",pipeline="p",query="out",topic="a"'
    assert f"odradek_pipeline_lag_records{{{labels}}} 60.0" in text
    labels = 'expectation="e",pipeline="p",query="out"'
    assert f"odradek_pipeline_expectation_failures{{{labels}}} 3.0" in text
