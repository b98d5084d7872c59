"""Spark's own Kafka connector, a Java client inside Spark, reads from us what our source reads."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from odradek.client import BlockingProducer
from odradek.client.settings import as_settings
from odradek.testing.broker import Broker
from tests.spark.patience import started

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_connector")]

SECONDS_MAX = 600
CODECS = ("none", "gzip", "lz4", "zstd")


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    """A topic with transactions, codecs, headers, nulls; and the options to read all of it."""
    with Broker(memory=True) as broker:
        broker.create_topic("t", 3, retention_ms="-1")
        servers = broker.bootstrap_servers
        for partition, codec in enumerate(CODECS):
            _fill(servers, codec, partition % 3)
        yield {
            "kafka.bootstrap.servers": servers,
            "subscribe": "t",
            "includeHeaders": "true",
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        }


def _fill(servers: str, codec: str, partition: int) -> None:
    settings = {"bootstrap_servers": servers, "transactional_id": codec, "compression_type": codec}
    with BlockingProducer(as_settings(settings)) as producer:
        producer.init_transactions()
        for round_number in range(3):
            producer.begin_transaction()
            for number in range(20):
                value = None if number == 5 else f"{codec}-{round_number}-{number}".encode()
                headers = [("a", b"1"), ("a", None)] if number % 2 else []
                time_ms = 1_700_000_000_000 + number
                key = b"k" if number % 3 else None
                producer.send(
                    *("t", value, key), partition=partition, headers=headers, timestamp=time_ms
                )
            producer.flush()
            if round_number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def read_batch(spark: SparkSession, source: str, options: dict[str, str]) -> list[Row]:
    rows = spark.read.format(source).options(**options).load()
    return rows.orderBy("partition", "offset").collect()


def read_stream(
    spark: SparkSession, source: str, options: dict[str, str], checkpoint: Path
) -> tuple[list[Row], list[str]]:
    """Return the rows and the end offsets of all batches, in the checkpoint's words."""
    rows = spark.readStream.format(source).options(**options).load()
    writer = rows.writeStream.format("memory").queryName(f"{source}_rows")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = started(writer.start)
    assert query.awaitTermination(SECONDS_MAX)
    ends = [
        file.read_text().splitlines()[-1]
        for file in sorted((checkpoint / "offsets").glob("[0-9]*"))
    ]
    return spark.table(f"{source}_rows").orderBy("partition", "offset").collect(), ends


def test_a_batch_has_the_same_rows(spark: SparkSession, options: dict[str, str]) -> None:
    theirs, ours = (read_batch(spark, source, options) for source in ("kafka", "odradek"))
    assert len(ours) == 2 * 20 * len(CODECS)
    assert ours == theirs


def test_a_stream_has_the_same_rows_and_the_same_checkpoints(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    limited = {**options, "maxOffsetsPerTrigger": "100"}
    theirs, their_ends = read_stream(spark, "kafka", limited, tmp_path / "theirs")
    ours, our_ends = read_stream(spark, "odradek", limited, tmp_path / "ours")
    assert len(ours) == 2 * 20 * len(CODECS)
    assert ours == theirs
    assert len(our_ends) > 1
    assert [json.loads(each) for each in our_ends] == [json.loads(each) for each in their_ends]


@pytest.mark.parametrize(
    "range_options",
    [
        {"startingOffsets": '{"t":{"0":5,"1":-2,"2":30}}', "endingOffsets": "latest"},
        {"startingTimestamp": "1700000000010", "endingTimestamp": "1700000000015"},
    ],
)
def test_ranges_mean_the_same(
    spark: SparkSession, options: dict[str, str], range_options: dict[str, str]
) -> None:
    limited = {**options, **range_options}
    theirs, ours = (read_batch(spark, source, limited) for source in ("kafka", "odradek"))
    assert ours
    assert ours == theirs
