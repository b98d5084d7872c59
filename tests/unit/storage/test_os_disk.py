"""The operating system's disk: limits on descriptors, views that outlive truncation, locks."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.storage.disk import MAPPED_READ_BYTES_MIN, OsDisk, write_atomically

LARGE = 4 * MAPPED_READ_BYTES_MIN


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write(0, [b"abc", bytearray(b"def"), memoryview(b"ghi")])
    assert file.size == 9
    assert file.read(2, 4) == b"cdef"
    assert file.read(7, 100) == b"hi"
    assert file.read(9, 100) == b""
    assert file.read(20, 5) == b""
    file.write(1, [b"X"])
    assert file.size == 9
    assert file.read(0, 9) == b"aXcdefghi"


def test_more_buffers_than_one_call_takes_are_all_written(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    buffers = [bytes([i % 251]) * (i % 7) for i in range(3000)]
    file.write(0, buffers)
    assert file.read(0, file.size) == b"".join(buffers)


def test_a_missing_file_is_not_made_by_accident(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OsDisk().open(tmp_path / "f")


@pytest.mark.seed_row("1.16")
def test_large_reads_are_views_and_see_later_appends(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write(0, [b"a" * LARGE])
    first = file.read(0, LARGE)
    assert isinstance(first, memoryview)
    file.write(LARGE, [b"b" * LARGE])
    assert file.read(LARGE, LARGE) == b"b" * LARGE
    assert first == b"a" * LARGE


@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("evicted", [False, True])
def test_views_survive_truncation(tmp_path: Path, grown: bool, evicted: bool) -> None:
    """Touching a page of a mapping that the file no longer has kills the process."""
    disk = OsDisk(descriptors_max=2 if evicted else 100)
    file = disk.open(tmp_path / "f", create=True)
    file.write(0, [b"a" * LARGE])
    view = file.read(0, LARGE)
    if grown:
        file.write(LARGE, [b"b" * LARGE])
        file.read(LARGE, LARGE)
    others = [disk.open(tmp_path / f"other{i}", create=True) for i in range(4)]
    file.truncate(10)
    assert file.size == 10
    assert file.read(0, 100) == b"a" * 10
    assert view == b"a" * LARGE
    file.write(10, [b"z"])
    assert (tmp_path / "f").read_bytes() == b"a" * 10 + b"z"
    assert len(others) == 4


def test_truncation_without_views_happens_in_place(tmp_path: Path) -> None:
    file = OsDisk().open(tmp_path / "f", create=True)
    file.write(0, [b"a" * LARGE])
    file.read(0, LARGE)
    inode = os.stat(tmp_path / "f").st_ino
    file.truncate(3)
    assert os.stat(tmp_path / "f").st_ino == inode


def descriptors_below(folder: Path) -> int:
    """Count open files of a folder: other threads of this process open and close theirs."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += folder in descriptor.readlink().parents
    return found


@pytest.mark.seed_row("1.9")
@pytest.mark.slow
def test_descriptors_stay_under_the_limit_and_files_stay_usable(tmp_path: Path) -> None:
    disk = OsDisk(descriptors_max=8)
    files = [disk.open(tmp_path / str(i), create=True) for i in range(50)]
    maps = []
    for i, file in enumerate(files):
        file.truncate(64)
        maps.append(file.map(writable=True))
        maps[-1].buffer[0] = i
    assert disk.descriptors <= 8
    assert descriptors_below(tmp_path) <= 8
    for i, (file, mapping) in enumerate(zip(files, maps, strict=True)):
        assert mapping.buffer[0] == i
        assert file.read(0, 1) == bytes([i])
        file.write(1, [b"w"])
        assert mapping.buffer[1] == ord("w")
    for file, mapping in zip(files, maps, strict=True):
        mapping.close()
        file.close()
    assert disk.descriptors == 0
    assert descriptors_below(tmp_path) == 0


def test_an_empty_file_can_be_mapped(tmp_path: Path) -> None:
    mapping = OsDisk().open(tmp_path / "f", create=True).map(writable=True)
    assert len(mapping.buffer) == 0
    mapping.sync()
    assert mapping.close()


def test_write_atomically_replaces_and_leaves_no_litter(tmp_path: Path) -> None:
    disk = OsDisk()
    write_atomically(disk, tmp_path / "f", b"old")
    write_atomically(disk, tmp_path / "f", b"new")
    assert disk.read(tmp_path / "f") == b"new"
    assert disk.names(tmp_path) == ["f"]


def test_a_folder_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.make_folder(tmp_path / "a" / "b")
    disk.open(tmp_path / "a" / "b" / "f", create=True).close()
    disk.remove_folder(tmp_path / "a")
    disk.remove_folder(tmp_path / "a")
    disk.remove(tmp_path / "f")
    assert disk.names(tmp_path) == []


def test_a_lock_keeps_another_process_out(tmp_path: Path) -> None:
    lock = OsDisk().lock(tmp_path / ".lock")
    script = (
        "import sys; from pathlib import Path; from odradek.storage.disk import OsDisk\n"
        "OsDisk().lock(Path(sys.argv[1]))"
    )
    run = [sys.executable, "-c", script, str(tmp_path / ".lock")]
    refused = subprocess.run(run, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "BlockingIOError" in refused.stderr or "PermissionError" in refused.stderr
    lock.release()
    assert subprocess.run(run, capture_output=True).returncode == 0


def test_files_that_are_closed_in_any_order_leave_the_others_counted_and_usable(
    tmp_path: Path,
) -> None:
    disk = OsDisk(descriptors_max=6)
    files = [disk.open(tmp_path / str(number), create=True) for number in range(6)]
    for number in (2, 0, 5):
        files[number].close()
    assert disk.descriptors == 3
    for number in (1, 3, 4):
        files[number].write(0, [b"%d" % number])
        assert files[number].read(0, 1) == b"%d" % number
    more = [disk.open(tmp_path / f"more-{number}", create=True) for number in range(9)]
    assert disk.descriptors == 6
    for file in (*files, *more):
        file.close()
    assert disk.descriptors == 0
