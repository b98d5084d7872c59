"""A node beside real Apache Kafka and librdkafka's mock broker: the same client, the same requests.

Each broker is a process of its own on loopback; the client is confluent-kafka in this process, and
a bare socket where the latency of one request is asked for. Brokers take turns, round by round,
and the median counts. Kafka runs with its own defaults (1 GiB of heap) and is left out where there
is no Java or Maven; the mock keeps a few megabytes only, so it is not asked to serve much back.
"""

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.timing import Row
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import FrameReader, frame_request
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.records import BatchBuilder
from tests.interop.kafka_peer import KafkaNode
from tests.interop.node_process import NodeProcess

ROUNDS = 3
BYTES_PER_ROUND = 40_000_000
SYNC_REQUESTS = 2_000
PRODUCE_VERSION = 9  # the newest with topics by name that all three speak
TIMEOUT_SECONDS = 60
QUIET = ("--log-level", "error")
KAFKA_DEFAULTS = {"num.network.threads": "3", "num.io.threads": "8", "background.threads": "10"}
KAFKA_HEAP_MIB = 1024

_MOCK = """
import sys
from confluent_kafka import Producer
client = Producer({"test.mock.num.brokers": 1})
for broker in client.list_topics(timeout=10).brokers.values():
    print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


class Target(NamedTuple):
    name: str
    bootstrap_servers: str
    rss_mib: Callable[[], float]
    keeps_data: bool


def run() -> Iterator[Row]:
    yield from _starts()
    with ExitStack() as stack:
        targets = list(_targets(stack))
        yield from _idle_memory(targets)
        for size in (100, 1024):
            yield from _throughput(targets, size)
        yield from _latency(targets)


def _targets(stack: ExitStack) -> Iterator[Target]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-")))
    ours = stack.enter_context(NodeProcess(folder / "ours", QUIET))
    yield Target("odradek", ours.bootstrap_servers, lambda: _rss_mib(ours.process.pid), True)
    if shutil.which("java") and shutil.which("mvn"):
        kafka = KafkaNode(folder / "kafka", KAFKA_DEFAULTS, heap_mib=KAFKA_HEAP_MIB)
        stack.enter_context(kafka)
        yield Target("kafka", kafka.bootstrap_servers, lambda: _rss_mib(kafka.pid), True)
    mock = subprocess.Popen(
        [sys.executable, "-c", _MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stack.callback(mock.wait)
    stack.callback(mock.communicate)
    assert mock.stdout is not None
    address = mock.stdout.readline().strip()
    yield Target("librdkafka mock", address, lambda: _rss_mib(mock.pid), False)


def _rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _starts() -> Iterator[Row]:
    """From the start of the process, on an empty folder, to the first request answered."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        spent = []
        for number in range(ROUNDS):
            began = time.perf_counter()
            with NodeProcess(Path(folder) / str(number), QUIET):
                spent.append((time.perf_counter() - began) * 1000)
        yield Row("cold start to ready", "odradek", statistics.median(spent), "ms")
        if shutil.which("java") and shutil.which("mvn"):
            kafka = KafkaNode(Path(folder) / "kafka", KAFKA_DEFAULTS, heap_mib=KAFKA_HEAP_MIB)
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


def _throughput(targets: list[Target], size: int) -> Iterator[Row]:
    produced: dict[str, list[float]] = {target.name: [] for target in targets}
    consumed: dict[str, list[float]] = {target.name: [] for target in targets}
    for number in range(ROUNDS):
        for target in targets:
            topic = f"bench-{size}-{number}"
            _create(target, topic)
            produced[target.name].append(_produce(target, topic, size))
            if target.keeps_data:
                consumed[target.name].append(_consume(target, topic, size))
    for what, figures in ((f"produce {size} B", produced), (f"consume {size} B", consumed)):
        for target in targets:
            if figures[target.name]:
                yield Row(what, target.name, statistics.median(figures[target.name]), "MB/s")


def _create(target: Target, topic: str) -> None:
    if not target.keeps_data:
        return  # the mock makes topics when they are asked for
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    created = admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    created[topic].result(TIMEOUT_SECONDS)


def _produce(target: Target, topic: str, size: int) -> float:
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap_servers,
            "linger.ms": 5,
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
    return BYTES_PER_ROUND / 1e6 / (time.perf_counter() - began)


def _consume(target: Target, topic: str, size: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap_servers,
            "group.id": "bench",
            "enable.auto.commit": False,
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
    return BYTES_PER_ROUND / 1e6 / seconds


def _latency(targets: list[Target]) -> Iterator[Row]:
    spent: dict[str, list[float]] = {target.name: [] for target in targets}
    for number in range(ROUNDS):
        for target in targets:
            topic = f"latency-{number}"
            _create(target, topic)
            Producer({"bootstrap.servers": target.bootstrap_servers}).list_topics(topic, timeout=10)
            spent[target.name] += _synchronous(target, topic)
    for target in targets:
        rate = len(spent[target.name]) / (sum(spent[target.name]) / 1e6)
        yield Row("synchronous produce of 100 B", target.name, rate, "requests/s")
    for percent in (50, 99):
        for target in targets:
            cut = statistics.quantiles(spent[target.name], n=100)[percent - 1]
            yield Row(f"synchronous produce of 100 B, p{percent}", target.name, cut, "us")


def _synchronous(target: Target, topic: str) -> list[float]:
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
