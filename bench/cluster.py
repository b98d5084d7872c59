"""Three nodes of ours beside three of Kafka 4.3: start, what they take when idle, and replication.

Both clusters run on this machine, one after the other, broker and controller in one process, with
their defaults. Records go to a topic with three replicas, ``min.insync.replicas=2`` and acks=all:
many from Kafka's own ProducerPerformance with its defaults, then one after the other over a bare
socket. CPU is that of the three nodes, not of the client. ``python -m bench cluster``.
"""

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from bench.brokers import Target
from bench.clusters import cpu_seconds, create_topic, flavours, leader_of, made, pids, rss_mib
from bench.node import synchronous
from bench.timing import Row
from tests.cluster.flavours import Flavour
from tests.cluster.processes import Cluster
from tests.interop.kafka_peer import resolve_jars
from tests.interop.kafka_peer.jars import class_path, java
from tests.interop.kafka_peer.tools import MAIN_CLASSES

STARTS: Final = 3
SETTLE_SECONDS: Final = 5
IDLE_SECONDS: Final = 10
PARTITIONS: Final = 3
RECORD_BYTES: Final = 1024
RECORDS_WARMING: Final = 40_000
RECORDS: Final = 100_000
ROUNDS: Final = 3
LATENCY_ROUNDS: Final = 3
TOOL_SECONDS_MAX: Final = 600
_RESULT: Final = re.compile(r"^(\d+) records sent, [\d.]+ records/sec \(([\d.]+) MB/sec\)", re.M)
MIB: Final = 1024 * 1024


def run() -> Iterator[Row]:
    rows: list[Row] = []
    for flavour in flavours():
        for row in _measure(flavour):
            print(*row, file=sys.stderr, flush=True)  # the table comes when both are measured
            rows.append(row)
    order = {row.operation: place for place, row in reversed(list(enumerate(rows)))}
    yield from sorted(rows, key=lambda row: order[row.operation])


def _measure(flavour: Flavour) -> Iterator[Row]:
    starts = []
    for number in range(STARTS):
        with made(flavour) as cluster:
            began = time.perf_counter()
            cluster.start()
            starts.append((time.perf_counter() - began) * 1000)
            if number < STARTS - 1:
                continue
            # The first one may have had to compile bytecode.
            yield Row("start of three nodes", flavour.name, statistics.median(starts[1:]), "ms")
            yield from _idle(flavour, cluster)
            yield from _throughput(flavour, cluster)
            yield from _latency(flavour, cluster)


def _idle(flavour: Flavour, cluster: Cluster) -> Iterator[Row]:
    time.sleep(SETTLE_SECONDS)
    spent = cpu_seconds(cluster)
    time.sleep(IDLE_SECONDS)
    percent = (cpu_seconds(cluster) - spent) / IDLE_SECONDS * 100
    yield Row("idle memory of a node", flavour.name, statistics.mean(rss_mib(cluster)), "MiB")
    yield Row("idle CPU of three nodes", flavour.name, percent, "% of a core")


def _throughput(flavour: Flavour, cluster: Cluster) -> Iterator[Row]:
    create_topic(cluster, "many", PARTITIONS)
    _produce(cluster, RECORDS_WARMING)
    spent, speeds = cpu_seconds(cluster), []
    for _ in range(ROUNDS):
        speeds.append(_produce(cluster, RECORDS))
    megabytes = ROUNDS * RECORDS * RECORD_BYTES / 1e6
    cpu_ms = (cpu_seconds(cluster) - spent) * 1000 / megabytes
    yield Row("produce 1 KiB, acks=all, RF 3", flavour.name, statistics.median(speeds), "MB/s")
    yield Row("produce 1 KiB, CPU of three nodes for a MB", flavour.name, cpu_ms, "ms")


def _produce(cluster: Cluster, records: int) -> float:
    """Run Kafka's tool; returns MB/s as it says."""
    libs = class_path(resolve_jars())
    tool = [java(), "-Xmx512M", "-cp", libs, MAIN_CLASSES["producer-perf-test"]]
    what = {"topic": "many", "num-records": records, "record-size": RECORD_BYTES, "throughput": -1}
    arguments = [str(each) for name, value in what.items() for each in (f"--{name}", value)]
    servers = f"bootstrap.servers={cluster.bootstrap_servers}"
    shown = subprocess.run(
        [*tool, *arguments, "--producer-props", "acks=all", servers],
        capture_output=True,
        text=True,
        check=True,
        timeout=TOOL_SECONDS_MAX,
    ).stdout
    *_, (sent, mib_per_second) = _RESULT.findall(shown)
    assert int(sent) == records, shown
    return float(mib_per_second) * MIB / 1e6


def _latency(flavour: Flavour, cluster: Cluster) -> Iterator[Row]:
    spent: list[float] = []
    cpu_before = cpu_seconds(cluster)
    for number in range(LATENCY_ROUNDS):
        topic = f"single-{number}"
        create_topic(cluster, topic, 1)
        leader = leader_of(cluster, topic)
        target = Target(flavour.name, leader.bootstrap_servers, pids(cluster)[0])
        spent += synchronous(target, topic)
    cpu_ms = (cpu_seconds(cluster) - cpu_before) * 1e3 / (len(spent) / 1e3)
    for percent in (50, 99):
        cut = statistics.quantiles(spent, n=100)[percent - 1]
        yield Row(f"one record at a time, acks=all, p{percent}", flavour.name, cut, "us")
    yield Row("one record at a time, CPU of three nodes for 1000", flavour.name, cpu_ms, "ms")
