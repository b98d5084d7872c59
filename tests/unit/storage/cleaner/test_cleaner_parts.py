"""The offset map, the throttle and the reader of sources, by themselves."""

import tracemalloc
from hashlib import blake2b
from pathlib import PurePosixPath
from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.records import BatchBuilder, Record
from odradek.storage.cleaner.cleaning import clean
from odradek.storage.cleaner.offset_map import (
    DIGEST_BYTES,
    ENTRY_BYTES,
    KEY_BYTES_MAX,
    NOT_FOUND,
    OffsetMap,
)
from odradek.storage.cleaner.source import read_chunks
from odradek.storage.cleaner.throttle import SLEEP_SECONDS_MIN, Throttle
from odradek.testing.disk import SimulatedDisk
from tests.unit.storage.cleaner.compacted_log import CompactedLog


def records(*keys: bytes | None, first: int = 0) -> list[Record]:
    return [Record(first + number, 0, key, b"") for number, key in enumerate(keys)]


def test_the_map_knows_the_newest_offset() -> None:
    offsets = OffsetMap(10_000)
    assert offsets.add(records(b"a", b"b", b"a", None), 0)
    assert [offsets.find(key) for key in (b"a", b"b", b"c")] == [2, 1, NOT_FOUND]
    assert len(offsets) == 2


def test_the_map_leaves_out_what_is_before_the_start() -> None:
    offsets = OffsetMap(10_000)
    assert offsets.add(records(b"a", b"b", first=5), 6)
    assert [offsets.find(key) for key in (b"a", b"b")] == [NOT_FOUND, 6]


def test_the_map_refuses_what_it_has_no_room_for() -> None:
    offsets = OffsetMap(10 * ENTRY_BYTES, 0.2)
    assert offsets.entries_max == 2
    assert not offsets.add(records(b"a", b"b", b"a", b"c", b"d"), 0)
    assert [offsets.find(key) for key in (b"a", b"b", b"c", b"d")] == [2, 1, -1, -1]
    assert offsets.utilization == 1.0


def test_long_keys_are_told_apart_by_their_last_byte() -> None:
    offsets = OffsetMap(10_000)
    long, other = b"k" * 1000 + b"1", b"k" * 1000 + b"2"
    offsets.add(records(long, other, long), 0)
    assert [offsets.find(long), offsets.find(other)] == [2, 1]


def test_no_key_can_pass_for_the_digest_of_another() -> None:
    victim = b"v" * 40
    forged = blake2b(victim, digest_size=DIGEST_BYTES).digest()
    assert len(forged) == KEY_BYTES_MAX + 1
    offsets = OffsetMap(10_000)
    offsets.add(records(victim, forged), 0)
    assert [offsets.find(victim), offsets.find(forged)] == [0, 1]


def test_an_entry_costs_no_more_than_it_is_charged() -> None:
    offsets = OffsetMap(2**30)
    keys = [bytes(KEY_BYTES_MAX - 4) + number.to_bytes(4, "big") for number in range(2**14)]
    tracemalloc.start()
    try:
        for number, key in enumerate(keys):
            offsets.add([Record(2**40 + number, 0, bytes(bytearray(key)), b"")], 0)
            if number > 1000:
                # Other threads of the process have their share, whoever runs beside this test.
                assert tracemalloc.get_traced_memory()[1] <= len(offsets) * ENTRY_BYTES + 100_000
    finally:
        tracemalloc.stop()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= SLEEP_SECONDS_MIN
        self.now += seconds
        self.slept += seconds


def test_the_throttle_keeps_to_the_rate() -> None:
    clock = Clock()
    throttle = Throttle(1000, monotonic=lambda: clock.now, sleep=clock.sleep)
    for _ in range(1000):
        throttle.spend(10)
    assert clock.now == pytest.approx(110.0, abs=SLEEP_SECONDS_MIN)


def test_the_throttle_does_not_sleep_where_the_work_is_slow() -> None:
    clock = Clock()
    throttle = Throttle(1000, monotonic=lambda: clock.now, sleep=clock.sleep)
    for _ in range(10):
        clock.now += 1
        throttle.spend(999)
    assert clock.slept == 0
    Throttle(sleep=clock.sleep).spend(10**12)


PATH = PurePosixPath("/0.log")


def disk_with(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(Random(0))
    disk.open(PATH, create=True).write(0, [content])
    return disk


def batch(offset: int, value_bytes: int) -> bytes:
    builder = BatchBuilder(base_offset=offset)
    builder.append(0, b"k", bytes(value_bytes))
    return bytes(builder.build())


@pytest.mark.parametrize("chunk_bytes", [1, 70, 200, 100_000])
def test_chunks_hold_whole_batches_whatever_their_size(chunk_bytes: int) -> None:
    content = b"".join(batch(number, 10 ** (number % 6)) for number in range(12))
    chunks = list(
        read_chunks(disk_with(content), PATH, len(content), Throttle(), chunk_bytes=chunk_bytes)
    )
    offsets = [header.base_offset for chunk in chunks for header in chunk.headers]
    assert offsets == list(range(12))
    whole = b"".join(
        chunk.buffer[header.position : header.end_position]
        for chunk in chunks
        for header in chunk.headers
    )
    assert whole == content
    assert sum(chunk.read_bytes for chunk in chunks) == len(content)


def test_a_file_that_was_cut_meanwhile_is_noticed() -> None:
    content = batch(0, 10) + batch(1, 100_000)
    disk = disk_with(content)
    disk.open(PATH).truncate(len(content) - 1)
    with pytest.raises(CorruptionError):
        list(read_chunks(disk, PATH, len(content), Throttle()))


def test_the_limit_on_reading_and_writing_is_kept_by_cleaning() -> None:
    made = CompactedLog(segment_bytes=600)
    for number in range(100):
        made.append((f"k{number}", "v" * 100))
    made.roll()
    clock = Clock()
    clean(made.disk, made.plan(), Throttle(1000, monotonic=lambda: clock.now, sleep=clock.sleep))
    size = made.log.segments.bytes
    assert clock.slept == pytest.approx(3 * size / 1000, rel=0.05), "read twice, written once"
