"""Rows per second into a topic by Spark: our sink, both guarantees, beside Spark's own in Java.

One local Spark with two cores writes a cached DataFrame of four partitions, or Parquet files, or
these as a stream in micro-batches, into a broker of ours that is a process of its own, or into a
real Kafka. Sinks take turns, and the best round counts. Spark's sink is at-least-once only; it is
left out where its jars are not to be had, and Kafka where there is none. ``python alone`` counts
the rows that it gets: what is left is Spark's, and no sink in Python can be faster.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench import brokers
from bench.brokers import Target
from bench.spark_made import counting_sink
from bench.spark_site import Site, rates, spark_site, take_turns
from bench.timing import Row
from odradek.client import BlockingAdmin, NewTopic

ROUNDS = 3
SIZES = {100: 200_000, 1024: 50_000}
TASKS = 4
PARTITIONS = 6
ALONE = "python_alone"
SINKS = ("odradek exactly-once", "odradek at-least-once", "python alone", "kafka connector")
SECONDS_MAX = 600


def run() -> Iterator[Row]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-")))
        site = stack.enter_context(spark_site())
        site.spark.dataSource.register(counting_sink(ALONE))
        for target in brokers.start(stack):
            for size, rows in SIZES.items():
                yield from _Bench(site, target, folder, size, rows).run()


class _Bench:
    def __init__(self, site: Site, target: Target, folder: Path, size: int, rows: int) -> None:
        self._site, self._target, self._folder = site, target, folder
        self._size, self._rows = size, rows
        self._topic, self._files = f"sink-{size}", str(folder / f"rows-{target.name}-{size}")

    def run(self) -> Iterator[Row]:
        with BlockingAdmin(bootstrap_servers=self._target.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(self._topic, PARTITIONS)]).unwrap()
        cached = self._made().cache()
        cached.write.parquet(self._files)
        read = self._site.spark.read.parquet(self._files)
        ways: dict[str, Callable[[str], None]] = {
            "cached rows": partial(self._batch, cached),
            "Parquet": partial(self._batch, read),
            "a stream of Parquet": self._stream,
        }
        for name, write in ways.items():
            sinks = SINKS if self._site.has_connector else SINKS[:-1]
            costs = take_turns({sink: partial(write, sink) for sink in sinks}, ROUNDS)
            what = f"{name} of {self._size} B into {self._target.name}"
            yield from rates(what, self._rows, costs)
        cached.unpersist()

    def _made(self) -> DataFrame:
        ids = self._site.spark.range(0, self._rows, numPartitions=TASKS)
        value = f"lpad(cast(id AS string), {self._size}, 'x') AS value"
        return ids.selectExpr("cast(id AS string) AS key", value)

    def _options(self, sink: str) -> tuple[str, dict[str, str]]:
        options = {
            "kafka.bootstrap.servers": self._target.bootstrap_servers,
            "topic": self._topic,
        }
        if sink.startswith("odradek"):
            return "odradek", {**options, "deliveryGuarantee": sink.partition(" ")[2]}
        if sink.startswith("python"):
            return ALONE, {}
        return "kafka", options

    def _batch(self, rows: DataFrame, sink: str) -> None:
        name, options = self._options(sink)
        writer: DataFrameWriter = rows.write.format(name).mode("append")
        writer.options(**options).save()

    def _stream(self, sink: str) -> None:
        """A file is a micro-batch."""
        name, options = self._options(sink)
        reader = self._site.spark.readStream.schema("key string, value string")
        rows = reader.option("maxFilesPerTrigger", 1).parquet(self._files)
        checkpoint = Path(tempfile.mkdtemp(dir=self._folder))
        writer: DataStreamWriter = rows.writeStream.format(name).options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(SECONDS_MAX)
        assert query.exception() is None
        shutil.rmtree(checkpoint)
