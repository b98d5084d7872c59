"""The control plane alone, larger than these machines can carry: 100 brokers, 100,000 partitions.

A controller plans, its metadata log is on disk, and an image follows it, as in a node; there are no
sockets and the brokers are simulated. Two shapes of 100,000 partitions with three replicas each:
many partitions in few topics, and few partitions in many. A turn is one of the event loop, in CPU
time of its thread, with the collector of Python's garbage set as a node has it. What a start takes
is measured in a process of its own. ``python -m bench metadata_scale``.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.control_site import ControlSite
from bench.timing import Row
from bench.turns import Turns
from odradek.core.errors import ErrorCode
from odradek.metadata import ClusterImage
from odradek.metadata.image import finish
from odradek.metadata.snapshots import QuorumRecords, snapshot_name
from odradek.node.frozen_heap import FrozenHeap
from odradek.protocol.generated.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.generated.metadata_records import PartitionChangeRecord
from odradek.quorum.metadata_snapshots import SnapshotWrite
from odradek.raft.messages import OffsetAndEpoch
from odradek.storage.disk import OsDisk

BROKERS: Final = 100
PARTITIONS: Final = 100_000
REPLICATION: Final = 3
PARTITIONS_PER_REQUEST: Final = 2_000
VICTIM: Final = 7
CHANGED: Final = 1_000
ROUNDS: Final = 5
SECONDS_MAX: Final = 600
MIB: Final = 1024 * 1024


class Shape(NamedTuple):
    topics: int
    partitions: int
    """Of each topic."""

    def __str__(self) -> str:
        return f"{self.topics:,} topics x {self.partitions}"


SHAPES: Final = (Shape(1_000, 100), Shape(20_000, 5))


def run() -> Iterator[Row]:
    for shape in SHAPES:
        # In a process of its own, whose memory is what this shape takes.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            yield from pool.submit(measure, shape).result(SECONDS_MAX)


def measure(shape: Shape) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        return asyncio.run(_measure(shape, Path(folder)))


class Measurement:
    def __init__(self, shape: Shape, site: ControlSite) -> None:
        self.shape = shape
        self.site = site
        self.turns = Turns()
        self.rows: list[Row] = []

    def add(self, what: str, value: float, unit: str) -> None:
        row = Row(what, str(self.shape), value, unit)
        print(*row, file=sys.stderr, flush=True)
        self.rows.append(row)

    @asynccontextmanager
    async def timed(self, what: str) -> AsyncIterator[None]:
        """Measure how long something takes, and its longest turn."""
        await asyncio.sleep(0)  # its first turn is its own
        self.turns.reset()
        began, cpu_began = time.perf_counter(), time.thread_time()
        yield
        self.add(f"{what}: until committed", (time.perf_counter() - began) * 1e3, "ms")
        self.add(f"{what}: CPU", (time.thread_time() - cpu_began) * 1e3, "ms")
        await asyncio.sleep(0)
        self.add(f"{what}: longest turn", self.turns.longest_ms, "ms")
        print("    in", self.turns.longest_of[:160], file=sys.stderr)


async def _measure(shape: Shape, folder: Path) -> list[Row]:
    site = ControlSite(folder)
    measurement = Measurement(shape, site)
    with FrozenHeap(), measurement.turns.measured():
        rss_before = rss_mib()
        async with measurement.timed(f"{BROKERS} brokers register"):
            for broker_id in range(BROKERS):
                await site.start_broker(broker_id)
        await _create(measurement)
        measurement.add("memory of the active controller", rss_mib() - rss_before, "MiB")
        await _fail_one(measurement)
    image = site.quorum.image
    _snapshot(measurement, folder, image)
    _deltas(measurement, image)
    site.close()
    return measurement.rows


async def _create(measurement: Measurement) -> None:
    shape, site = measurement.shape, measurement.site
    names = [f"topic-{number:06}" for number in range(shape.topics)]
    at_once = PARTITIONS_PER_REQUEST // shape.partitions
    log_bytes = site.quorum.log.segments.bytes
    async with measurement.timed(f"create {PARTITIONS:,} partitions"):
        for at in range(0, len(names), at_once):
            began = time.perf_counter()
            await _create_some(site, names[at : at + at_once], shape.partitions)
            last_ms = (time.perf_counter() - began) * 1e3
    what = f"the last request, {PARTITIONS_PER_REQUEST:,} partitions"
    measurement.add(what, last_ms, "ms")
    grown = site.quorum.log.segments.bytes - log_bytes
    measurement.add("metadata log", grown / MIB, "MiB")


async def _create_some(site: ControlSite, names: list[str], partitions: int) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=REPLICATION)
        for name in names
    ]
    answer = await site.ask(CreateTopicsRequest(topics=topics))
    assert {each.error_code for each in answer.topics} == {ErrorCode.NONE}


async def _fail_one(measurement: Measurement) -> None:
    """Fence a broker, as the controller does when its session is over, and let it come back."""
    site = measurement.site
    led = _led_by(site.quorum.image, VICTIM)
    end_offset = site.quorum.log_end_offset
    async with measurement.timed("fence one broker"):
        await site.beat(VICTIM, want_fence=True)
    assert _led_by(site.quorum.image, VICTIM) == 0
    measurement.add("partitions that it led", led, "")
    measurement.add("records of its fencing", site.quorum.log_end_offset - end_offset, "")
    async with measurement.timed("unfence it"):
        await site.beat(VICTIM)


def _led_by(image: ClusterImage, broker_id: int) -> int:
    topics = image.topics.values()
    return sum(each.leader == broker_id for topic in topics for each in topic.partitions.values())


def _snapshot(measurement: Measurement, folder: Path, image: ClusterImage) -> None:
    snapshot_id = OffsetAndEpoch(image.provenance.last_offset + 1, image.provenance.last_epoch)
    path = folder / snapshot_name(snapshot_id)
    began = time.thread_time()
    SnapshotWrite(OsDisk(), path, snapshot_id, image, QuorumRecords(), now_ms=0).run()
    measurement.add("write a snapshot: CPU", (time.thread_time() - began) * 1e3, "ms")
    measurement.add("snapshot", path.stat().st_size / MIB, "MiB")
    loaded = subprocess.run(
        [sys.executable, "-m", "bench.metadata_scale_load", str(path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    ).stdout
    for what, (value, unit) in json.loads(loaded).items():
        measurement.add(what, value, unit)


def _deltas(measurement: Measurement, image: ClusterImage) -> None:
    """Change some partitions: near to each other, far from each other, and one alone."""
    topics = list(image.topics.values())
    near = [(topic, number) for topic in topics for number in topic.partitions][:CHANGED]
    step = len(topics) // min(CHANGED, len(topics))
    far = [(topic, 0) for topic in topics[::step]][:CHANGED]
    for what, chosen in (
        (f"a delta of {len(near):,} partitions of as few topics as possible", near),
        (f"a delta of {len(far):,} partitions of as many topics", far),
        ("a delta of one partition", near[:1]),
    ):
        records = [
            PartitionChangeRecord(topic_id=topic.topic_id, partition_id=number, isr=[1])
            for topic, number in chosen
        ]
        spent = [milliseconds(lambda: image.apply(records)) for _ in range(ROUNDS)]  # noqa: B023
        measurement.add(what, min(spent), "ms")
        changed = image.apply(records)
        measurement.add(f"{what}: topics that are other objects", _others(image, changed), "")
    jump = changed.changes_since_in_steps(image)
    measurement.add("find one change between two images: longest step", longest_ms(jump), "ms")
    assert finish(changed.changes_since_in_steps(image)).partitions_changed


def _others(old: ClusterImage, new: ClusterImage) -> int:
    return sum(old.topics[name] is not topic for name, topic in new.topics.items())


def milliseconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return (time.thread_time() - began) * 1e3


def longest_ms(steps: Generator[None, None, Any]) -> float:
    """Take all steps; return how long the longest took."""
    longest = 0.0
    while True:
        began = time.thread_time()
        try:
            next(steps)
        except StopIteration:
            return max(longest, time.thread_time() - began) * 1e3
        longest = max(longest, time.thread_time() - began)


def rss_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
