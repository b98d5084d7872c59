"""The offset index: Kafka's bytes, lookups at the edges, damage, preallocation."""

import errno
from pathlib import Path, PurePosixPath
from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.storage.disk import OsDisk
from odradek.storage.offset_index import IndexEntry, OffsetIndex
from odradek.testing.disk import SimulatedDisk

BASE = 50
THREE = [(55, 100), (60, 4200), (75, 8400)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log" / "00000000000000000050.index"


def make(path: Path, *, bytes_max: int = 80) -> OffsetIndex:
    return OffsetIndex(OsDisk(), path, BASE, bytes_max=bytes_max)


def filled(path: Path, *, bytes_max: int = 80) -> OffsetIndex:
    index = make(path, bytes_max=bytes_max)
    for offset, position in THREE:
        index.append(offset, position)
    return index


@pytest.mark.seed_row("4.6")
def test_an_entry_is_four_bytes_of_relative_offset_and_four_of_position(path: Path) -> None:
    index = filled(path)
    index.trim()
    assert path.read_bytes().hex(" ", 4) == "00000005 00000064 0000000a 00001068 00000019 000020d0"


@pytest.mark.seed_row("1.12")
def test_constructing_touches_no_disk_and_the_first_use_preallocates(path: Path) -> None:
    index = make(path, bytes_max=67)
    assert not path.exists()
    assert index.entries == 0
    assert path.read_bytes() == bytes(64)


def test_an_unused_index_is_closed_trimmed_renamed_and_removed_without_a_file(path: Path) -> None:
    index = make(path)
    index.sync()
    index.trim()
    index.close(trim=True)
    index.rename(path.with_suffix(".deleted"))
    index.remove()
    assert not list(path.parent.iterdir())


@pytest.mark.seed_row("1.12")
@pytest.mark.parametrize(
    ("target", "found"),
    [
        (0, (50, 0)),
        (50, (50, 0)),
        (54, (50, 0)),
        (55, (55, 100)),
        (59, (55, 100)),
        (60, (60, 4200)),
        (74, (60, 4200)),
        (75, (75, 8400)),
        (2**62, (75, 8400)),
    ],
)
def test_lookup_finds_the_last_entry_at_or_before(
    path: Path, target: int, found: tuple[int, int]
) -> None:
    assert filled(path).lookup(target) == IndexEntry(*found)


def test_lookup_in_an_empty_index_finds_the_start_of_the_segment(path: Path) -> None:
    assert make(path).lookup(1000) == IndexEntry(BASE, 0)


def test_lookup_beyond_the_warm_pages_finds_what_is_before_them(path: Path) -> None:
    index = make(path, bytes_max=1 << 17)
    for i in range(1, 5001):
        index.append(BASE + 2 * i, 10 * i)
    for i in (1, 2, 17, 3975, 3976, 3977, 4999):
        assert index.lookup(BASE + 2 * i) == (BASE + 2 * i, 10 * i)
        assert index.lookup(BASE + 2 * i + 1) == (BASE + 2 * i, 10 * i)


@pytest.mark.parametrize(
    ("position", "count", "found"),
    [
        (0, 100, (55, 100)),
        (0, 101, (60, 4200)),
        (100, 4100, (60, 4200)),
        (100, 8301, None),
        (8400, 1, None),
    ],
)
def test_upper_bound_is_the_first_entry_that_a_read_does_not_reach(
    path: Path, position: int, count: int, found: tuple[int, int] | None
) -> None:
    assert filled(path).upper_bound(IndexEntry(BASE, position), count) == found


def test_last_offset_is_the_base_offset_of_an_empty_index(path: Path) -> None:
    index = make(path)
    assert index.last_offset == BASE
    index.append(70, 1)
    assert index.last_offset == 70


@pytest.mark.parametrize("offset", [60, 75])
def test_offsets_must_ascend(path: Path, offset: int) -> None:
    with pytest.raises(AssertionError):
        filled(path).append(offset, 9000)


def test_the_first_entry_may_be_the_base_offset(path: Path) -> None:
    index = make(path)
    index.append(BASE, 7)
    assert index.lookup(BASE) == (BASE, 7)


def test_only_what_fits_into_31_bits_can_be_appended(path: Path) -> None:
    index = make(path)
    assert index.can_append(BASE)
    assert index.can_append(BASE + 2**31 - 1)
    assert not index.can_append(BASE + 2**31)
    assert not index.can_append(BASE - 1)
    with pytest.raises(AssertionError):
        index.append(BASE + 2**31, 1)


def test_a_full_index_says_so_and_takes_no_more(path: Path) -> None:
    index = make(path, bytes_max=24)
    for offset, position in THREE:
        assert not index.is_full
        index.append(offset, position)
    assert index.is_full
    with pytest.raises(AssertionError, match="full"):
        index.append(100, 9000)
    assert index.entries == 3


@pytest.mark.parametrize(
    ("offset", "left"), [(0, 0), (55, 0), (56, 1), (60, 1), (61, 2), (75, 2), (76, 3)]
)
def test_truncation_drops_the_entries_at_or_behind_an_offset(
    path: Path, offset: int, left: int
) -> None:
    index = filled(path)
    index.truncate_to(offset)
    assert [index.entry(slot) for slot in range(index.entries)] == THREE[:left]
    index.append(100, 9000)
    assert index.lookup(100) == (100, 9000)


@pytest.mark.seed_row("1.12")
def test_a_trimmed_index_is_read_back(path: Path) -> None:
    filled(path).close(trim=True)
    index = make(path)
    assert index.entries == 3
    assert index.capacity == 3
    index.check(log_size=8401)
    index.grow()
    assert index.capacity == 10
    assert path.stat().st_size == 80
    index.append(80, 9000)
    assert [index.entry(slot) for slot in range(4)] == [*THREE, (80, 9000)]


def test_an_index_that_was_not_trimmed_fails_the_check_and_reset_mends_it(path: Path) -> None:
    filled(path).close()
    index = make(path)
    assert index.entries == 10
    with pytest.raises(CorruptionError, match=r"\(0, 0\)"):
        index.check(log_size=10_000)
    index.reset()
    assert index.entries == 0
    assert path.read_bytes() == bytes(80)
    index.append(60, 5)
    index.trim()
    index.check(log_size=6)


def test_reset_makes_a_missing_file(path: Path) -> None:
    index = make(path)
    index.reset()
    assert path.read_bytes() == bytes(80)
    assert index.entries == 0


def test_an_empty_file_is_an_index_without_entries(path: Path) -> None:
    path.write_bytes(b"")
    index = make(path)
    index.check(log_size=0)
    assert index.entries == 0
    assert index.lookup(60) == (BASE, 0)
    index.grow()
    index.append(60, 1)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("0000000500000064 00", "multiple of 8"),
        ("0000000000000000", r"\(0, 0\)"),
        ("fffffffb00000064", r"\(-5, 100\)"),
        ("0000000500000000", r"\(5, 0\)"),
        ("00000005ffffffff", r"\(5, -1\)"),
        ("00000005000003e8", "in a log of 1000 bytes"),
        ("0000000500000064 0000000500000065", "after"),
        ("0000000500000064 0000000400000065", "after"),
        ("0000000500000064 0000000600000064", "after"),
        ("0000000500000064 0000000000000000", r"\(0, 0\)"),
        ("fffffff700000064 fffffffb00000065", r"\(-5, 101\)"),
        ("00000005fffffff7 0000000600000000", r"\(6, 0\)"),
    ],
)
def test_a_damaged_file_fails_the_check(path: Path, content: str, why: str) -> None:
    path.write_bytes(bytes.fromhex(content))
    with pytest.raises(CorruptionError, match=why):
        make(path).check(log_size=1000)


def test_a_missing_file_fails_the_check_and_is_not_made_by_it(path: Path) -> None:
    with pytest.raises(CorruptionError, match="missing"):
        make(path).check(log_size=1000)
    assert not path.exists()


def test_resize_keeps_whole_entries_that_fit(path: Path) -> None:
    index = filled(path)
    index.resize(23)
    assert path.stat().st_size == 16
    assert index.entries == 2
    assert index.last_offset == 60


def test_entries_survive_rename_relocate_and_close_of_an_untrimmed_index(path: Path) -> None:
    index = filled(path)
    index.rename(path.with_suffix(".deleted"))
    assert not path.exists()
    assert index.path == path.with_suffix(".deleted")
    index.append(80, 9000)
    folder = path.parent.rename(path.parent.with_name("log-delete"))
    index.relocate(folder / index.path.name)
    index.close()
    assert index.entries == 4
    assert index.lookup(79) == (75, 8400)
    index.remove()
    assert not index.path.exists()


def test_an_index_whose_mapping_was_closed_to_save_descriptors_goes_on(tmp_path: Path) -> None:
    disk = OsDisk(descriptors_max=2)
    indexes = [OffsetIndex(disk, tmp_path / f"{i}.index", 0, bytes_max=1 << 16) for i in range(6)]
    for step in range(1, 1200):
        for index in indexes:
            index.append(step, step)
    for index in indexes:
        assert index.entries == 1199
        assert index.lookup(600) == (600, 600)
    assert disk.descriptors <= 2


def test_a_full_disk_is_an_error_and_not_the_end_of_the_process() -> None:
    """Storing into a sparse page for which there is no space left would be a SIGBUS."""
    disk = SimulatedDisk(Random(1))
    index = OffsetIndex(disk, PurePosixPath("/a.index"), 0, bytes_max=10_000)
    for step in range(1, 513):
        index.append(step, step)
    disk.fail("write", errno.ENOSPC, times=2)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            index.append(513, 513)
    assert index.entries == 512
    index.append(513, 513)
    assert index.lookup(513) == (513, 513)


def test_what_was_synced_after_a_trim_is_there_after_a_crash() -> None:
    path = PurePosixPath("/a.index")
    for seed in range(50):
        disk = SimulatedDisk(Random(seed))
        index = OffsetIndex(disk, path, BASE, bytes_max=800)
        for offset, position in THREE:
            index.append(offset, position)
        index.trim()
        index.sync()
        disk.sync_folder(path.parent)
        disk.crash()
        index = OffsetIndex(disk, path, BASE, bytes_max=800)
        index.check(log_size=8401)
        assert [index.entry(slot) for slot in range(index.entries)] == THREE, f"seed {seed}"


def test_space_that_a_trim_gave_back_is_reserved_again() -> None:
    disk = SimulatedDisk(Random(1))
    index = OffsetIndex(disk, PurePosixPath("/a.index"), 0, bytes_max=10_000)
    index.append(1, 1)
    index.append(2, 2)
    index.trim()
    index.grow()
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index.append(3, 3)
    index.append(3, 3)
    index.trim()
    assert disk.read(index.path).hex() == "".join(2 * f"{i:08x}" for i in (1, 2, 3))


def test_a_truncation_alone_is_synced() -> None:
    path = PurePosixPath("/a.index")
    for seed in range(20):
        disk = SimulatedDisk(Random(seed))
        with_entries = b"".join(2 * i.to_bytes(4, "big") for i in range(1, 300))
        disk.open(path, create=True).write(0, [with_entries])
        disk.sync_all()
        index = OffsetIndex(disk, path, 0, bytes_max=10_000)
        index.truncate_to(10)
        index.trim()
        index.sync()
        disk.crash()
        assert disk.size(path) == 72


def test_a_failed_sync_is_tried_again() -> None:
    disk = SimulatedDisk(Random(1))
    index = OffsetIndex(disk, PurePosixPath("/a.index"), 0, bytes_max=800)
    index.append(1, 1)
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        index.sync()
    before = disk.operations
    index.sync()
    index.sync()
    assert disk.operations == before + 1
