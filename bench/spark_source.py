"""Our Spark source beside Spark's own Kafka connector, and beside rows made on the spot.

A batch query over a topic of two partitions into the ``noop`` sink, rows counted by Spark alone;
the broker is a node of ours in a process of its own, and Spark has two cores. ``arrow alone`` is a
Python data source whose batches are there already: what is left is Spark's. The best of the rounds
counts: the first one also starts Python workers and compiles Java.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.brokers import QUIET
from bench.timing import Row
from odradek.records.arrow import SCHEMA
from odradek.spark import session
from tests.interop.kafka_peer import PeerUnavailableError
from tests.interop.node_process import NodeProcess
from tests.spark.connector import connector_jars

ROUNDS = 3
PARTITIONS = 2
RECORDS = {100: 1_000_000, 1024: 200_000}
BATCH_BYTES = 4 * 1024 * 1024


def run() -> Iterator[Row]:
    try:
        jars = connector_jars()
    except PeerUnavailableError:
        jars = []
    spark = session("bench", "local[2]", {"spark.jars": ",".join(map(str, jars))})
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder,
        NodeProcess(Path(folder) / "data", QUIET) as node,
    ):
        for size, records in RECORDS.items():
            _fill(node.bootstrap_servers, f"bench-{size}", size, records)
        # Files are read up to the high watermark that a clean stop writes down.
        node.end(signal.SIGTERM)
        node.start()
        (log_dir,) = {path.parents[1] for path in Path(folder).glob("**/bench-100-0/*.log")}
        for size in RECORDS:
            yield from _compare(spark, node.bootstrap_servers, log_dir, size, bool(jars))
    spark.stop()


def _fill(servers: str, topic: str, size: int, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 200_000})
    value = b"x" * size
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _compare(
    spark: SparkSession, servers: str, log_dir: Path, size: int, has_connector: bool
) -> Iterator[Row]:
    def topic(source: str, where: dict[str, str]) -> DataFrame:
        reader = spark.read.format(source).options(**where)
        return reader.option("subscribe", f"bench-{size}").load()

    brokers = {"kafka.bootstrap.servers": servers}
    spark.dataSource.register(_made_source(size, RECORDS[size] // PARTITIONS))
    frames: dict[str, Callable[[], DataFrame]] = {
        "odradek": lambda: topic("odradek", brokers),
        "odradek, log.dirs": lambda: topic("odradek", {"log.dirs": str(log_dir)}),
        "arrow alone": lambda: spark.read.format("made").load(),
    }
    if has_connector:
        frames["kafka connector"] = lambda: topic("kafka", brokers)
    best = dict.fromkeys(frames, float("inf"))
    for _ in range(ROUNDS):
        for name, frame in frames.items():
            begun = time.perf_counter()
            frame().write.format("noop").mode("overwrite").save()
            best[name] = min(best[name], time.perf_counter() - begun)
    for name, seconds in best.items():
        yield Row(f"spark batch {size} B", name, RECORDS[size] / seconds / 1000, "krows/s")


def _made_source(size: int, records: int) -> type[DataSource]:
    """Return a source with the same rows; made here so that it travels to workers by value."""
    schema, partitions, rows_max = SCHEMA, PARTITIONS, BATCH_BYTES // size

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(partitions)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            columns = {
                "key": pa.nulls(rows_max, pa.binary()),
                "value": pa.repeat(pa.scalar(b"x" * size, pa.binary()), rows_max),
                "topic": pa.repeat(f"bench-{size}", rows_max),
                "partition": pa.repeat(pa.scalar(partition.value, pa.int32()), rows_max),
                "offset": pa.repeat(pa.scalar(1, pa.int64()), rows_max),
                "timestamp": pa.repeat(pa.scalar(1, pa.int64()), rows_max).cast(
                    pa.timestamp("us", "UTC")
                ),
                "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows_max),
            }
            batch = pa.RecordBatch.from_pydict(columns, schema=schema)
            for start in range(0, records, rows_max):
                yield batch.slice(0, min(rows_max, records - start))

    class Made(DataSource):
        @classmethod
        def name(cls) -> str:
            return "made"

        def schema(self) -> str:
            return (
                "key binary, value binary, topic string, partition int, offset long, "
                "timestamp timestamp, timestampType int"
            )

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return Reader()

    return Made
