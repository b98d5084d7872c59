"""Rows per second into a topic by Spark: our sink, both guarantees, beside Spark's own in Java.

One local Spark with two cores writes a cached DataFrame of four partitions, again and again, into a
broker of ours that is a process of its own, or into a real Kafka. Sinks take turns, round by round,
after one round that is not counted, and the median counts. Spark's sink is at-least-once only; it
is left out where its jars are not to be had, and Kafka where there is none.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack

from pyspark.sql import DataFrame, SparkSession

from bench import brokers
from bench.brokers import Target
from bench.timing import Row
from odradek.client import BlockingAdmin, NewTopic
from odradek.spark import session
from tests.interop.kafka_peer import PeerUnavailableError
from tests.spark.connector import connector_jars

ROUNDS = 3
SIZES = {100: 200_000, 1024: 50_000}
TASKS = 4
PARTITIONS = 6
SINKS = ("odradek exactly-once", "odradek at-least-once", "kafka connector")


def run() -> Iterator[Row]:
    with ExitStack() as stack:
        spark, has_connector = _session()
        stack.callback(spark.stop)
        for target in brokers.start(stack):
            for size, rows in SIZES.items():
                yield from _measure(spark, target, size, rows, SINKS[: 3 if has_connector else 2])


def _session() -> tuple[SparkSession, bool]:
    try:
        jars = connector_jars()
    except (PeerUnavailableError, RuntimeError):
        jars = []
    conf = {"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "1g"}
    return session("bench", master="local[2]", conf=conf), bool(jars)


def _measure(
    spark: SparkSession, target: Target, size: int, rows: int, sinks: tuple[str, ...]
) -> Iterator[Row]:
    topic = f"sink-{size}"
    with BlockingAdmin(bootstrap_servers=target.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)]).unwrap()
    frame = _rows(spark, size, rows)
    seconds: dict[str, list[float]] = {sink: [] for sink in sinks}
    for number in range(ROUNDS + 1):
        for sink in sinks:
            began = time.perf_counter()
            _write(frame, sink, target, topic)
            if number:
                seconds[sink].append(time.perf_counter() - began)
    frame.unpersist()
    for sink in sinks:
        what = f"rows of {size} B into {target.name}, {TASKS} tasks"
        yield Row(what, sink, rows / statistics.median(seconds[sink]), "rows/s")


def _rows(spark: SparkSession, size: int, rows: int) -> DataFrame:
    ids = spark.range(0, rows, numPartitions=TASKS)
    frame = ids.selectExpr(
        "cast(id AS string) AS key", f"lpad(cast(id AS string), {size}, 'x') AS value"
    ).cache()
    frame.count()
    return frame


def _write(frame: DataFrame, sink: str, target: Target, topic: str) -> None:
    ours = sink.startswith("odradek")
    writer = frame.write.format("odradek" if ours else "kafka").mode("append")
    writer = writer.option("kafka.bootstrap.servers", target.bootstrap_servers)
    if ours:
        writer = writer.option("deliveryGuarantee", sink.partition(" ")[2])
    writer.option("topic", topic).save()
