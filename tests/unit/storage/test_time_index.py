"""The time index: Kafka's bytes, when entries are added, lookups at the edges, damage."""

from pathlib import Path

import pytest

from odradek.core.errors import CorruptionError
from odradek.storage.disk import OsDisk
from odradek.storage.time_index import TimeIndex, TimestampOffset

BASE = 50
THREE = [(1000, 55), (2000, 60), (2001, 75)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000050.timeindex"


def make(path: Path, *, bytes_max: int = 120) -> TimeIndex:
    return TimeIndex(OsDisk(), path, BASE, bytes_max=bytes_max)


def filled(path: Path, *, bytes_max: int = 120) -> TimeIndex:
    index = make(path, bytes_max=bytes_max)
    for timestamp, offset in THREE:
        index.maybe_append(timestamp, offset)
    return index


def entries(index: TimeIndex) -> list[TimestampOffset]:
    return [index.entry(slot) for slot in range(index.entries)]


@pytest.mark.seed_row("4.6")
def test_an_entry_is_eight_bytes_of_timestamp_and_four_of_relative_offset(path: Path) -> None:
    index = filled(path)
    index.maybe_append(2**62 + 1, BASE + 2**31 - 1)
    index.trim()
    assert path.read_bytes() == bytes.fromhex(
        "00000000000003e8 00000005"
        "00000000000007d0 0000000a"
        "00000000000007d1 00000019"
        "4000000000000001 7fffffff"
    )


@pytest.mark.seed_row("4.3")
def test_the_file_is_preallocated_to_whole_entries(path: Path) -> None:
    make(path, bytes_max=100).grow()
    assert path.read_bytes() == bytes(96)


def test_the_last_entry_of_an_empty_index_is_no_timestamp_at_the_base_offset(path: Path) -> None:
    index = make(path)
    assert index.last_entry == TimestampOffset(-1, BASE)
    index.maybe_append(2001, 75)
    assert index.last_entry == TimestampOffset(2001, 75)


def test_only_a_greater_timestamp_is_added(path: Path) -> None:
    index = filled(path)
    index.maybe_append(2001, 75)
    index.maybe_append(2001, 90)
    assert entries(index) == THREE
    index.maybe_append(2002, 75)
    assert entries(index) == [*THREE, (2002, 75)]


def test_records_without_timestamp_leave_the_index_empty(path: Path) -> None:
    index = make(path)
    index.maybe_append(-1, BASE)
    index.maybe_append(-1, -1)
    assert index.entries == 0
    index.maybe_append(0, BASE)
    assert entries(index) == [(0, BASE)]


@pytest.mark.parametrize(("timestamp", "offset"), [(3000, 74), (2000, 80), (3000, 49)])
def test_descending_timestamps_and_offsets_are_our_bug(
    path: Path, timestamp: int, offset: int
) -> None:
    with pytest.raises(AssertionError):
        filled(path).maybe_append(timestamp, offset)


def test_an_offset_before_the_segment_is_our_bug(path: Path) -> None:
    with pytest.raises(AssertionError):
        make(path).maybe_append(1, BASE - 1)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (-1, (-1, 50)),
        (0, (-1, 50)),
        (999, (-1, 50)),
        (1000, (1000, 55)),
        (1999, (1000, 55)),
        (2000, (2000, 60)),
        (2001, (2001, 75)),
        (2**63 - 1, (2001, 75)),
    ],
)
def test_lookup_finds_the_last_entry_that_is_not_newer(
    path: Path, target: int, found: tuple[int, int]
) -> None:
    assert filled(path).lookup(target) == TimestampOffset(*found)


def test_lookup_in_an_empty_index_finds_the_start_of_the_segment(path: Path) -> None:
    assert make(path).lookup(1000) == TimestampOffset(-1, BASE)


def test_one_slot_is_kept_for_the_entry_of_the_roll(path: Path) -> None:
    index = make(path, bytes_max=48)
    for timestamp, offset in THREE:
        assert not index.is_full
        index.maybe_append(timestamp, offset)
    assert index.is_full
    with pytest.raises(AssertionError, match="full"):
        index.maybe_append(3000, 80)
    index.maybe_append(3000, 80, even_if_full=True)
    assert entries(index) == [*THREE, (3000, 80)]
    with pytest.raises(AssertionError, match="full"):
        index.maybe_append(4000, 90, even_if_full=True)


def test_a_trimmed_index_takes_its_last_entry_once_more(path: Path) -> None:
    filled(path).close(trim=True)
    index = make(path)
    assert index.is_full
    index.maybe_append(2001, 75, even_if_full=True)
    assert entries(index) == THREE
    index.check(log_size=1)


@pytest.mark.parametrize(
    ("offset", "left"), [(0, 0), (55, 0), (56, 1), (60, 1), (61, 2), (75, 2), (76, 3)]
)
def test_truncation_drops_the_entries_at_or_behind_an_offset(
    path: Path, offset: int, left: int
) -> None:
    index = filled(path)
    index.truncate_to(offset)
    assert entries(index) == THREE[:left]


def test_truncation_drops_all_entries_of_one_offset(path: Path) -> None:
    index = filled(path)
    index.maybe_append(3000, 75)
    index.maybe_append(4000, 75)
    index.truncate_to(75)
    assert entries(index) == THREE[:2]


def test_an_index_that_was_not_trimmed_fails_the_check_and_reset_mends_it(path: Path) -> None:
    filled(path).close()
    index = make(path)
    with pytest.raises(CorruptionError, match=r"\(0, 0\)"):
        index.check(log_size=1000)
    index.reset()
    index.maybe_append(5, 60)
    index.trim()
    index.check(log_size=1000)
    assert entries(make(path)) == [(5, 60)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("00000000000003e8 00000005 00", "multiple of 12"),
        ("ffffffffffffffff 00000005", r"\(-1, 5\)"),
        ("00000000000003e8 fffffffb", r"\(1000, -5\)"),
        ("00000000000003e8 00000005 00000000000003e8 00000006", "after"),
        ("00000000000003e8 00000005 00000000000003e7 00000006", "after"),
        ("00000000000003e8 00000005 00000000000003e9 00000004", "after"),
        ("00000000000003e8 00000005 0000000000000000 00000000", r"\(0, 0\)"),
        ("fffffffffffffff0 00000005 fffffffffffffff1 00000006", r"\(-15, 6\)"),
        ("00000000000003e8 fffffff0 00000000000003e9 fffffff1", r"\(1001, -15\)"),
    ],
)
def test_a_damaged_file_fails_the_check(path: Path, content: str, why: str) -> None:
    path.write_bytes(bytes.fromhex(content))
    with pytest.raises(CorruptionError, match=why):
        make(path).check(log_size=1000)


def test_entries_for_an_empty_log_fail_the_check(path: Path) -> None:
    filled(path).close(trim=True)
    with pytest.raises(CorruptionError, match="empty log"):
        make(path).check(log_size=0)


def test_a_missing_file_fails_the_check(path: Path) -> None:
    with pytest.raises(CorruptionError, match="missing"):
        make(path).check(log_size=0)


def test_a_first_record_of_the_year_1970_passes_the_check(path: Path) -> None:
    index = make(path)
    index.maybe_append(0, BASE)
    index.close(trim=True)
    make(path).check(log_size=100)
