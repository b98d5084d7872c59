"""Kafka's ProducerPerformance against a node of ours and one of Kafka's, in turns.

Each round runs the tool once against each broker, a JVM of its own each time, so that both meet the
same noise; the first round warms the brokers up and does not count. CPU is the broker's. Memory for
files is at hand for both (``warm_memory``): on a virtual machine the host may have to find it
first, which is several times what a broker does for a megabyte. A topic is deleted when its round
is over.

- *at full speed*: one partition of small records and six of larger ones, with the tool's defaults.
- *at a steady rate*: what the tool reports as its latencies.
- *a neighbour*: one record at a time over a bare socket while the tool writes to another topic.
- *by batch size*: CPU for a megabyte from 16 KiB (the default) to 1 MiB.

``python -m bench producer_performance`` takes some ten minutes.
"""

import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import brokers
from bench.brokers import Target
from bench.node import synchronous
from bench.timing import Row
from bench.warm_memory import warm_memory
from tests.interop.kafka_peer import resolve_jars
from tests.interop.kafka_peer.jars import class_path, java
from tests.interop.kafka_peer.tools import MAIN_CLASSES

ROUNDS: Final = 5
TOOL_SECONDS_MAX: Final = 300
UNLIMITED: Final = -1
MIB: Final = 1024 * 1024
_RESULT: Final = re.compile(
    r"^(?P<sent>\d+) records sent, [\d.]+ records/sec \((?P<mib>[\d.]+) MB/sec\),"
    r" [\d.]+ ms avg latency, (?P<most>[\d.]+) ms max latency,"
    r" (?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th",
    re.M,
)


class Load(NamedTuple):
    name: str
    partitions: int
    record_bytes: int
    records: int
    throughput: int = UNLIMITED
    batch_bytes: int | None = None

    @property
    def megabytes(self) -> float:
        return self.records * self.record_bytes / 1e6


class Run(NamedTuple):
    """What one run of the tool gave."""

    mb_per_second: float
    p95_ms: float
    p99_ms: float
    cpu_ms_per_mb: float


FULL_SPEED: Final = (
    Load("1 partition, 100 B", 1, 100, 1_500_000),
    Load("6 partitions, 1 KiB", 6, 1024, 250_000),
)
STEADY: Final = Load("a steady 10,000 records of 100 B a second", 1, 100, 80_000, 10_000)
BATCHES: Final = tuple(
    Load(f"batches of {size // 1024} KiB", 1, 1024, 200_000, batch_bytes=size)
    for size in (16 * 1024, 64 * 1024, 256 * 1024, MIB)
)
WRITER: Final = Load("a writer at full speed", 1, 1024, 1_000_000)


def run() -> Iterator[Row]:
    with warm_memory(), ExitStack() as stack:
        targets = list(brokers.start(stack))
        for load in FULL_SPEED:
            yield from _compare(targets, load)
        yield from _steady(targets)
        yield from _neighbours(targets)
        for load in BATCHES:
            yield from _cpu(targets, load)


def _rounds(targets: list[Target], load: Load) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {target.name: [] for target in targets}
    for number in range(ROUNDS + 1):
        for target in targets:
            run = _produce(target, load, number)
            print(load.name, number, target.name, run, file=sys.stderr, flush=True)
            if number:
                found[target.name].append(run)
    return found


def _compare(targets: list[Target], load: Load) -> Iterator[Row]:
    found = _rounds(targets, load)
    for name, runs in found.items():
        speed = statistics.median(run.mb_per_second for run in runs)
        yield Row(f"at full speed, {load.name}", name, speed, "MB/s")
    ours, *others = found.values()
    for name, theirs in zip(list(found)[1:], others, strict=True):
        ratios = [
            one.mb_per_second / two.mb_per_second for one, two in zip(ours, theirs, strict=True)
        ]
        least = f"the least of {ROUNDS} rounds, {load.name}"
        yield Row(least, f"of the speed of {name}", min(ratios), "x")
    yield from _cpu_rows(found, load)


def _steady(targets: list[Target]) -> Iterator[Row]:
    found = _rounds(targets, STEADY)
    for percentile in ("p95_ms", "p99_ms"):
        for name, runs in found.items():
            median = statistics.median(getattr(run, percentile) for run in runs)
            yield Row(f"{STEADY.name}, {percentile[:3]}", name, median, "ms")


def _cpu(targets: list[Target], load: Load) -> Iterator[Row]:
    yield from _cpu_rows(_rounds(targets, load), load)


def _cpu_rows(found: dict[str, list[Run]], load: Load) -> Iterator[Row]:
    for name, runs in found.items():
        cpu = statistics.median(run.cpu_ms_per_mb for run in runs)
        yield Row(f"CPU of the broker for a MB, {load.name}", name, cpu, "ms")


def _neighbours(targets: list[Target]) -> Iterator[Row]:
    spent: dict[str, list[list[float]]] = {target.name: [] for target in targets}
    for number in range(ROUNDS + 1):
        for target in targets:
            topic = f"neighbour-{number}"
            _create(target, topic, 1)
            with _writing(target, number):
                micros = synchronous(target, topic)
            _delete(target, topic)
            shown = [round(each) for each in (_quantile(micros, 99), max(micros))]
            print("neighbour", number, target.name, shown, file=sys.stderr, flush=True)
            if number:
                spent[target.name].append(micros)
    for percent in (50, 99):
        for name, rounds in spent.items():
            cut = statistics.median(_quantile(each, percent) for each in rounds)
            yield Row(f"a neighbour of a writer, p{percent}", name, cut, "us")
    for name, rounds in spent.items():
        longest = statistics.median(max(each) for each in rounds)
        yield Row("a neighbour of a writer, the longest", name, longest, "us")


def _quantile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


@contextmanager
def _writing(target: Target, number: int) -> Iterator[None]:
    """Keep the tool writing meanwhile; it is ended, not waited for."""
    topic = _topic(WRITER, number)
    _create(target, topic, WRITER.partitions)
    with subprocess.Popen(_command(target, WRITER, topic), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it reports every five seconds: it is warm
        try:
            yield
            assert process.poll() is None, "the writer was through before the neighbour"
        finally:
            process.kill()
            _delete(target, topic)


def _produce(target: Target, load: Load, number: int) -> Run:
    topic = _topic(load, number)
    _create(target, topic, load.partitions)
    spent = target.cpu_seconds()
    shown = subprocess.run(
        _command(target, load, topic),
        capture_output=True,
        text=True,
        check=True,
        timeout=TOOL_SECONDS_MAX,
    ).stdout
    cpu_ms = (target.cpu_seconds() - spent) * 1000
    _delete(target, topic)
    *_, last = _RESULT.finditer(shown)
    assert int(last["sent"]) == load.records, shown
    speed = float(last["mib"]) * MIB / 1e6
    return Run(speed, float(last["p95"]), float(last["p99"]), cpu_ms / load.megabytes)


def _command(target: Target, load: Load, topic: str) -> list[str]:
    options = {
        "topic": topic,
        "num-records": load.records,
        "record-size": load.record_bytes,
        "throughput": load.throughput,
    }
    properties = [f"bootstrap.servers={target.bootstrap_servers}"]
    if load.batch_bytes is not None:
        # Two batches fit into a request, and the buffer holds several of them.
        properties += [f"batch.size={load.batch_bytes}", "max.request.size=2200000"]
    return [
        *(java(), "-Xmx512M", "-cp", class_path(resolve_jars())),
        MAIN_CLASSES["producer-perf-test"],
        *(str(each) for name, value in options.items() for each in (f"--{name}", value)),
        *("--producer-props", *properties),
    ]


def _topic(load: Load, number: int) -> str:
    return "".join(each if each.isalnum() else "-" for each in f"{load.name}-{number}")


def _create(target: Target, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    new = NewTopic(topic, partitions, 1, config={"file.delete.delay.ms": "0"})
    admin.create_topics([new])[topic].result(TOOL_SECONDS_MAX)


def _delete(target: Target, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(TOOL_SECONDS_MAX)
