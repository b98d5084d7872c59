"""From a record that is sent to what a stream made of it: how long, in milliseconds.

A record with the time in it is sent every 50 ms; a stream of Spark reads it, changes it a little
and writes it to another topic, where a consumer of committed records takes it; or ``foreachBatch``
takes it. Checkpoints are on a local disk. Then how long the parts of a micro-batch took by Spark's
own account. Ours, exactly once and at least once, beside Spark's connector, which has the latter.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from bench.brokers import QUIET
from bench.spark_site import Site, spark_site
from bench.timing import Row
from tests.interop.node_process import NodeProcess

SECONDS = 30
INTERVAL_SECONDS = 0.05
WARM_BATCHES = 10
SECONDS_MAX = 300
PHASES = (
    *("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets"),
    "triggerExecution",
)


class Case(NamedTuple):
    name: str
    format: str
    sink: dict[str, str] | None
    """Options of the sink; None: ``foreachBatch``."""


CASES = (
    Case("odradek exactly-once", "odradek", {"deliveryGuarantee": "exactly-once"}),
    Case("odradek at-least-once", "odradek", {"deliveryGuarantee": "at-least-once"}),
    Case("kafka connector", "kafka", {}),
    Case("odradek, foreachBatch", "odradek", None),
    Case("kafka connector, foreachBatch", "kafka", None),
)


def run() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder,
        NodeProcess(Path(folder) / "data", QUIET) as node,
        spark_site() as site,
    ):
        cases = [each for each in CASES if each.format == "odradek" or site.has_connector]
        found = {
            case.name: _Run(site, node.bootstrap_servers, Path(folder) / f"run-{number}", case)
            for number, case in enumerate(cases)
        }
        for each in found.values():
            each.run()
        for percent in (50, 99):
            for name, each in found.items():
                yield Row(f"end to end, p{percent}", name, each.percentile(percent), "ms")
        for phase in PHASES:
            for name, each in found.items():
                yield Row(f"a micro-batch, median of {phase}", name, each.median(phase), "ms")


class _Run:
    def __init__(self, site: Site, servers: str, folder: Path, case: Case) -> None:
        self._site, self._servers, self._folder, self._case = site, servers, folder, case
        self._input, self._output = f"in-{folder.name}", f"out-{folder.name}"
        self._latencies_ms: list[float] = []
        self._phases: dict[str, list[int]] = {phase: [] for phase in PHASES}
        self._is_counting = threading.Event()

    def run(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._servers})
        topics = [NewTopic(name, 1, 1) for name in (self._input, self._output)]
        for made in admin.create_topics(topics).values():
            made.result()
        with ExitStack() as stack:
            query = self._start()
            stack.callback(query.stop)
            stack.enter_context(_in_background(self._send))
            if self._case.sink is not None:
                stack.enter_context(_in_background(self._receive))
            _await(lambda: _batches(query) >= WARM_BATCHES, query)
            begin = _batches(query)
            self._is_counting.set()
            time.sleep(SECONDS)
            self._is_counting.clear()
            for progress in query.recentProgress:
                if progress.batchId > begin and progress.numInputRows:
                    for phase in PHASES:
                        self._phases[phase].append(progress.durationMs.get(phase, 0))

    def percentile(self, percent: int) -> float:
        return statistics.quantiles(self._latencies_ms, n=100)[percent - 1]

    def median(self, phase: str) -> float:
        # Spark counts whole milliseconds; ratios are formed of these.
        return max(0.5, statistics.median(self._phases[phase]))

    def _start(self) -> StreamingQuery:
        reader = self._site.spark.readStream.format(self._case.format)
        reader = reader.option("kafka.bootstrap.servers", self._servers)
        rows = reader.option("subscribe", self._input).load().selectExpr("key", "value AS value")
        writer = rows.writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
        if self._case.sink is None:
            return writer.foreachBatch(self._take).start()
        writer = writer.format(self._case.format).options(**self._case.sink)
        writer = writer.option("kafka.bootstrap.servers", self._servers)
        return writer.option("topic", self._output).start()

    def _take(self, rows: DataFrame, _: int) -> None:
        for row in rows.select("value").collect():
            self._count(bytes(row.value))

    def _count(self, value: bytes) -> None:
        if self._is_counting.is_set():
            self._latencies_ms.append((time.time_ns() - int(value)) / 1e6)

    def _send(self, is_over: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        while not is_over.wait(INTERVAL_SECONDS):
            producer.produce(self._input, b"%d" % time.time_ns())
            producer.poll(0)
        producer.flush()

    def _receive(self, is_over: threading.Event) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._output,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 500,
            }
        )
        consumer.subscribe([self._output])
        while not is_over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._count(message.value() or b"")
        consumer.close()


@contextmanager
def _in_background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    is_over = threading.Event()
    thread = threading.Thread(target=work, args=(is_over,))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _batches(query: StreamingQuery) -> int:
    return -1 if query.lastProgress is None else query.lastProgress.batchId


def _await(is_so: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "the stream does not get on"
        time.sleep(0.1)
