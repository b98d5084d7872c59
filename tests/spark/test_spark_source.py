"""The source inside Spark: found by its name, in batches and streams, with the rows that were sent.

What each option does is tested without Spark, in ``tests/unit/spark``; this is about what Spark
does with it: planning, tasks in other processes, checkpoints, triggers.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from odradek.client import BlockingAdmin, BlockingProducer, TopicPartition
from odradek.client.settings import as_settings
from odradek.testing.broker import Broker
from tests.interop.kafka_peer.golden import read_manifest, unpack
from tests.spark.patience import started
from tests.spark_reading import produce

pytestmark = pytest.mark.slow

SECONDS_MAX = 600
TRIGGERS: dict[str, dict[str, Any]] = {
    "now": {"availableNow": True},
    "always": {"processingTime": "0 seconds"},
}
COLUMNS = [
    *("key binary", "value binary", "topic string", "partition int", "offset bigint"),
    *("timestamp timestamp", "timestampType int"),
    "headers array<struct<key:string,value:binary>>",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(memory=True) as started:
        yield started


def batch(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    reader = spark.read.format("odradek").options(**options)
    return reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()


def start(
    spark: SparkSession, broker: Broker, folder: Path, trigger: str = "now", **options: str
) -> StreamingQuery:
    """Run a stream into files, until all that is there is read, or until it is stopped."""
    reader = spark.readStream.format("odradek").options(**options)
    rows = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    writer = rows.selectExpr("cast(value as string) as value").writeStream.format("text")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.trigger(**TRIGGERS[trigger])
    return started(lambda: writer.start(str(folder / "output")))


def run(spark: SparkSession, broker: Broker, folder: Path, **options: str) -> list[str]:
    query = start(spark, broker, folder, "now", **options)
    assert query.awaitTermination(SECONDS_MAX)
    return output(folder)


def output(folder: Path) -> list[str]:
    files = (folder / "output").glob("*.txt")
    return sorted(line for file in files for line in file.read_text().splitlines())


def texts(count: int, start: int = 0) -> list[str]:
    return [f"{number:03d}" for number in range(start, start + count)]


def send(broker: Broker, topic: str, values: list[str], partition: int = 0) -> None:
    produce(
        broker.bootstrap_servers, topic, [each.encode() for each in values], partition=partition
    )


@pytest.mark.seed_row("U.2")
def test_a_topic_is_a_data_frame_with_the_columns_of_sparks_kafka_source(
    spark: SparkSession, broker: Broker
) -> None:
    broker.create_topic("frame", 3)
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(300):
            value = json.dumps({"n": number, "even": number % 2 == 0}).encode()
            headers = [("h", b"x")] if number % 3 == 0 else []
            key = b"k%d" % number
            producer.send("frame", value, key, partition=number % 3, headers=headers)
        producer.send("frame", b"not json", partition=0)
    rows = batch(spark, broker, subscribe="frame", includeHeaders="true", minPartitions="6")
    assert rows.schema == StructType.fromDDL(", ".join(COLUMNS))
    assert rows.rdd.getNumPartitions() == 6
    counted = rows.selectExpr(
        "count(*)", "count(distinct partition, offset)", "count(headers)", "max(key)"
    ).first()
    assert counted is not None
    assert tuple(counted) == (301, 301, 100, bytearray(b"k99"))

    typed = batch(
        spark, broker, subscribe="frame", valueFormat="json", valueSchema="n int, even boolean"
    )
    assert typed.schema["value"].dataType.simpleString() == "struct<n:int,even:boolean>"
    summed = typed.selectExpr("sum(value.n)", "count_if(value.even)").first()
    assert summed is not None
    assert tuple(summed) == (sum(range(300)), 150)
    corrupt = typed.where("_corrupt is not null").select("_corrupt.value", "offset").collect()
    assert [tuple(row) for row in corrupt] == [(bytearray(b"not json"), 100)]


def test_wrong_options_are_refused_before_anything_runs(
    spark: SparkSession, broker: Broker
) -> None:
    with pytest.raises(AnalysisException, match="One of the following options must be specified"):
        batch(spark, broker)
    with pytest.raises(AnalysisException, match="starting offset can't be latest"):
        batch(spark, broker, subscribe="t", startingOffsets="latest").count()
    with pytest.raises(AnalysisException, match="fixed schema"):
        spark.read.format("odradek").schema("a int").option("subscribe", "t").option(
            "kafka.bootstrap.servers", "h:1"
        ).load().count()


def test_log_directories_of_a_real_kafka(spark: SparkSession, tmp_path: Path) -> None:
    data_dir = unpack("clean", tmp_path)
    reader = spark.read.format("odradek").option("log.dirs", str(data_dir))
    rows = reader.option("subscribe", "compacted,spread").load()
    found = {(row.topic, row.partition, row.offset) for row in rows.collect()}
    wanted = {
        (*_split(folder), record.offset)
        for folder, golden in read_manifest("clean").items()
        for record in golden.records
        if _split(folder)[0] in ("compacted", "spread")
    }
    assert found == wanted


def _split(folder: str) -> tuple[str, int]:
    topic, _, number = folder.rpartition("-")
    return topic, int(number)


@pytest.mark.seed_row("U.2")
def test_a_stream_goes_on_after_a_restart_with_what_is_new_and_new_partitions(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("restarted")
    options = {
        "subscribe": "restarted",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
        "commitOffsetsToGroup": "spark-lag",
    }
    send(broker, "restarted", texts(100))
    assert run(spark, broker, tmp_path, **options) == texts(100)
    batches = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    assert len(batches) == 3
    last = batches[-1].read_text().splitlines()[-1]
    assert json.loads(last) == {"restarted": {"0": 100}}

    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({"restarted": 2}).unwrap()
        send(broker, "restarted", texts(10, 100), partition=1)
        assert run(spark, broker, tmp_path, **options) == texts(110)
        committed = admin.list_group_offsets(["spark-lag"]).unwrap()["spark-lag"]
    assert {str(p): each.offset for p, each in committed.items()} == {
        "restarted-0": 100,
        "restarted-1": 10,
    }


def test_a_running_stream_takes_what_comes_and_stops_when_told(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("running")
    query = start(
        spark, broker, tmp_path, "always", subscribe="running", startingOffsets="earliest"
    )
    try:
        for first in (0, 10):
            send(broker, "running", texts(10, first))
            query.processAllAvailable()
            assert output(tmp_path) == texts(first + 10)
        progress = query.lastProgress
        assert progress is not None
        latest = progress["sources"][0]["latestOffset"]
        assert json.loads(latest) == {"running": {"0": 20}}
    finally:
        query.stop()
    assert not query.isActive


def test_a_stream_from_latest_that_fails_in_its_first_batch_loses_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Spark keeps where a batch ends, not where it begins, and asks again for that."""
    broker.create_topic("first-batch")
    send(broker, "first-batch", texts(3))
    reader = spark.readStream.format("odradek").option("subscribe", "first-batch")
    rows = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    found: list[str] = []

    def fail(_: DataFrame, number: int) -> None:
        raise RuntimeError(f"in batch {number}")

    def take(part: DataFrame, _: int) -> None:
        found.extend(row.value.decode() for row in part.select("value").collect())

    def run_with(work: Callable[[DataFrame, int], None], trigger: str) -> StreamingQuery:
        writer = rows.writeStream.foreachBatch(work).trigger(**TRIGGERS[trigger])
        return started(writer.option("checkpointLocation", str(tmp_path)).start)

    for first in (3, 5):
        with pytest.raises(StreamingQueryException, match="in batch 0"):
            run_with(fail, "always").awaitTermination(SECONDS_MAX)
        send(broker, "first-batch", texts(2, first))
    assert run_with(take, "now").awaitTermination(SECONDS_MAX)
    assert sorted(found) == texts(4, 3)


def test_data_that_aged_out_while_the_stream_was_down(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("aged-out")
    options = {"subscribe": "aged-out", "startingOffsets": "earliest"}
    send(broker, "aged-out", texts(10))
    assert run(spark, broker, tmp_path, **options) == texts(10)
    send(broker, "aged-out", texts(10, 10))
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition("aged-out", 0): 15}).unwrap()
    query = start(spark, broker, tmp_path, "now", **options)
    with pytest.raises(StreamingQueryException, match="offsets 10 to 14 are gone"):
        query.awaitTermination(SECONDS_MAX)
    kept = [*texts(10), *texts(5, 15)]
    assert run(spark, broker, tmp_path, **options, failOnDataLoss="false") == kept


def test_committed_records_only(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("transactions")
    where = {"transactional_id": "spark-read", "bootstrap_servers": broker.bootstrap_servers}
    with BlockingProducer(as_settings(where)) as producer:
        producer.init_transactions()
        for value, is_good in ((b"yes", True), (b"no", False)):
            producer.begin_transaction()
            producer.send("transactions", value, partition=0)
            producer.flush()
            if is_good:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    options = {
        "subscribe": "transactions",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    assert run(spark, broker, tmp_path, **options) == ["yes"]
    assert batch(spark, broker, subscribe="transactions").count() == 2
