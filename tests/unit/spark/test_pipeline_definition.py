"""What is said of pipeline files: all that is wrong with one, and what a sound one means."""

import textwrap
from pathlib import Path

import pytest

from odradek.spark.pipeline.definition import (
    AvailableNow,
    Every,
    FormatSink,
    Once,
    PythonStep,
    Watermark,
)
from odradek.spark.pipeline.loading import load, parse
from odradek.spark.pipeline.yaml_positions import FILE_BYTES_MAX, DefinitionError

SOUND = """\
name: orders
brokers: localhost:9092
source: {topics: [orders], format: json, schema: id STRING}
steps:
  - name: parsed
    sql: SELECT value.* FROM source
sinks:
  - {name: out, topic: out}
dead_letters: {topic: dead}
checkpoint: state
"""


def read_changes() -> list[tuple[str, str, list[str]]]:
    """Return what is replaced, by what, and all that is said of it."""
    text = Path(__file__).with_name("pipeline_mistakes.txt").read_text()
    changes = []
    for block in text.split("\n\n")[1:]:
        old, new, *messages = (line[2:] for line in block.strip("\n").splitlines())
        changes.append((old.replace("\\n", "\n"), new.replace("\\n", "\n"), messages))
    return changes


CHANGES = read_changes()


@pytest.mark.parametrize(
    ("old", "new", "messages"), CHANGES, ids=[each[1][:40] for each in CHANGES]
)
def test_all_that_is_wrong_is_told_with_line_and_field(
    old: str, new: str, messages: list[str]
) -> None:
    assert old in SOUND
    with pytest.raises(DefinitionError) as caught:
        parse(SOUND.replace(old, new, 1), file="orders.yaml", environment={})
    told = [str(problem).removeprefix("orders.yaml:") for problem in caught.value.problems]
    assert told == messages


def test_a_sound_file_is_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(
        textwrap.dedent("""\
            name: orders
            brokers: ${BROKERS}
            kafka: {client.id: ours}
            source:
              pattern: orders-.*
              start: 2026-01-31T12:00:00Z
              records_per_batch_max: 100
            tables:
              customers: {format: csv, path: customers.csv}
            steps:
              - name: joined
                sql: |
                  WITH seen AS (SELECT * FROM source)
                  SELECT extract(HOUR FROM at), trim(BOTH 'x' FROM name) -- FROM nowhere
                  FROM seen JOIN customers ON true JOIN prod.db.more
                watermark: {column: at, delay: 5 minutes}
              - {name: scored, python: "scores:add"}
            sinks:
              - {name: files, format: parquet, path: out, partition_by: day}
              - {name: shown, step: joined, format: console}
            trigger: {every: 5 seconds}
            checkpoint: s3a://bucket/state
            spark: {remote: "sc://server"}
            """)
    )
    definition = load(path, environment={"BROKERS": "a:1"})
    options = definition.source_options("files")
    assert options["kafka.bootstrap.servers"] == "a:1"
    assert options["kafka.client.id"] == "ours"
    assert options["subscribePattern"] == "orders-.*"
    assert options["startingTimestamp"] == "1769860800000"
    assert options["maxOffsetsPerTrigger"] == "100"
    assert options["commitOffsetsToGroup"] == "orders.files"
    joined, scored = definition.steps
    assert joined.watermark == Watermark("at", "5 minutes")
    assert isinstance(scored, PythonStep)
    assert scored.inputs == ("joined",)
    files, shown = definition.sinks
    assert isinstance(files, FormatSink)
    assert (files.step, files.partition_by) == ("scored", ("day",))
    assert files.path_of(0) == str(tmp_path / "out")
    assert files.path_of(2) == str(tmp_path / "out-epoch-2")
    assert shown.step == "joined"
    assert definition.tables[0].path == str(tmp_path / "customers.csv")
    assert definition.checkpoint == "s3a://bucket/state"
    assert definition.spark.master == "sc://server"
    assert definition.trigger == Every("5 seconds")
    assert definition.queries == ("files", "shown")


@pytest.mark.parametrize(
    ("text", "trigger"),
    [("available_now", AvailableNow()), ("availableNow", AvailableNow()), ("once", Once())],
)
def test_triggers_have_sparks_names(text: str, trigger: object) -> None:
    assert parse(f"{SOUND}trigger: {text}\n").trigger == trigger


def test_a_file_with_dead_letters_has_a_query_for_them() -> None:
    assert parse(SOUND).queries == ("out", "dead_letters")
    assert parse(SOUND).source.corrupt == "dead_letters"
    without = SOUND.replace("dead_letters: {topic: dead}\n", "")
    assert parse(without).source.corrupt == "fail"


def test_aliases_cannot_make_a_small_file_large() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(DefinitionError, match="more values than a pipeline can have"):
        parse("\n".join(levels))


def test_a_file_that_is_too_large_or_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="larger than"):
        parse("#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(DefinitionError, match=r"nowhere\.yaml:1: cannot be read"):
        load(tmp_path / "nowhere.yaml")
