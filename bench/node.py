"""A node beside real Apache Kafka and librdkafka's mock broker: the same client, the same requests.

The client is confluent-kafka in this process, and a bare socket where the latency of one request is
asked for. Brokers take turns, round by round, and the median counts.

A consumer may hold all of a round in its queue. With librdkafka's default of 100,000 messages it
stops fetching for a whole second (``fetch.queue.backoff.ms``) whenever the broker is that far ahead
of the program, and the faster broker would come out slower.
"""

import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import brokers
from bench.brokers import Target
from bench.timing import Row
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import FrameReader, frame_request
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.records import BatchBuilder
from tests.interop.node_process import NodeProcess

ROUNDS = 5
START_ROUNDS = 5
BYTES_PER_ROUND = 80_000_000
QUEUED_MESSAGES = 1_000_000
SYNC_REQUESTS = 2_000
PRODUCE_VERSION = 9  # the newest with topics by name that all three speak
TIMEOUT_SECONDS = 60


def run() -> Iterator[Row]:
    yield from _starts()
    with ExitStack() as stack:
        targets = list(brokers.start(stack, mock=True))
        yield from _idle_memory(targets)
        for size in (100, 1024):
            yield from _throughput(targets, size)
        yield from _latency(targets)


def _starts() -> Iterator[Row]:
    """From the start of the process, on an empty folder, to the first request answered."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        versions = brokers.versions()
        spent: dict[str, list[float]] = {name: [] for name in versions}
        for number in range(START_ROUNDS + 1):
            for name, command in versions.items():
                data_dir = Path(folder) / f"{name}-{number}"
                began = time.perf_counter()
                with NodeProcess(data_dir, brokers.QUIET, command=command):
                    spent[name].append((time.perf_counter() - began) * 1000)
        for name, milliseconds in spent.items():
            # The first one may have had to compile bytecode.
            yield Row("cold start to ready", name, statistics.median(milliseconds[1:]), "ms")
        if brokers.has_kafka():
            kafka = brokers.make_kafka(Path(folder) / "kafka")
            with kafka:
                pass  # formats, too, which ours does by itself in the time above
            began = time.perf_counter()
            with kafka:
                yield Row(
                    "cold start to ready", "kafka", (time.perf_counter() - began) * 1000, "ms"
                )
    yield from _embedded_start()


def _embedded_start() -> Iterator[Row]:
    from odradek.testing.broker import Broker

    spent = []
    for _ in range(ROUNDS * 3):
        began = time.perf_counter()
        with Broker():
            spent.append((time.perf_counter() - began) * 1000)
    yield Row("embedded broker, start", "odradek", statistics.median(spent), "ms")


def _idle_memory(targets: list[Target]) -> Iterator[Row]:
    for target in targets:
        AdminClient({"bootstrap.servers": target.bootstrap_servers}).list_topics(timeout=10)
        yield Row("memory when idle", target.name, target.rss_mib(), "MiB")


class Figures:
    """What one broker did, round by round."""

    def __init__(self) -> None:
        self.mb_per_second: list[float] = []
        self.cpu_seconds: list[float] = []

    def measure(
        self, work: Callable[[Target, str, int], float], target: Target, topic: str, size: int
    ) -> None:
        cpu_seconds = target.cpu_seconds()
        self.mb_per_second.append(BYTES_PER_ROUND / 1e6 / work(target, topic, size))
        self.cpu_seconds.append(target.cpu_seconds() - cpu_seconds)

    @property
    def cpu_ms_per_100_mb(self) -> float:
        return statistics.median(self.cpu_seconds) * 1000 / (BYTES_PER_ROUND / 1e8)


def _throughput(targets: list[Target], size: int) -> Iterator[Row]:
    produced = {target: Figures() for target in targets}
    consumed = {target: Figures() for target in targets if target.keeps_data}
    for number in range(ROUNDS):
        topic = f"bench-{size}-{number}"
        for target in targets:
            _create(target, topic)
            produced[target].measure(_produce, target, topic, size)
        for target, figures in consumed.items():
            figures.measure(_consume, target, topic, size)
    for what, by_target in ((f"produce {size} B", produced), (f"consume {size} B", consumed)):
        for target, figures in by_target.items():
            yield Row(what, target.name, statistics.median(figures.mb_per_second), "MB/s")
        for target, figures in by_target.items():
            cpu_ms = figures.cpu_ms_per_100_mb
            yield Row(f"{what}, CPU of the broker for 100 MB", target.name, cpu_ms, "ms")


def _create(target: Target, topic: str) -> None:
    if not target.keeps_data:
        return  # the mock makes topics when they are asked for
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    created = admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    created[topic].result(TIMEOUT_SECONDS)


def _produce(target: Target, topic: str, size: int) -> float:
    """Return the seconds that it takes until all is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap_servers,
            "linger.ms": 5,
            "log_level": brokers.CLIENT_LOG_LEVEL,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(topic, timeout=TIMEOUT_SECONDS)
    value, count = b"x" * size, BYTES_PER_ROUND // size
    began = time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return time.perf_counter() - began


def _consume(target: Target, topic: str, size: int) -> float:
    """Return the seconds from the first record, when all is connected, to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap_servers,
            "group.id": "bench",
            "log_level": brokers.CLIENT_LOG_LEVEL,
            "enable.auto.commit": False,
            "queued.min.messages": QUEUED_MESSAGES,
            "queued.max.messages.kbytes": BYTES_PER_ROUND // 1000 * 2,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = BYTES_PER_ROUND // size
    first = consumer.consume(1, TIMEOUT_SECONDS)  # connected, and fetching
    left -= len(first)
    began = time.perf_counter()
    while left:
        got = consumer.consume(min(left, 10_000), TIMEOUT_SECONDS)
        assert got, "the broker gave less than was produced"
        left -= len(got)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def _latency(targets: list[Target]) -> Iterator[Row]:
    spent: dict[str, list[float]] = {target.name: [] for target in targets}
    cpu_ms: dict[str, list[float]] = {target.name: [] for target in targets}
    for number in range(ROUNDS):
        for target in targets:
            topic = f"latency-{number}"
            _create(target, topic)
            Producer({"bootstrap.servers": target.bootstrap_servers}).list_topics(topic, timeout=10)
            cpu_seconds = target.cpu_seconds()
            spent[target.name] += synchronous(target, topic)
            cpu_ms[target.name].append((target.cpu_seconds() - cpu_seconds) * 1e6 / SYNC_REQUESTS)
    for target in targets:
        rate = len(spent[target.name]) / (sum(spent[target.name]) / 1e6)
        yield Row("synchronous produce of 100 B", target.name, rate, "requests/s")
    for percent in (50, 99):
        for target in targets:
            cut = statistics.quantiles(spent[target.name], n=100)[percent - 1]
            yield Row(f"synchronous produce of 100 B, p{percent}", target.name, cut, "us")
    for target in targets:
        what = "synchronous produce of 100 B, CPU of the broker for 1,000"
        yield Row(what, target.name, statistics.median(cpu_ms[target.name]), "ms")


def synchronous(target: Target, topic: str) -> list[float]:
    """Return the µs of each of many produces, one after another, acks=all."""
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, b"x" * 100)
    data = PartitionProduceData(index=0, records=builder.build())
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    api = api_for_key(request.ID)
    frame = b"".join(frame_request(request, api, PRODUCE_VERSION, 1, "bench"))
    host, _, port = target.bootstrap_servers.rpartition(":")
    spent = []
    with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = FrameReader(1 << 20)
        for _ in range(SYNC_REQUESTS):
            began = time.perf_counter()
            peer.sendall(frame)
            _answer(peer, reader)
            spent.append((time.perf_counter() - began) * 1e6)
    return spent[SYNC_REQUESTS // 10 :]  # the rest warmed up


def _answer(peer: socket.socket, reader: FrameReader) -> Any:
    while (frame := reader.next_frame()) is None:
        chunk = peer.recv(1 << 16)
        assert chunk, "the broker hung up"
        reader.receive(chunk)
    return frame
