"""Pipelines run on Spark: what comes out, what is put aside, and what a new start goes on with."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from odradek.cli.main import main
from odradek.spark import pipeline
from odradek.spark.pipeline.definition import DEAD_LETTERS
from odradek.spark.pipeline.origins import ORIGIN, with_origin
from odradek.spark.pipeline.steps import Frames
from odradek.testing.broker import Broker
from tests.spark.pipeline_files import consume, load_definition, send, write_definition
from tests.spark_queries import QUERIES

pytestmark = pytest.mark.slow

MESSAGE = "__connect.errors.exception.message"
TWO_SINKS = """
source: {topics: [numbers], format: json, schema: "n INT"}
tables:
  names: {format: csv, path: names.csv, schema: "n INT, name STRING"}
steps:
  - {name: parsed, sql: SELECT value.n AS n FROM source}
  - {name: doubled, python: "doubling:double"}
  - {name: named, sql: "SELECT n, twice, name FROM doubled LEFT JOIN names USING (n)"}
expectations:
  - {name: small, step: parsed, expect: n < 100, otherwise: quarantine}
  - {name: not seven, step: parsed, expect: n <> 7, otherwise: drop}
sinks:
  - {name: files, format: json, path: out}
  - {name: topic, topic: out, key: n}
dead_letters: {topic: dead}
"""
DOUBLING = """
from pyspark.sql import functions as f
@f.udf("int")
def twice(n):
    return 2 * n
def double(frame):
    return frame.withColumn("twice", twice("n"))
"""


def rows(spark: SparkSession, path: Path) -> list[tuple[object, ...]]:
    found = spark.read.schema("n INT, twice INT, name STRING").json(str(path)).orderBy("n")
    return [tuple(row) for row in found.collect()]


@pytest.mark.seed_row("U.2")
def test_every_row_comes_out_once_or_is_put_aside_and_a_reset_begins_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "names.csv").write_text("1,one\n9,nine\n")
    (tmp_path / "doubling.py").write_text(DOUBLING)
    with Broker(topics=["numbers", "out", "dead"]) as broker:
        servers = broker.bootstrap_servers
        definition = load_definition(tmp_path, servers, TWO_SINKS)
        send(servers, "numbers", [b'{"n":1}', b"no json", b'{"n":7}', b'{"n":100}', b'{"n":8}'])

        ended = pipeline.run(definition, spark=spark)

        assert rows(spark, tmp_path / "out") == [(1, 2, "one"), (8, 16, None)]
        written = [json.loads(value) for value, _ in consume(servers, "out")]
        assert sorted(each["n"] for each in written) == [1, 8]
        dead = {value: headers[MESSAGE].decode() for value, headers in consume(servers, "dead")}
        assert set(dead) == {b"no json", b'{"n":100}'}
        assert dead[b'{"n":100}'] == "expectation 'small' of 'parsed' is not met: n < 100"
        files = ended["files"].totals
        assert files.corrupt_records == 1
        assert {name: (c.rows, c.failed) for name, c in files.expectations.items()} == {
            "small": (4, 1),
            "not seven": (3, 1),
        }
        dead_letters = ended["dead_letters"].totals
        # It reads them all twice: for records that cannot be decoded, and for the expectation.
        assert (dead_letters.input_rows, dead_letters.dead_letters) == (5, 2)
        assert dead_letters.bad_rows == 0

        status = pipeline.status(definition)
        assert not status.is_running
        assert {
            each.lag for partitions in status.queries.values() for each in partitions.values()
        } == {0}
        assert status.totals["files"] == files

        # Another start reads what is new, and a reset with an offset what was before.
        send(servers, "numbers", [b'{"n":9}'])
        lags = pipeline.status(definition).queries["files"].values()
        assert [each.lag for each in lags] == [1]
        ended = pipeline.run(definition, spark=spark)
        assert [row[0] for row in rows(spark, tmp_path / "out")] == [1, 8, 9]
        totals = ended["files"].totals
        assert (totals.input_rows, totals.uncounted_batches) == (6, 0)
        assert (totals.expectations["small"].rows, totals.bad_rows) == (5, 3)

        epoch, folders = pipeline.reset(definition, pipeline.ToOffset(4))
        assert epoch.number == 1
        assert folders == {"files": str(tmp_path / "out-epoch-1")}
        status = pipeline.status(definition)
        assert [each.lag for each in status.queries["topic"].values()] == [2]
        assert status.totals["topic"].batches == 0
        pipeline.run(definition, spark=spark)
        assert [row[0] for row in rows(spark, tmp_path / "out-epoch-1")] == [8, 9]
        assert [row[0] for row in rows(spark, tmp_path / "out")] == [1, 8, 9]
        written = [json.loads(value) for value, _ in consume(servers, "out")]
        assert sorted(each["n"] for each in written) == [1, 8, 8, 9, 9]
        assert len(consume(servers, "dead")) == 2


QUARANTINE = """
source: {topics: [numbers], format: json, schema: "n INT, name STRING"}
tables:
  names: {format: csv, path: names.csv, schema: "n INT, topic STRING"}
steps:
  - {name: parsed, sql: SELECT value.* FROM source}
  - {name: joined, sql: "SELECT j.*, t.topic FROM parsed j LEFT JOIN names t USING (n) WHERE n > 0"}
  - {name: tripled, python: "tripling:triple"}
expectations:
  - {name: named, step: parsed, expect: name IS NOT NULL, otherwise: quarantine}
  - {name: small, step: tripled, expect: m < 100, otherwise: quarantine}
sinks:
  - {name: files, format: json, path: out}
dead_letters: {topic: dead}
"""
TRIPLING = """
def triple(frame):
    return frame.selectExpr("n", "n * 3 AS m", "topic").repartition(2)
"""


def test_rows_that_are_put_aside_are_whole_and_say_where_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "names.csv").write_text("70,seventy\n")
    (tmp_path / "tripling.py").write_text(TRIPLING)
    with Broker(topics={"numbers": 1, "dead": 1}) as broker:
        servers = broker.bootstrap_servers
        definition = load_definition(tmp_path, servers, QUARANTINE)
        sent = [b'{"n":1,"name":"a"}', b'{"n":2}', b'{"n":70,"name":"b"}']
        send(servers, "numbers", sent)
        pipeline.run(definition, spark=spark)
        places = [f"__connect.errors.{each}" for each in ("topic", "partition", "offset")]
        found = {
            value: [headers.get(each) for each in places]
            for value, headers in consume(servers, "dead")
        }
        assert found == {
            b'{"n":2,"name":null}': [b"numbers", b"0", b"1"],
            b'{"n":70,"m":210,"topic":"seventy"}': [b"numbers", b"0", b"2"],
        }


def test_rows_of_many_records_have_no_place(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("")
    (tmp_path / "tripling.py").write_text(TRIPLING)
    definition = load_definition(tmp_path, "localhost:1", QUARANTINE)
    frames = Frames(definition, spark, DEAD_LETTERS, {})
    (source,) = frames._rejects.origins
    tripled = with_origin(frames["tripled"], source)
    assert tripled is not None
    assert tripled.columns == ["n", "m", "topic", ORIGIN]
    counts = frames["tripled"].groupBy("n").count()
    twice = frames["tripled"].join(frames["parsed"], "n")
    assert [with_origin(each, source) for each in (counts, twice)] == [None, None]


def test_an_expectation_that_must_hold_stops_all_before_the_batch_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = """
source: {topics: [numbers], format: json, schema: "n INT"}
expectations:
  - {name: positive, expect: value.n > 0, otherwise: fail}
sinks:
  - {name: files, format: json, path: out}
"""
    with Broker(topics=["numbers"]) as broker:
        definition = load_definition(tmp_path, broker.bootstrap_servers, text)
        send(broker.bootstrap_servers, "numbers", [b'{"n":1}', b'{"n":-5}'])
        with pytest.raises(pipeline.PipelineError) as caught:
            pipeline.run(definition, spark=spark)
        told = str(caught.value)
        assert told.startswith("files: expectation 'positive' of 'source' is not met: value.n > 0:")
        assert '"n":-5' in told
        assert not list((tmp_path / "state" / "epoch-0" / "files" / "commits").glob("[0-9]*"))


LIVE = """
source: {topics: [numbers], format: json, schema: "n INT", key_format: utf8}
sinks:
  - {name: copy, topic: out}
  - {name: files, format: json, path: out}
"""


def test_a_reset_to_a_time_reads_again_from_there_and_goes_on_live(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Broker(topics=["numbers", "out"]) as broker:
        servers = broker.bootstrap_servers
        path = write_definition(tmp_path, servers, LIVE)
        definition = pipeline.load(path)
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        hour_ms = int(hour.timestamp()) * 1000
        send(servers, "numbers", [b'{"n":1}'], timestamp_ms=hour_ms - 1)
        send(servers, "numbers", [b'{"n":2}', b'{"n":3}'], timestamp_ms=hour_ms)
        pipeline.run(definition, spark=spark)
        command = ["pipeline", "reset", str(path), "--to-datetime", hour.isoformat()]
        assert "numbers-0 1\n" in CliRunner().invoke(main, command).stdout

        totals: dict[str, int] = {}

        def on_progress(progress: Mapping[str, pipeline.QueryProgress]) -> None:
            was_behind = sum(totals.values()) < 4
            totals.update({name: each.totals.input_rows for name, each in progress.items()})
            if was_behind and sum(totals.values()) == 4:
                send(servers, "numbers", [b'{"n":4}'])  # both have caught up, and go on

        pipeline.run(
            definition,
            spark=spark,
            trigger=pipeline.Every(""),
            on_progress=on_progress,
            should_stop=lambda: sum(totals.values()) == 6,
        )
        # What was decoded is encoded again.
        written = [value for value, _ in consume(servers, "out")]
        assert written == [b'{"n":%d}' % n for n in (1, 2, 3, 2, 3, 4)]
        again = spark.read.schema("value STRUCT<n: INT>").json(str(tmp_path / "out-epoch-1"))
        assert sorted(row["value"]["n"] for row in again.collect()) == [2, 3, 4]


LARGE_ROWS = """
source: {topics: [texts], format: utf8}
steps:
  - {name: texts, sql: SELECT value FROM source}
  - {name: counts, sql: "SELECT value, count(*) AS c FROM texts GROUP BY value"}
sinks:
  - {name: added, step: texts, topic: out, options: {kafka.max.request.size: 2000}}
  - {name: changed, step: counts, mode: update, topic: changed,
     options: {kafka.max.request.size: 2000}}
dead_letters: {topic: dead}
spark: {conf: {spark.sql.shuffle.partitions: 2}}
"""


def dead_letters(definition: pipeline.Definition) -> dict[str, int]:
    totals = pipeline.status(definition).totals
    return {name: each.dead_letters for name, each in totals.items()}


def test_rows_that_a_topic_refuses_are_counted_as_dead_letters_of_its_sink(
    spark: SparkSession, tmp_path: Path
) -> None:
    with Broker(topics=["texts", "out", "changed", "dead"]) as broker:
        servers = broker.bootstrap_servers
        definition = load_definition(tmp_path, servers, LARGE_ROWS)
        send(servers, "texts", [b"small", b"x" * 3000, b"x" * 3000])
        ended = pipeline.run(definition, spark=spark)
        counted = {name: each.totals.dead_letters for name, each in ended.items()}
        assert counted == {"added": 2, "changed": 1, "dead_letters": 0}
        assert len(consume(servers, "dead")) == 3

        # As if Spark had died before it knew that the batch was done: it comes again.
        for path in (tmp_path / "state/epoch-0/added/commits").iterdir():
            path.unlink()
        send(servers, "texts", [b"x" * 3001])
        pipeline.run(definition, spark=spark)
        assert dead_letters(definition) == {"added": 3, "changed": 2, "dead_letters": 0}
        assert len(consume(servers, "dead")) == 5
        pipeline.reset(definition, pipeline.ToOffset(4))
        assert set(dead_letters(definition).values()) == {0}


def test_queries_of_which_nothing_is_said_are_those_that_spark_takes(spark: SparkSession) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    for sql in QUERIES:
        parser.parsePlan(sql.rstrip(";"))


BAD_FOR_SPARK = [
    (
        "sql: SELECT nothing FROM source",
        "pipeline.yaml:7: steps[0].sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
    ),
    ("sql: SELECT a b c FROM source", "pipeline.yaml:7: steps[0].sql: [PARSE_SYNTAX_ERROR]"),
    ("python: nowhere:f", "steps[0].python: nowhere:f cannot be imported: ModuleNotFoundError"),
    (
        "python: json:loads",
        "steps[0].python: json:loads failed: TypeError: the JSON object must be",
    ),
    ("python: builtins:id", "steps[0].python: builtins:id returned int, not a DataFrame"),
    (
        "sql: SELECT count(*) FROM source",
        "pipeline.yaml:9: sinks[0]: [STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]",
    ),
    (
        "sql: SELECT offset AS value FROM source",
        "pipeline.yaml:10: sinks[1]: value attribute unsupported type bigint",
    ),
    (
        "watermark: {column: at, delay: 1 minute}, sql: SELECT value FROM source",
        "pipeline.yaml:7: steps[0].sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
    ),
]


@pytest.mark.parametrize(
    ("step", "message"), BAD_FOR_SPARK, ids=[each[0] for each in BAD_FOR_SPARK]
)
def test_what_only_spark_can_find_is_told_with_line_and_field_before_anything_runs(
    spark: SparkSession, tmp_path: Path, step: str, message: str
) -> None:
    text = f"""source: {{topics: [numbers]}}
steps:
  - {{name: wrong, {step}}}
sinks:
  - {{name: files, format: json, path: out}}
  - {{name: topic, topic: out}}
"""
    definition = load_definition(tmp_path, "localhost:1", text)
    with pytest.raises(pipeline.DefinitionError) as caught:
        pipeline.run(definition, spark=spark)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "state" / "epoch-0").exists()


def test_a_schema_that_spark_cannot_read_is_told_as_it_is_in_the_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = """source:
  topics: [numbers]
  format: json
  schema: n INTT
sinks:
  - {name: files, format: json, path: out}
"""
    definition = load_definition(tmp_path, "localhost:1", text)
    with pytest.raises(pipeline.DefinitionError, match=r":8: source\.schema: .*INTT"):
        pipeline.plan(definition, spark)
