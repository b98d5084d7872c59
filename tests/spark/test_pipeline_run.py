"""Pipelines run on Spark: what comes out, what is put aside, and what a new start goes on with."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.spark import pipeline
from odradek.testing.broker import Broker
from tests.spark.pipeline_files import consume, load_definition, send

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
        files = ended["files"]
        assert files.corrupt_records == 1
        assert {name: (c.rows, c.failed) for name, c in files.expectations.items()} == {
            "small": (4, 1),
            "not seven": (3, 1),
        }
        assert ended["dead_letters"].dead_letters == 2

        status = pipeline.status(definition)
        assert not status.is_running
        assert {
            each.lag for partitions in status.queries.values() for each in partitions.values()
        } == {0}

        # Another start reads what is new, and a reset with an offset what was before.
        send(servers, "numbers", [b'{"n":9}'])
        lags = pipeline.status(definition).queries["files"].values()
        assert [each.lag for each in lags] == [1]
        pipeline.run(definition, spark=spark)
        assert [row[0] for row in rows(spark, tmp_path / "out")] == [1, 8, 9]

        epoch, folders = pipeline.reset(definition, pipeline.ToOffset(4))
        assert epoch.number == 1
        assert folders == {"files": str(tmp_path / "out-epoch-1")}
        lags = pipeline.status(definition).queries["topic"].values()
        assert [each.lag for each in lags] == [2]
        pipeline.run(definition, spark=spark)
        assert [row[0] for row in rows(spark, tmp_path / "out-epoch-1")] == [8, 9]
        assert [row[0] for row in rows(spark, tmp_path / "out")] == [1, 8, 9]
        written = [json.loads(value) for value, _ in consume(servers, "out")]
        assert sorted(each["n"] for each in written) == [1, 8, 8, 9, 9]
        assert len(consume(servers, "dead")) == 2


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


BAD_FOR_SPARK = [
    (
        "sql: SELECT nothing FROM source",
        "pipeline.yaml:7: steps[0].sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
    ),
    ("sql: SELECT a b c FROM source", "pipeline.yaml:7: steps[0].sql: [PARSE_SYNTAX_ERROR]"),
    ("python: nowhere:f", "steps[0].python: nowhere:f cannot be imported: ModuleNotFoundError"),
]


@pytest.mark.parametrize(("step", "message"), BAD_FOR_SPARK, ids=["column", "syntax", "module"])
def test_what_only_spark_can_find_is_told_with_line_and_field_before_anything_runs(
    spark: SparkSession, tmp_path: Path, step: str, message: str
) -> None:
    text = f"""source: {{topics: [numbers]}}
steps:
  - {{name: wrong, {step}}}
sinks:
  - {{name: files, format: json, path: out}}
"""
    definition = load_definition(tmp_path, "localhost:1", text)
    with pytest.raises(pipeline.DefinitionError) as caught:
        pipeline.run(definition, spark=spark)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "state" / "epoch-0").exists()
