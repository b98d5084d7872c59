"""The log on a real disk: appends against bare writes, reads at every size, recovery.

``ODRADEK_BENCH_GB=10 python -m bench storage`` reads from a log of that size too.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from bench.timing import Row
from odradek.core.ids import TopicPartition
from odradek.records import BatchBuilder
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.recovery import LogSettings, create_log, open_log

KIB, MIB = 1024, 1024 * 1024
NOW_MS = 1_700_000_000_000
SETTINGS = LogSettings(LogConfig(max_message_bytes=2 * MIB))
ROUNDS = 9


def make_batch(size: int, record_bytes: int = 1000) -> bytearray:
    builder = BatchBuilder()
    while builder.size < size - record_bytes - 20:
        builder.append(NOW_MS, b"key", bytes(record_bytes))
    return builder.build()


def make_log(folder: Path) -> Log:
    return create_log(
        TopicPartition("t", 0), OsDisk(), folder, SETTINGS, now_ms=NOW_MS, random=Random(1)
    )


def alternate(first: Callable[[], object], second: Callable[[], object], count: int) -> list[float]:
    """Return the best µs per call of each, measured turn by turn so that noise hits both."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for slot, call in enumerate((first, second)):
            start = time.perf_counter()
            for _ in range(count):
                call()
            best[slot] = min(best[slot], (time.perf_counter() - start) / count * 1e6)
    return best


def run() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as name:
        folder = Path(name)
        yield from appends(folder)
        yield from reads(folder)
        yield from recovery(folder)


def appends(folder: Path) -> Iterator[Row]:
    for size in (16 * KIB, MIB):
        log = make_log(folder / f"append-{size}")
        batch = make_batch(size)
        descriptor = os.open(folder / f"raw-{size}", os.O_RDWR | os.O_CREAT)

        def append(log: Log = log, batch: bytearray = batch) -> None:
            batch[:8] = bytes(8)  # what the log stamps, a client sends as 0
            log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)

        def write(descriptor: int = descriptor, batch: bytearray = batch) -> None:
            os.write(descriptor, batch)

        count = 400 if size < MIB else 20
        ours, raw = alternate(append, write, count)
        os.close(descriptor)
        title = f"append {size // KIB} KiB batches"
        yield Row(title, "odradek", ours, "µs")
        yield Row(title, "os.write", raw, "µs")
        yield Row(f"{title}, share of os.write speed", "odradek", raw / ours, "of 1")
        log.close()
        for path in log.segments[0].paths():
            log.disk.remove(path)


def reads(folder: Path) -> Iterator[Row]:
    largest = int(float(os.environ.get("ODRADEK_BENCH_GB", "1")) * 1024) * MIB
    log = make_log(folder / "read")
    batch = make_batch(64 * KIB)
    random = Random(2)
    for size in (MIB, 100 * MIB, largest):
        while log.segments.bytes < size:
            batch[:8] = bytes(8)
            log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)

        def read(log: Log = log) -> None:
            log.read(random.randrange(log.log_end_offset), bytes_max=64 * KIB)

        best, _ = alternate(read, read, 200)
        yield Row("read 64 KiB at a random offset", f"log of {size // MIB} MiB", best, "µs")
    log.close()


def recovery(folder: Path) -> Iterator[Row]:
    for record_bytes in (100, 1000):
        path = folder / f"recover-{record_bytes}"
        log = make_log(path)
        batch = make_batch(64 * KIB, record_bytes)
        while log.segments.bytes < 200 * MIB:
            batch[:8] = bytes(8)
            log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)
        size = log.segments.bytes
        log.close()
        start = time.perf_counter()
        opened, report = open_log(
            log.partition,
            OsDisk(),
            path,
            SETTINGS,
            now_ms=NOW_MS,
            random=Random(1),
            clean=False,
        )
        seconds = time.perf_counter() - start
        assert report.checked_bytes == size
        assert report.cut_bytes == 0
        opened.close()
        yield Row(
            f"recover, 64 KiB batches of {record_bytes} B", "odradek", size / MIB / seconds, "MiB/s"
        )
