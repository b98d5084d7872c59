"""What the Spark benchmarks share: a session, topics with records, and the CPU time of Spark.

Seconds on the wall say little on a machine that does other things too; what Spark's processes, its
JVM and the Python workers under it, have used up says more, and is told beside them. The broker's
own share is not in it.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from bench.brokers import QUIET
from bench.timing import Row
from odradek.spark import session
from tests.interop.kafka_peer import PeerUnavailableError
from tests.interop.node_process import NodeProcess
from tests.spark.connector import connector_jars

PARTITIONS = 2
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Site(NamedTuple):
    spark: SparkSession
    has_connector: bool


@contextmanager
def spark_site(conf: Mapping[str, Any] | None = None) -> Iterator[Site]:
    """Start Spark on two cores, with the connector in Java where its jars are to be had."""
    try:
        jars = connector_jars()
    except (PeerUnavailableError, RuntimeError):
        jars = []
    settings = {"spark.jars": ",".join(map(str, jars)), "spark.driver.memory": "1g"}
    spark = session("bench", "local[2]", {**settings, **(conf or {})})
    try:
        yield Site(spark, bool(jars))
    finally:
        spark.stop()


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float


def take_turns(work: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Cost]:
    """Return the least that each took in some round; the first one also warms up."""
    best = dict.fromkeys(work, Cost(float("inf"), float("inf")))
    for _ in range(rounds):
        for name, each in work.items():
            begun, used = time.perf_counter(), spark_cpu_seconds()
            each()
            cost = Cost(time.perf_counter() - begun, spark_cpu_seconds() - used)
            best[name] = Cost(*map(min, best[name], cost))
    return best


def rates(what: str, rows: int, costs: Mapping[str, Cost]) -> Iterator[Row]:
    for name, cost in costs.items():
        yield Row(what, name, rows / cost.seconds / 1000, "krows/s")
    for name, cost in costs.items():
        yield Row(f"{what}, CPU of Spark", name, cost.cpu_seconds / rows * 1e6, "µs a row")


def spark_cpu_seconds() -> float:
    """Return what the processes that this one started have used, but for brokers."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue  # it ended meanwhile
        numbers = fields.split()
        parents[int(stat.parent.name)] = int(numbers[1])
        # Workers that ended are in the sums of the daemon that forked them.
        used[int(stat.parent.name)] = sum(map(int, numbers[11:15])) if name != "odradek" else 0
    found, fresh = set[int](), {os.getpid()}
    while fresh:
        found |= fresh
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
    return sum(used[pid] for pid in found - {os.getpid()}) / _TICKS_PER_SECOND


@contextmanager
def filled_node(
    folder: Path, topics: Mapping[str, tuple[int, int]], **producer: str
) -> Iterator[tuple[str, Path]]:
    """Start a node with topics of (size, records); gives its address and its log directory."""
    with NodeProcess(folder / "data", QUIET) as node:
        for topic, (size, records) in topics.items():
            fill(node.bootstrap_servers, topic, size, records, **producer)
        # Files are read up to the high watermark that a clean stop writes down.
        node.end(signal.SIGTERM)
        node.start()
        (log_dir,) = {path.parents[1] for path in folder.glob(f"**/{next(iter(topics))}-0/*.log")}
        yield node.bootstrap_servers, log_dir


def fill(servers: str, topic: str, size: int, records: int, **settings: str) -> None:
    """Send records whose times are a millisecond apart, in turn to all partitions."""
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        made.result()
    client = {"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 200_000}
    producer = Producer({**client, **{name.replace("_", "."): v for name, v in settings.items()}})
    value, first_ms = os.urandom(size // 4).hex().encode().ljust(size, b"x"), first_time_ms(records)
    for number in range(records):
        while True:
            try:
                partition = number % PARTITIONS
                producer.produce(topic, value, partition=partition, timestamp=first_ms + number)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def first_time_ms(records: int) -> int:
    return _LAST_TIME_MS - records


_LAST_TIME_MS = int(time.time() * 1000)
