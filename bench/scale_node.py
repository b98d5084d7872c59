"""What thousands of partitions and connections cost one node: its start, its memory, its requests.

A node without a cluster, a process of its own with its defaults. Each partition has one record, so
that no log is empty. ``python -m bench scale_node``.
"""

import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.brokers import QUIET
from bench.timing import Row
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records import BatchBuilder
from tests.broker_connection import BrokerConnection
from tests.interop.node_process import NodeProcess

PARTITIONS: Final = (0, 3_000, 10_000)
TOPIC_PARTITIONS: Final = 100
TOPICS_PER_REQUEST: Final = 10
CONNECTIONS: Final = 2_000
STARTS: Final = 3
IDLE_SECONDS: Final = 10
SETTLE_SECONDS: Final = 2
PRODUCE_VERSION: Final = 9
METADATA_VERSION: Final = 12


def run() -> Iterator[Row]:
    for partitions in PARTITIONS:
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            node = NodeProcess(Path(folder) / "data", QUIET)
            for row in _measure(node, partitions):
                print(*row, file=sys.stderr, flush=True)
                yield row


def _measure(node: NodeProcess, partitions: int) -> Iterator[Row]:
    who = f"{partitions:,} partitions"
    with node:
        if partitions:
            began = time.perf_counter()
            names = create(node.port, partitions)
            yield Row("create, until all answer", who, time.perf_counter() - began, "s")
            yield Row("memory after that", who, node.rss_kib() / 1024, "MiB")
            began = time.perf_counter()
            fill(node.port, names)
            yield Row("one record for each", who, time.perf_counter() - began, "s")
        began = time.perf_counter()
        assert node.end(signal.SIGTERM) == 0
        yield Row("clean stop", who, time.perf_counter() - began, "s")
        yield from _restart(node, who)
        yield from _metadata(node, who)
        yield Row("memory after all that", who, node.rss_kib() / 1024, "MiB")
        if not partitions:
            yield from _connections(node)


def _restart(node: NodeProcess, who: str) -> Iterator[Row]:
    for number in range(STARTS):
        began = time.perf_counter()
        node.start()
        what = f"start after a clean stop, {number + 1} of {STARTS}"
        yield Row(what, who, time.perf_counter() - began, "s")
        if number < STARTS - 1:
            assert node.end(signal.SIGTERM) == 0
    yield Row("CPU of that start", who, node.cpu_seconds(), "s")
    time.sleep(SETTLE_SECONDS)
    yield Row("memory after a start", who, node.rss_kib() / 1024, "MiB")
    cpu_seconds = node.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    percent = (node.cpu_seconds() - cpu_seconds) / IDLE_SECONDS * 100
    yield Row("CPU when idle", who, percent, "% of a core")


def _metadata(node: NodeProcess, who: str) -> Iterator[Row]:
    with BrokerConnection(node.port) as connection:
        spent = []
        for _ in range(5):
            began = time.perf_counter()
            connection.ask(MetadataRequest(topics=None), MetadataResponse, METADATA_VERSION)
            spent.append(time.perf_counter() - began)
    yield Row("Metadata of all topics", who, min(spent) * 1e3, "ms")


def _connections(node: NodeProcess) -> Iterator[Row]:
    who, rss_before = f"{CONNECTIONS:,} connections", node.rss_kib()
    with ExitStack() as stack:
        began = time.perf_counter()
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(BrokerConnection(node.port))
            connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            connection.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
        spent = time.perf_counter() - began
        yield Row("connect and ask twice", who, spent * 1e6 / CONNECTIONS, "us each")
        yield Row("memory", who, (node.rss_kib() - rss_before) / CONNECTIONS, "KiB each")
        cpu_seconds = node.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        percent = (node.cpu_seconds() - cpu_seconds) / IDLE_SECONDS * 100
        yield Row("CPU when idle", who, percent, "% of a core")


def create(port: int, partitions: int, replication: int = 1) -> list[str]:
    """Create topics of ``TOPIC_PARTITIONS`` each; return their names."""
    names = [f"scale-{number:04}" for number in range(partitions // TOPIC_PARTITIONS)]
    with BrokerConnection(port) as connection:
        for at in range(0, len(names), TOPICS_PER_REQUEST):
            topics = [
                CreatableTopic(
                    name=name, num_partitions=TOPIC_PARTITIONS, replication_factor=replication
                )
                for name in names[at : at + TOPICS_PER_REQUEST]
            ]
            request = CreateTopicsRequest(topics=topics, timeout_ms=120_000)
            answer = connection.ask(request, CreateTopicsResponse)
            refused = {
                (each.name, each.error_code, each.error_message)
                for each in answer.topics
                if each.error_code
            }
            assert not refused, refused
    return names


def fill(port: int, names: list[str]) -> None:
    """Write one record into each partition of these topics."""
    records = one_record()
    with BrokerConnection(port) as connection:
        for name in names:
            data = [
                PartitionProduceData(index=index, records=records)
                for index in range(TOPIC_PARTITIONS)
            ]
            topic = TopicProduceData(name=name, partition_data=data)
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
            answer = connection.ask(request, ProduceResponse, PRODUCE_VERSION)
            (told,) = answer.responses
            assert {each.error_code for each in told.partition_responses} == {ErrorCode.NONE}


def one_record() -> bytes:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, b"x" * 100)
    return bytes(builder.build())
