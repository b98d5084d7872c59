"""DataFrames into topics, by Spark: batch and stream, both guarantees, restarts, dead letters."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.client.producer.partitioners import partition_for_key
from odradek.testing.broker import Broker
from tests.written_records import read_topic, values

pytestmark = pytest.mark.slow

SECONDS_MAX = 600
NO_OPTIONS: Mapping[str, str] = {}
GUARANTEES = ("exactly-once", "at-least-once")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(memory=True, config={"auto.create.topics.enable": "false"}) as started:
        yield started


def numbered(spark: SparkSession, count: int, tasks: int = 3) -> DataFrame:
    return spark.range(0, count, numPartitions=tasks).select(
        f.col("id").cast("string").alias("value"),
        f.concat(f.lit("k"), f.col("id") % 10).alias("key"),
    )


def expected(count: int) -> list[str]:
    return sorted(str(number) for number in range(count))


def found(broker: Broker, topic: str) -> list[str]:
    return sorted(
        (each or b"").decode() for each in values(read_topic(broker.bootstrap_servers, topic))
    )


@pytest.mark.seed_row("U.2")
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_batch_goes_where_javas_client_would_put_it(
    spark: SparkSession, broker: Broker, guarantee: str
) -> None:
    topic = f"batch-{guarantee}"
    broker.create_topic(topic, 4)
    (
        numbered(spark, 5000)
        .write.format("odradek")
        .mode("append")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
        .option("deliveryGuarantee", guarantee)
        .save()
    )
    written = read_topic(broker.bootstrap_servers, topic)
    assert sorted((each.value or b"").decode() for each in written) == expected(5000)
    for each in written:
        assert each.key is not None
        assert each.partition == partition_for_key(each.key, 4)


def test_all_columns_of_sparks_kafka_sink(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("columns-a", 3)
    broker.create_topic("columns-b", 3)
    query = """
        SELECT cast('v1' AS binary) value, cast(null AS binary) key, 'columns-a' topic, 2 partition,
            array(struct('h' AS name, cast('1' AS binary) AS content),
                  struct('n' AS name, cast(null AS binary) AS content)) headers, 'ignored' other
        UNION ALL SELECT null, cast('k' AS binary), 'columns-b', 0, null, 'ignored'
    """
    (
        spark.sql(query)
        .write.format("odradek")
        .mode("append")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("kafka.compression.type", "zstd")
        .save()
    )
    assert read_topic(broker.bootstrap_servers, "columns-a") == [
        (2, None, b"v1", [("h", b"1"), ("n", None)])
    ]
    assert read_topic(broker.bootstrap_servers, "columns-b") == [(0, b"k", None, [])]


def test_a_bad_row_fails_the_write_and_is_named(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("named", 1)
    rows = spark.range(0, 20, numPartitions=2).select(
        f.lit("v").alias("value"),
        f.when(f.col("id") == 13, None).otherwise("named").alias("topic"),
    )
    writer = rows.write.format("odradek").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    with pytest.raises(PySparkException, match="Spark partition 1, row 3: null topic"):
        writer.save()


def write_lines(folder: Path, name: str, numbers: range) -> None:
    (folder / f"{name}.txt").write_text("".join(f"{number}\n" for number in numbers))


def run_stream(
    spark: SparkSession,
    broker: Broker,
    folder: Path,
    topic: str,
    options: Mapping[str, str] = NO_OPTIONS,
    tasks: int = 2,
) -> None:
    """Take what is new in a folder, a file for each micro-batch, and end."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
    writer = (
        lines.repartition(tasks)
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(SECONDS_MAX)
    finally:
        query.stop()
    assert query.exception() is None


@pytest.mark.seed_row("U.2")
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stream_goes_on_where_it_was(
    spark: SparkSession, broker: Broker, tmp_path: Path, guarantee: str
) -> None:
    topic = f"stream-{guarantee}"
    broker.create_topic(topic, 3)
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in", "a", range(100))
    write_lines(tmp_path / "in", "b", range(100, 200))
    run_stream(spark, broker, tmp_path, topic, {"deliveryGuarantee": guarantee})
    write_lines(tmp_path / "in", "c", range(200, 300))
    run_stream(spark, broker, tmp_path, topic, {"deliveryGuarantee": guarantee})
    assert found(broker, topic) == expected(300)


@pytest.mark.seed_row("0.4")
@pytest.mark.parametrize(("marker", "copies"), [("with", 1), ("without", 2)])
def test_a_batch_that_spark_runs_again_is_written_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, marker: str, copies: int
) -> None:
    """Its commit is taken out of the checkpoint, as if Spark had died before it got there."""
    topic = f"again-{marker}"
    broker.create_topic(topic, 3)
    options = {} if marker == "with" else {"odradek.testing.withoutMarker": "true"}
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in", "a", range(100))
    run_stream(spark, broker, tmp_path, topic, options)
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    run_stream(spark, broker, tmp_path, topic, options)
    assert found(broker, topic) == sorted(expected(100) * copies)


def test_a_batch_that_spark_spreads_otherwise_the_second_time_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("spread", 3)
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in", "a", range(100))
    run_stream(spark, broker, tmp_path, "spread")
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    with pytest.raises(StreamingQueryException, match="written before with 50 rows"):
        run_stream(spark, broker, tmp_path, "spread", tasks=3)


def test_dead_letters_of_a_stream(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("fine", 1)
    broker.create_topic("dead", 1)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(f"small\n{'x' * 5000}\nalso small\n")
    options = {"deadLetterTopic": "dead", "kafka.max.request.size": "2000"}
    run_stream(spark, broker, tmp_path, "fine", options)
    assert found(broker, "fine") == ["also small", "small"]
    (letter,) = read_topic(broker.bootstrap_servers, "dead")
    reason = dict(letter.headers)["__connect.errors.exception.message"]
    assert reason is not None
    assert b"max.request.size" in reason


@pytest.mark.parametrize("mode", ["overwrite", "errorifexists"])
def test_what_a_topic_cannot_do_is_said(spark: SparkSession, broker: Broker, mode: str) -> None:
    writer = numbered(spark, 1).write.format("odradek").mode(mode).option("topic", "t")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    with pytest.raises(PySparkException, match=r"(?i)append"):
        writer.save()
