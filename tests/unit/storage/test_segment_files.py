"""One segment and its index: what they do, how far entries lie apart, and when one is closed."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from odradek.records import read_all
from odradek.storage.log import Log
from odradek.storage.offset_index import IndexEntry
from odradek.storage.retention import delete_old_segments
from tests.storage_batches import BASE_TIME_MS, make_batch

MakeLog = Callable[..., Log]
HOUR_MS = 3_600_000


def fill(log: Log, count: int, size: int = 100) -> None:
    for number in range(count):
        batch = make_batch([b"%d" % number + bytes(size)])
        log.append_as_leader(batch, leader_epoch=0, now_ms=BASE_TIME_MS)


@pytest.mark.seed_row("4.4")
def test_a_segment_appends_searches_reads_and_truncates(make_log: MakeLog) -> None:
    segment = make_log().segments.active
    for number in range(3):
        batch = bytes(make_batch([b"%d" % number], base_offset=2 * number))
        segment.append(batch, 2 * number, 2 * number, BASE_TIME_MS)
    found = segment.search_for(3)
    assert found is not None
    assert (found.base_offset, found.position) == (4, 2 * found.size)
    (record,) = read_all(segment.read(found.position, found.size))
    assert (record.offset, record.value) == (4, b"2")
    assert segment.truncate_to(2) == 2 * found.size
    assert segment.search_for(2) is None
    assert segment.size == found.size


@pytest.mark.seed_row("4.4")
def test_its_index_appends_and_looks_up(make_log: MakeLog) -> None:
    index = make_log().segments.active.offset_index
    index.append(5, 100)
    index.append(9, 5000)
    assert index.lookup(4) == IndexEntry(0, 0)
    assert index.lookup(8) == IndexEntry(5, 100)


@pytest.mark.seed_row("4.6")
def test_entries_are_an_index_interval_apart(make_log: MakeLog) -> None:
    log = make_log()  # with the default: 4096
    fill(log, 300)
    (segment,) = log.segments
    index = segment.offset_index
    size = segment.size // 300
    positions = [index.entry(slot).position for slot in range(index.entries)]
    apart = [after - before for before, after in pairwise([0, *positions])]
    assert len(apart) > 10
    # More than the interval, and not by more than one batch.
    assert all(4096 < each <= 4096 + size for each in apart), apart
    assert segment.time_index.entries == 1, "all batches have one time"


@pytest.mark.seed_row("2.7")
@pytest.mark.parametrize(("segment_ms", "kept"), [(10_000 * HOUR_MS, 2), (HOUR_MS, 1)])
def test_a_partition_with_little_traffic_keeps_old_records_until_its_segment_ends(
    make_log: MakeLog, segment_ms: int, kept: int
) -> None:
    log = make_log(retention_ms=24 * HOUR_MS, segment_ms=segment_ms)
    now_ms = BASE_TIME_MS
    for _ in range(2):
        batch = make_batch([b"one in two days"], timestamp=now_ms)
        log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms)
        now_ms += 48 * HOUR_MS
    log.update_high_watermark(log.log_end_offset)
    now_ms -= 47 * HOUR_MS  # an hour after the second record
    delete_old_segments(log, now_ms)
    assert log.log_end_offset - log.log_start_offset == kept
