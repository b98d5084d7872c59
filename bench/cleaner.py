"""Compaction: MB/s of log read, cleaned and written, beside copying the file; and the offset map.

Each log is 32 MB in batches of about 16 KiB, every key twice, so half of it goes. "every batch
rebuilt" has the two values of a key next to each other; "whole batches" has all keys once and then
all keys again, so that the first half of the batches goes and the second is copied as it is.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

from bench.timing import Row
from odradek.core.ids import TopicPartition
from odradek.records import BatchBuilder, CompressionType, Record
from odradek.storage.cleaner.cleaning import clean, remove_cleaned_files
from odradek.storage.cleaner.offset_map import OffsetMap
from odradek.storage.cleaner.task import CleanerSettings, CleaningTask, SourceSegment
from odradek.storage.cleaner.throttle import Throttle
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.segment import Segment

LOG_BYTES = 32 * 1024 * 1024
BATCH_BYTES = 16 * 1024
ROUNDS = 3


def make_log(folder: Path, record_bytes: int, codec: CompressionType, *, rebuilt: bool) -> Segment:
    """Write one closed segment; the values compress to about a half."""
    segment = Segment.create(OsDisk(), folder, 0, LogConfig(), now_ms=0)
    per_batch = max(BATCH_BYTES // record_bytes, 2)
    count = LOG_BYTES // record_bytes
    value_bytes = record_bytes - 24
    offset = 0
    while offset < count:
        builder = BatchBuilder(codec=codec, base_offset=offset, partition_leader_epoch=0)
        for number in range(offset, offset + per_batch):
            key = number // 2 if rebuilt else number % (count // 2)
            half = os.urandom(value_bytes // 4).hex().encode()
            builder.append(1_700_000_000_000 + number, b"user-%09d" % key, half.ljust(value_bytes))
        batch = builder.build()
        base_offset, offset = offset, offset + per_batch
        segment.append(batch, base_offset, offset - 1, 1_700_000_000_000 + offset)
    segment.on_become_inactive()
    segment.close()
    return segment


def seconds_to_clean(folder: Path, segment: Segment) -> float:
    task = CleaningTask(
        partition=TopicPartition("bench", 0),
        folder=folder,
        config=LogConfig(),
        segments=(SourceSegment(0, segment.size),),
        first_dirty_offset=0,
        upper_bound_offset=2**31,
        recovery_point=2**31,
        last_records={},
        later_aborted=(),
        settings=CleanerSettings(),
        now_ms=0,
    )
    start = time.perf_counter()
    clean(OsDisk(), task, Throttle())
    elapsed = time.perf_counter() - start
    remove_cleaned_files(OsDisk(), task)
    return elapsed


def seconds_to_copy(folder: Path) -> float:
    start = time.perf_counter()
    target = folder / "copy"
    with (folder / f"{0:020d}.log").open("rb") as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, 1024 * 1024)
        copy.flush()
        os.fsync(copy.fileno())
    elapsed = time.perf_counter() - start
    target.unlink()
    return elapsed


def compaction() -> Iterator[Row]:
    for record_bytes in (100, 1024):
        for codec in (CompressionType.NONE, CompressionType.LZ4):
            for rebuilt in (True, False):
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    segment = make_log(folder, record_bytes, codec, rebuilt=rebuilt)
                    clean_s = min(seconds_to_clean(folder, segment) for _ in range(ROUNDS))
                    copy_s = min(seconds_to_copy(folder) for _ in range(ROUNDS))
                how = "every batch rebuilt" if rebuilt else "whole batches"
                operation = f"compact {record_bytes} B records, {codec.name.lower()}, {how}"
                yield Row(operation, "odradek", segment.size / clean_s / 1e6, "MB/s")
                yield Row(operation, "plain copy", segment.size / copy_s / 1e6, "MB/s")


def offset_map() -> Iterator[Row]:
    """Half a million records with 15-byte keys of which each comes 1.6 times on average."""
    keys = [md5(b"%d" % n).hexdigest()[:15].encode() for n in range(500_000)]
    records = [Record(n, 0, keys[hash(key) % 500_000], b"") for n, key in enumerate(keys)]
    for name, add in (("dict", _add_dict), ("dict of md5", _add_md5), ("flat table", _add_flat)):
        best = min(add(records) for _ in range(ROUNDS))
        yield Row("put a key into the offset map", name, best / len(records) * 1e6, "µs")


def _add_dict(records: list[Record]) -> float:
    start = time.perf_counter()
    OffsetMap(2**30).add(records, 0)
    return time.perf_counter() - start


def _add_md5(records: list[Record]) -> float:
    offsets: dict[bytes, int] = {}
    start = time.perf_counter()
    for offset, _, key, _, _ in records:
        assert key is not None
        offsets[md5(key).digest()] = offset
    return time.perf_counter() - start


def _add_flat(records: list[Record]) -> float:
    """Kafka's way: digests and offsets in a flat table, linear probing."""
    slots = len(records) * 10 // 9
    table = bytearray(slots * 16)
    offsets = memoryview(bytearray(slots * 8)).cast("q")
    empty = bytes(16)
    start = time.perf_counter()
    for offset, _, key, _, _ in records:
        assert key is not None
        digest = md5(key).digest()
        slot = int.from_bytes(digest[:8], "little") % slots
        while (found := table[slot * 16 : slot * 16 + 16]) != digest:
            if found == empty:
                table[slot * 16 : slot * 16 + 16] = digest
                break
            slot = (slot + 1) % slots
        offsets[slot] = offset
    return time.perf_counter() - start


def run() -> Iterator[Row]:
    yield from compaction()
    yield from offset_map()
