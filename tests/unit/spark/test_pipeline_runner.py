"""What ``run`` does with queries, without Spark: these only say what Spark's would say."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from odradek.client import BlockingProducer
from odradek.spark import pipeline
from odradek.spark.dead_letter_counts import count_batch
from odradek.spark.pipeline import runner
from odradek.spark.pipeline.checkpoints import Checkpoints
from odradek.spark.pipeline.display import row
from odradek.spark.pipeline.runner import OnStage, Run
from odradek.spark.pipeline.sinks import PlannedQuery
from odradek.testing.broker import Broker

POLLS_MAX = 100
TEXT = """name: p
brokers: localhost:1
checkpoint: state
source: {topics: [numbers]}
sinks:
  - {name: first, format: json, path: first}
  - {name: second, topic: second}
"""


class Progress(dict[str, Any]):
    @property
    def json(self) -> str:
        return json.dumps(self)


class Query:
    """A query that has done one batch when its source was there, and then ends."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self._events = events
        self._polls = 0

    sources: tuple[dict[str, Any], ...] = ()

    def start(self, checkpoint: str, trigger: pipeline.Trigger) -> "Query":
        self._events.append(f"{self.name} starts")
        return self

    @property
    def isActive(self) -> bool:  # noqa: N802
        return True

    @property
    def status(self) -> dict[str, str]:
        """Let the source of the second query take until the first one's batch is told."""
        self._polls += 1
        assert self._polls < POLLS_MAX, self._events
        is_there = self.name == "first" or "first has batch 0" in self._events
        return {"message": "Waiting" if is_there else "Initializing sources"}

    @property
    def lastProgress(self) -> Progress:  # noqa: N802
        return Progress(
            id=self.name,
            batchId=0,
            timestamp="2026-01-01T00:00:00.000Z",
            numInputRows=5,
            durationMs={"addBatch": 1},
            sources=list(self.sources),
        )

    @property
    def recentProgress(self) -> list[Progress]:  # noqa: N802
        return [self.lastProgress]

    def exception(self) -> None:
        return None

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        return True

    def stop(self) -> None:
        self._events.append(f"{self.name} stops")


class Unplanned(Run):
    """A run whose queries are those above."""

    def __init__(
        self, definition: pipeline.Definition, events: list[str], on_stage: OnStage = lambda _: None
    ) -> None:
        checkpoints = Checkpoints(definition.checkpoint)
        no_spark = cast("SparkSession", None)
        super().__init__(definition, no_spark, checkpoints, checkpoints.epoch(), on_stage)
        self._events = events

    def _planned(self, name: str) -> PlannedQuery:
        return cast("PlannedQuery", Query(name, self._events))


def definition(folder: Path, servers: str = "localhost:1") -> pipeline.Definition:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT.replace("localhost:1", servers))
    (folder / "state").mkdir()
    return pipeline.load(path)


def run(definition: pipeline.Definition) -> tuple[list[str], dict[str, pipeline.QueryProgress]]:
    events: list[str] = []

    def on_progress(progress: Mapping[str, pipeline.QueryProgress]) -> None:
        for name, each in progress.items():
            if each.last_batch is not None and f"{name} has batch 0" not in events:
                events.append(f"{name} has batch 0")

    ended = Unplanned(definition, events).to_its_end(
        pipeline.AvailableNow(), on_progress, lambda: False, on_stop=lambda: None
    )
    return events, ended


def test_a_query_is_shown_while_those_after_it_have_yet_to_start(tmp_path: Path) -> None:
    events, _ = run(definition(tmp_path))
    assert events == [
        *("first starts", "second starts", "first has batch 0", "second has batch 0"),
        *("first stops", "second stops"),
    ]


def test_rows_that_a_sink_put_aside_are_in_the_totals_of_its_query(tmp_path: Path) -> None:
    described = definition(tmp_path)
    checkpoints = Checkpoints(described.checkpoint)
    path = checkpoints.dead_letter_file(checkpoints.epoch(), "second")
    assert path is not None
    count_batch(path, "second", 0, 3)
    _, ended = run(described)
    assert {name: each.totals.dead_letters for name, each in ended.items()} == {
        "first": 0,
        "second": 3,
    }
    # Whether it runs or not, and also when the driver was killed before it heard of a batch.
    count_batch(path, "second", 1, 4)
    again = Checkpoints(described.checkpoint).totals(checkpoints.epoch(), ["first", "second"])
    assert {name: each.dead_letters for name, each in again.items()} == {"first": 0, "second": 7}


def test_dead_letters_of_a_batch_count_once_and_of_another_query_not_at_all(
    tmp_path: Path,
) -> None:
    described = definition(tmp_path)
    checkpoints = Checkpoints(described.checkpoint)
    path = checkpoints.dead_letter_file(checkpoints.epoch(), "second")
    assert path is not None
    for batch, dead_letters in ((0, 2), (0, 2), (1, 0), (2, 5), (2, 5), (1, 9)):
        count_batch(path, "second", batch, dead_letters)
    _, ended = run(described)
    assert ended["second"].totals.dead_letters == 7
    count_batch(path, "another", 0, 1)
    again = checkpoints.totals(checkpoints.epoch(), ["second"])
    assert again["second"].dead_letters == 7  # the last that was heard of it
    path.write_text("{")
    assert checkpoints.totals(checkpoints.epoch(), ["second"])["second"].dead_letters == 7


def test_a_checkpoint_elsewhere_has_no_place_for_counts() -> None:
    remote = Checkpoints("s3a://bucket/state")
    assert remote.dead_letter_file(remote.epoch(), "out") is None


def test_the_lag_of_a_batch_that_is_repeated_is_asked_of_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark repeats it without asking its source for what is new."""
    repeated = {"startOffset": None, "endOffset": {"numbers": {"0": 5}}, "latestOffset": None}
    monkeypatch.setattr(Query, "sources", (repeated,))
    with Broker(topics=["numbers"], memory=True) as broker:
        with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(7):
                producer.send("numbers", b"x").result()
        _, ended = run(definition(tmp_path, broker.bootstrap_servers))
    assert {name: each.total_lag for name, each in ended.items()} == {"first": 2, "second": 2}


def test_a_lag_that_nobody_knows_is_not_told_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = {"endOffset": {"numbers": {"0": 5}}}
    monkeypatch.setattr(Query, "sources", (repeated,))
    monkeypatch.setattr(runner, "ENDS_TIMEOUT_MS", 1)
    _, ended = run(definition(tmp_path))
    assert {name: each.total_lag for name, each in ended.items()} == {"first": None, "second": None}
    assert row(ended["first"])[6] == "-"


def test_what_is_started_is_said_before_there_is_any_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []
    slow = [Exception("Python worker failed to connect back in time"), None, None]
    monkeypatch.setattr(Query, "exception", lambda _: slow.pop(0))
    told = Query("first", []).lastProgress
    silent = property(lambda query: told if query.name == "first" else None)
    monkeypatch.setattr(Query, "lastProgress", silent)
    unplanned = Unplanned(definition(tmp_path), [], stages.append)

    def on_progress(_: object) -> None:
        stages.append("progress")
        unplanned._events.append("first has batch 0")

    unplanned.to_its_end(pipeline.AvailableNow(), on_progress, lambda: False, lambda: None)
    assert [each.partition(":")[0] for each in stages if each != "progress"] == [
        "planning first, second",
        "starting first",
        "starting first again",
        "starting second",
        "waiting for the first batch of second",
    ]
    assert stages.index("progress") > 3


@pytest.mark.parametrize("before", [None, "mine"])
def test_processes_of_the_driver_find_modules_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    seen: list[str | None] = []
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    monkeypatch.setattr(runner, "session", lambda *_: seen.append(os.environ.get("PYTHONPATH")))
    runner.make_session(definition(tmp_path))
    assert seen == [str(tmp_path) if before is None else f"{tmp_path}{os.pathsep}{before}"]
    assert os.environ.get("PYTHONPATH") == before
