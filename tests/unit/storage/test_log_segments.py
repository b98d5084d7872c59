"""Rolling, reading across segments, retention, files on a real disk."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.records import read_all
from odradek.storage.config import CleanupPolicy
from odradek.storage.disk import OsDisk
from odradek.storage.log import Isolation, Log
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.recovery import LogSettings, open_log
from odradek.storage.retention import delete_old_segments
from odradek.storage.segment import Segment
from odradek.storage.timestamps import find_largest_timestamp, find_offset_at
from tests.storage_batches import BASE_TIME_MS, make_batch, make_marker

NOW_MS = BASE_TIME_MS
MakeLog = Callable[..., Log]


def fill(log: Log, count: int, *, timestamp: int = NOW_MS, step_ms: int = 0) -> None:
    for number in range(count):
        batch = make_batch([b"%03d" % number], timestamp=timestamp + number * step_ms)
        log.append_as_leader(batch, leader_epoch=0, now_ms=timestamp + number * step_ms)
    log.update_high_watermark(log.log_end_offset)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.seed_row("1.13")
def test_rolls_on_size(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=300)
    fill(log, 10)
    assert len(bases(log)) > 2
    assert all(segment.size <= 300 for segment in log.segments)


@pytest.mark.seed_row("1.13", "2.7")
def test_rolls_on_time_of_the_records(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    fill(log, 3, timestamp=NOW_MS, step_ms=500)
    assert bases(log) == [0]
    fill(log, 1, timestamp=NOW_MS + 1001)
    assert bases(log) == [0, 3]


def test_rolls_on_the_clock_where_records_have_no_time(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000)
    for now_ms in (NOW_MS, NOW_MS + 900, NOW_MS + 1001):
        log.append_as_leader(make_batch([b"x"], timestamp=-1), leader_epoch=0, now_ms=now_ms)
    assert bases(log) == [0, 2]


def test_jitter_makes_logs_roll_at_different_times(make_log: MakeLog) -> None:
    log = make_log(segment_ms=1000, segment_jitter_ms=1000)
    assert 0 < log.segments.active.roll_jitter_ms < 1000


@pytest.mark.seed_row("1.13")
def test_rolls_on_a_full_index(make_log: MakeLog) -> None:
    log = make_log(segment_index_bytes=24, index_interval_bytes=1)
    fill(log, 8)
    assert len(bases(log)) > 1
    assert all(segment.offset_index.entries <= 3 for segment in log.segments)


@pytest.mark.seed_row("1.13")
def test_rolls_when_the_offset_no_longer_fits_into_the_index(make_log: MakeLog) -> None:
    log = make_log()
    fill(log, 1)
    far = 2**31 + 5
    log.append_as_follower(bytes(make_batch([b"x"], base_offset=far)), now_ms=NOW_MS)
    assert bases(log) == [0, far]
    assert [r.offset for r in read_all(log.read(1, bytes_max=1000).records)] == [far]


def test_reads_stop_at_the_isolations_end(make_log: MakeLog) -> None:
    log = make_log()
    fill(log, 6)
    log.update_high_watermark(4)
    batch = make_batch([b"t"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)

    def seen(isolation: Isolation) -> list[int]:
        records = log.read(0, bytes_max=10_000, isolation=isolation).records
        return [r.offset for r in read_all(records)]

    assert seen(Isolation.HIGH_WATERMARK) == [0, 1, 2, 3]
    assert seen(Isolation.LOG_END) == [0, 1, 2, 3, 4, 5]
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 6
    assert seen(Isolation.LAST_STABLE_OFFSET) == [0, 1, 2, 3, 4, 5]
    assert seen(Isolation.HIGH_WATERMARK) == [0, 1, 2, 3, 4, 5, 6]


def test_the_last_batches_are_found_without_reading_the_file(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log()
    fill(log, 20)
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "read", lambda *_: pytest.fail("the file was read"))
        found = log.segments.active.search_for(19)
        assert found is not None
        assert (found.base_offset, found.last_offset) == (19, 19)
        assert log.bytes_from(18) == 2 * found.size
    assert [r.offset for r in read_all(log.read(17, bytes_max=1000).records)] == [17, 18, 19]


def test_what_is_remembered_of_the_end_is_what_a_search_finds(make_log: MakeLog) -> None:
    """With gaps, as compaction leaves them, after cuts, and after batches that came together."""
    log = make_log(index_interval_bytes=100)
    fill(log, 12)
    segment = log.segments.active

    def check() -> None:
        end = log.log_end_offset
        remembered = [segment.search_for(offset) for offset in range(end + 2)]
        sizes = [log.bytes_from(offset) for offset in range(end)]
        segment._tail.clear()
        assert remembered == [segment.search_for(offset) for offset in range(end + 2)]
        assert all(size <= log.bytes_from(offset) for offset, size in enumerate(sizes))

    check()
    fill(log, 3)
    gap = make_batch([b"a", b"b"], base_offset=20)
    many = b"".join(bytes(make_batch([b"c"], base_offset=offset)) for offset in range(30, 41, 2))
    log.append_as_follower(bytes(gap) + many, now_ms=NOW_MS)
    check()
    fill(log, 5)
    log.truncate_to(42, NOW_MS)
    check()
    fill(log, 2)
    log.truncate_to(21, NOW_MS)
    check()
    fill(log, 2)
    check()


def test_aborted_transactions_are_named_to_readers_of_committed_data(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200)
    batch = make_batch([b"t"], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    fill(log, 6)  # the marker comes segments later
    marker = make_marker(9, 0, commit=False)
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    assert len(bases(log)) > 2
    result = log.read(0, bytes_max=100, isolation=Isolation.LAST_STABLE_OFFSET)
    assert result.aborted_transactions is not None
    assert [
        (a.producer_id, a.first_offset, a.last_offset) for a in result.aborted_transactions
    ] == [(9, 0, 7)]
    assert log.last_stable_offset == log.log_end_offset


def test_offsets_outside_the_log_are_out_of_range(make_log: MakeLog) -> None:
    log = make_log()
    fill(log, 3)
    log.advance_log_start_offset(1)
    for offset in (0, 4, -1):
        with pytest.raises(ApiError) as refusal:
            log.read(offset, bytes_max=100)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, bytes_max=100).records == b""


def test_the_first_batch_is_given_whole_however_large(make_log: MakeLog) -> None:
    log = make_log()
    log.append_as_leader(make_batch([bytes(5000)]), leader_epoch=0, now_ms=NOW_MS)
    assert len(log.read(0, bytes_max=10).records) > 5000
    assert len(log.read(0, bytes_max=10, at_least_one_batch=False).records) == 10


def test_log_start_cannot_pass_the_high_watermark(make_log: MakeLog) -> None:
    log = make_log()
    fill(log, 3)
    log.update_high_watermark(2)
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        log.advance_log_start_offset(3)


@pytest.mark.seed_row("0.1", "1.14")
def test_retention_by_time_goes_by_the_newest_record_of_a_segment(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200, retention_ms=1000)
    fill(log, 8, step_ms=100)
    before = bases(log)
    assert delete_old_segments(log, NOW_MS + 1000) == 0
    assert delete_old_segments(log, NOW_MS + 1150) == 1
    assert bases(log) == before[1:]
    assert log.log_start_offset == before[1]


def test_an_all_too_old_log_loses_its_active_segment_too(make_log: MakeLog) -> None:
    log = make_log(retention_ms=1000)
    fill(log, 3)
    assert delete_old_segments(log, NOW_MS + 2000) == 1
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([3], 3, 3)


@pytest.mark.seed_row("1.14")
def test_retention_by_size_keeps_at_least_what_is_asked(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200, retention_bytes=300, retention_ms=-1)
    fill(log, 20)
    delete_old_segments(log, NOW_MS)
    assert 300 <= log.segments.bytes < 300 + 200


def test_retention_never_goes_past_the_high_watermark(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200, retention_ms=0)
    fill(log, 8)
    log.update_high_watermark(3)
    delete_old_segments(log, NOW_MS + 10_000)
    assert log.log_start_offset <= 3


@pytest.mark.seed_row("1.14")
def test_retention_by_log_start_holds_for_compacted_logs_too(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    for _ in range(6):
        batch = make_batch([b"v"], keys=[b"k"])
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    second = bases(log)[1]
    log.advance_log_start_offset(second + 1)
    assert delete_old_segments(log, NOW_MS + 10**12) == 1
    assert bases(log)[0] == second


def test_deleted_files_stay_for_the_delay(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200, retention_ms=0, file_delete_delay_ms=500)
    fill(log, 8)
    delete_old_segments(log, NOW_MS + 10)
    assert any(name.endswith(".log.deleted") for name in log.disk.names(log.folder))
    assert log.take_deletable(NOW_MS + 509) == []
    for segment in log.take_deletable(NOW_MS + 510):
        segment.remove()
    assert not any(name.endswith(".deleted") for name in log.disk.names(log.folder))


def test_offsets_are_found_by_time(make_log: MakeLog) -> None:
    log = make_log(segment_bytes=200, index_interval_bytes=50)
    fill(log, 10, step_ms=10)
    for timestamp, offset in ((0, 0), (NOW_MS + 35, 4), (NOW_MS + 40, 4), (NOW_MS + 90, 9)):
        found = find_offset_at(log, timestamp)
        assert found is not None
        assert (found.offset, found.leader_epoch) == (offset, 0)
    assert find_offset_at(log, NOW_MS + 91) is None
    newest = find_largest_timestamp(log)
    assert newest is not None
    assert (newest.offset, newest.timestamp) == (9, NOW_MS + 90)


def test_an_empty_log_has_no_largest_timestamp(make_log: MakeLog) -> None:
    assert find_largest_timestamp(make_log()) is None


@pytest.mark.seed_row("1.1", "4.3")
def test_a_folder_has_the_files_of_kafkas(real_log: Log, tmp_path: Path) -> None:
    fill(real_log, 40)
    names = set(real_log.disk.names(real_log.folder))
    second = bases(real_log)[1]
    assert {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        f"{second:020d}.log",
        f"{second:020d}.snapshot",
        "leader-epoch-checkpoint",
    } <= names
    active = real_log.segments.active.base_offset
    sizes = {name: (tmp_path / "t-0" / name).stat().st_size for name in names}
    assert sizes["00000000000000000000.index"] == 8 * real_log.segments[0].offset_index.entries
    assert sizes[f"{active:020d}.index"] == 10_485_760
    assert sizes[f"{active:020d}.timeindex"] == 10_485_756
    real_log.close()
    assert (tmp_path / "t-0" / f"{active:020d}.index").stat().st_size < 1000


@pytest.mark.seed_row("1.12")
@pytest.mark.parametrize("damage", ["missing", "garbage", "zeros", "cut"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_damaged_indexes_are_rebuilt(real_log: Log, kind: str, damage: str) -> None:
    fill(real_log, 40, step_ms=10)
    real_log.close()
    path = Path(real_log.folder / f"{0:020d}{kind}")
    good = path.read_bytes()
    assert len(good) > 24
    if damage == "missing":
        path.unlink()
    else:
        bad = {"garbage": b"\xff" * len(good), "zeros": good + bytes(96), "cut": good[:-1]}
        path.write_bytes(bad[damage])
    log, report = open_log(
        real_log.partition,
        OsDisk(),
        real_log.folder,
        LogSettings(real_log.config),
        now_ms=NOW_MS,
        random=Random(1),
        clean=True,
    )
    assert report.rebuilt_indexes == 1
    assert path.read_bytes() == good
    assert log.log_end_offset == 40


def test_preallocated_segments_are_trimmed_when_they_roll(make_log: MakeLog) -> None:
    log = make_log(preallocate=True, segment_bytes=1000)
    assert log.disk.size(log.segments.active.paths()[0]) == 1000
    fill(log, 20)
    assert log.disk.size(log.segments[0].paths()[0]) == log.segments[0].size < 1000
    assert len(list(read_all(log.read(0, bytes_max=5000).records))) > 5


def test_indexes_are_rebuilt_within_a_smaller_limit(real_log: Log) -> None:
    """segment.index.bytes may have been lowered since the segment was written."""
    fill(real_log, 40, step_ms=10)
    real_log.close()
    for kind in (".index", ".timeindex"):
        Path(real_log.folder / f"{0:020d}{kind}").unlink()
    config = dataclasses.replace(real_log.config, segment_index_bytes=36)
    log, report = open_log(
        real_log.partition,
        OsDisk(),
        real_log.folder,
        LogSettings(config),
        now_ms=NOW_MS,
        random=Random(1),
        clean=True,
    )
    assert report.rebuilt_indexes == 1
    assert [r.offset for r in read_all(log.read(9, bytes_max=10).records)] == [9]


def test_a_log_goes_on_in_a_renamed_folder(real_log: Log, tmp_path: Path) -> None:
    fill(real_log, 40)
    target = tmp_path / "t-0.moved"
    real_log.disk.rename(real_log.folder, target)
    real_log.relocate(target)
    fill(real_log, 40)
    assert [r.offset for r in read_all(real_log.read(3, bytes_max=10).records)] == [3]
    real_log.close()
    assert not (tmp_path / "t-0").exists()


def test_new_settings_hold_for_the_active_segment(make_log: MakeLog) -> None:
    log = make_log()
    fill(log, 5)
    log.reconfigure(dataclasses.replace(log.config, segment_bytes=400))
    fill(log, 2)
    assert len(bases(log)) == 2


def test_a_log_that_begins_again_has_nothing_below_its_high_watermark(make_log: MakeLog) -> None:
    log = make_log()
    fill(log, 3)
    log.truncate_fully_and_start_at(10, NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (10, 10, 10)
