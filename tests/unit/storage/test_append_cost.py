"""What costs nothing: the length of a log to an append or a lookup, copies to a read."""

import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from struct import Struct
from types import FrameType
from typing import Any, ClassVar

import pytest

from odradek.core.ids import TopicPartition
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_response
from odradek.protocol.generated.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.offset_index import OffsetIndex
from odradek.storage.recovery import LogSettings, create_log
from tests.storage_batches import BASE_TIME_MS, make_batch

MEBIBYTE = 1 << 20
SEGMENT_BYTES = 100 * MEBIBYTE
SEGMENTS = 103
"""More than 10 GB, of holes: they take no space on the disk."""
APPENDS = 200
COPIED_MAX = 64 * 1024


def calls_in(work: Callable[[], object]) -> int:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def append(log: Log, size: int) -> None:
    log.append_as_leader(make_batch([bytes(size)]), leader_epoch=0, now_ms=BASE_TIME_MS)


def append_many(log: Log) -> None:
    for _ in range(APPENDS):
        append(log, 100)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    settings = LogSettings(LogConfig(segment_bytes=SEGMENT_BYTES, segment_index_bytes=MEBIBYTE))
    place = TopicPartition("t", 0)
    return create_log(
        place, OsDisk(), tmp_path / "t-0", settings, now_ms=BASE_TIME_MS, random=Random(1)
    )


@pytest.mark.seed_row("0.1")
def test_an_append_costs_as_much_behind_ten_gigabytes_as_behind_one_megabyte(log: Log) -> None:
    append(log, MEBIBYTE - 1000)
    short = calls_in(lambda: append_many(log))
    for _ in range(SEGMENTS):
        closed = log.segments.active
        log.roll(BASE_TIME_MS)
        os.truncate(closed.paths()[0], SEGMENT_BYTES)
        closed.size = SEGMENT_BYTES
        append(log, 1)
    assert log.segments.bytes > 10_000_000_000
    long = calls_in(lambda: append_many(log))
    assert long < 1.02 * short, f"{long / APPENDS} calls of an append, {short / APPENDS} before"


class CountedEntry(Struct):
    """Counts how many entries are looked at."""

    looked_at = 0

    def unpack_from(self, /, buffer: Any, offset: int = 0) -> tuple[Any, ...]:
        CountedEntry.looked_at += 1
        return super().unpack_from(buffer, offset)


class CountedIndex(OffsetIndex):
    __slots__ = ()
    ENTRY: ClassVar[Struct] = CountedEntry(">ii")


@pytest.mark.seed_row("1.12")
def test_a_lookup_looks_at_few_entries_of_many(tmp_path: Path) -> None:
    """Seventeen of 100,000 would do; the end of the index, where most readers are, comes first."""
    index = CountedIndex(OsDisk(), tmp_path / "i", 0, bytes_max=MEBIBYTE)
    for number in range(1, 100_001):
        index.append(number, 4_200 * number)
    for target in (1, 2, 777, 50_000, 98_976, 98_977, 99_999, 100_000):
        CountedEntry.looked_at = 0
        assert index.lookup(target).offset == target
        assert CountedEntry.looked_at <= 21, target


@pytest.mark.seed_row("1.16")
def test_records_get_from_the_file_to_the_socket_without_a_copy(log: Log) -> None:
    for _ in range(8):
        append(log, MEBIBYTE - 1000)

    def answer() -> int:
        records = log.read(0, bytes_max=8 * MEBIBYTE).records
        found = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])
        response = FetchResponse(responses=[found])
        return sum(map(len, frame_response(response, api_for_key(response.ID), 12, 1)))

    assert answer() > 7 * MEBIBYTE  # what is made once is there before it is measured
    tracemalloc.start()
    try:
        answer()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < COPIED_MAX
