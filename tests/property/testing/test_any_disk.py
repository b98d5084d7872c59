"""What holds for any disk while all goes well, shown for each there is.

The real one runs a second time so that every file has to open itself again at each use.
"""

import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from random import Random

import pytest

from odradek.broker.clock import SystemClock
from odradek.storage.disk import MAPPED_READ_BYTES_MIN, Disk, OsDisk, write_atomically
from odradek.testing.disk import SimulatedDisk
from odradek.testing.memory_disk import MemoryDisk


@dataclass
class Place:
    disk: Disk
    folder: PurePath


@pytest.fixture(params=["os", "os that reopens", "simulated", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param in ("simulated", "memory"):
        is_memory = request.param == "memory"
        disk: Disk = MemoryDisk(SystemClock()) if is_memory else SimulatedDisk(Random(0))
        disk.make_folder(PurePosixPath("/data"))
        return Place(disk, PurePosixPath("/data"))
    return Place(OsDisk(descriptors_max=800 if request.param == "os" else 1), tmp_path)


def put(disk: Disk, path: PurePath, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write(0, [data])
    file.close()


def content(disk: Disk, folder: PurePath) -> dict[str, bytes]:
    return {name: disk.read(folder / name) for name in disk.names(folder)}


def test_it_reads_what_was_written(place: Place) -> None:
    file = place.disk.open(place.folder / "f", create=True)
    file.write(0, [b"abc", bytearray(b"def"), memoryview(b"ghi")])
    assert file.size == place.disk.size(place.folder / "f") == 9
    assert file.read(2, 4) == b"cdef"
    assert file.read(7, 100) == b"hi"
    assert file.read(9, 100) == file.read(20, 5) == b""
    file.write(1, [b"X"])
    file.write(12, [b"end"])
    assert place.disk.read(place.folder / "f") == b"aXcdefghi\0\0\0end"
    file.write(0, [])
    file.write(0, [b""])
    assert file.size == 15
    file.close()
    assert file.read(0, 2) == b"aX"  # opens itself again
    file.close()
    again = place.disk.open(place.folder / "f", create=True)
    assert (again.size, again.path) == (15, place.folder / "f")
    again.close()


def test_it_truncates_and_extends_with_zeros(place: Place) -> None:
    file = place.disk.open(place.folder / "f", create=True)
    file.write(0, [b"abcdef"])
    file.truncate(2)
    assert (file.size, file.read(0, 10)) == (2, b"ab")
    file.truncate(5)
    place.disk.sync_file(place.folder / "f")
    assert (file.size, place.disk.read(place.folder / "f")) == (5, b"ab\0\0\0")
    file.sync()
    file.close()


def test_it_gives_views_for_large_reads_that_survive_a_truncate(place: Place) -> None:
    file = place.disk.open(place.folder / "f", create=True)
    file.write(0, [b"a" * 2 * MAPPED_READ_BYTES_MIN])
    view = file.read(0, MAPPED_READ_BYTES_MIN)
    assert isinstance(view, memoryview)
    file.truncate(1)
    assert view == b"a" * MAPPED_READ_BYTES_MIN
    file.close()


def test_it_shows_writes_through_a_mapping_at_once(place: Place) -> None:
    path = place.folder / "f"
    file = place.disk.open(path, create=True)
    file.truncate(16)
    mapping = file.map(writable=True)
    reading = file.map(writable=False)
    struct.pack_into(">I", mapping.buffer, 4, 7)
    mapping.buffer[0:2] = b"xy"
    assert file.read(0, 8) == place.disk.read(path)[:8] == b"xy\0\0\0\0\0\7"
    file.write(15, [b"z"])
    assert mapping.size == reading.size == len(mapping.buffer) == 16
    assert mapping.buffer[15] == reading.buffer[15] == ord("z")
    mapping.sync()
    with pytest.raises(TypeError):
        reading.buffer[0] = 1
    with pytest.raises(TypeError):
        reading.buffer[0:1] = b"1"
    mapping.close()
    reading.close()
    file.close()


def test_it_maps_an_empty_file_as_nothing(place: Place) -> None:
    file = place.disk.open(place.folder / "f", create=True)
    mapping = file.map(writable=True)
    assert (mapping.size, len(mapping.buffer)) == (0, 0)
    mapping.sync()
    mapping.close()
    file.close()


def test_it_renames_over_a_file_and_a_file_goes_on_under_its_new_path(place: Place) -> None:
    disk, folder = place.disk, place.folder
    put(disk, folder / "old", b"old")
    file = disk.open(folder / "new", create=True)
    file.write(0, [b"new"])
    disk.rename(folder / "new", folder / "old")
    file.path = folder / "old"
    disk.open(folder / "other", create=True).close()
    file.write(3, [b"er"])
    assert content(disk, folder) == {"old": b"newer", "other": b""}
    file.close()


def test_it_renames_folders_with_what_is_in_them(place: Place) -> None:
    disk, folder = place.disk, place.folder
    disk.make_folder(folder / "a" / "b")
    disk.make_folder(folder / "a" / "b")
    put(disk, folder / "a" / "b" / "f", b"1")
    disk.make_folder(folder / "empty")
    disk.rename(folder / "a", folder / "empty")
    disk.sync_folder(folder)
    assert disk.names(folder) == ["empty"]
    assert disk.read(folder / "empty" / "b" / "f") == b"1"
    assert disk.is_folder(folder / "empty" / "b")
    assert not disk.is_folder(folder / "empty" / "b" / "f")
    disk.remove_folder(folder / "empty")
    assert disk.names(folder) == []
    disk.remove_folder(folder / "empty")
    disk.remove(folder / "empty")


FAILURES: dict[str, tuple[int, Callable[[Disk, PurePath], object]]] = {
    "open a missing file": (errno.ENOENT, lambda d, p: d.open(p / "none")),
    "create in a missing folder": (errno.ENOENT, lambda d, p: d.open(p / "no" / "f", create=True)),
    "create in a file": (errno.ENOTDIR, lambda d, p: d.open(p / "f" / "x", create=True)),
    "open a folder": (errno.EISDIR, lambda d, p: d.open(p / "full")),
    "create a folder's name": (errno.EISDIR, lambda d, p: d.open(p / "full", create=True)),
    "read a missing file": (errno.ENOENT, lambda d, p: d.read(p / "none")),
    "read a folder": (errno.EISDIR, lambda d, p: d.read(p / "full")),
    "size of a missing file": (errno.ENOENT, lambda d, p: d.size(p / "none")),
    "time of a missing file": (errno.ENOENT, lambda d, p: d.modified_ms(p / "none")),
    "names in a missing folder": (errno.ENOENT, lambda d, p: d.names(p / "none")),
    "names in a file": (errno.ENOTDIR, lambda d, p: d.names(p / "f")),
    "make a folder of a file": (errno.EEXIST, lambda d, p: d.make_folder(p / "f")),
    "make a folder in a file": (errno.ENOTDIR, lambda d, p: d.make_folder(p / "f" / "x" / "y")),
    "rename a missing file": (errno.ENOENT, lambda d, p: d.rename(p / "none", p / "x")),
    "rename to nowhere": (errno.ENOENT, lambda d, p: d.rename(p / "f", p / "none" / "f")),
    "rename a file to a folder": (errno.EISDIR, lambda d, p: d.rename(p / "f", p / "empty")),
    "rename a folder to a file": (errno.ENOTDIR, lambda d, p: d.rename(p / "empty", p / "f")),
    "rename to a full folder": (errno.ENOTEMPTY, lambda d, p: d.rename(p / "empty", p / "full")),
    "rename to its own folder": (
        errno.ENOTEMPTY,
        lambda d, p: d.rename(p / "full" / "g", p / "full"),
    ),
    "rename into itself": (errno.EINVAL, lambda d, p: d.rename(p / "full", p / "full" / "x")),
    "remove a folder as a file": (errno.EISDIR, lambda d, p: d.remove(p / "empty")),
    "remove below a file": (errno.ENOTDIR, lambda d, p: d.remove(p / "f" / "x")),
    "sync a missing file": (errno.ENOENT, lambda d, p: d.sync_file(p / "none")),
    "sync a missing folder": (errno.ENOENT, lambda d, p: d.sync_folder(p / "none")),
    "sync a file as a folder": (errno.ENOTDIR, lambda d, p: d.sync_folder(p / "f")),
    "lock in a missing folder": (errno.ENOENT, lambda d, p: d.lock(p / "none" / ".lock")),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_failures_are_alike(place: Place, failure: str) -> None:
    disk, folder = place.disk, place.folder
    put(disk, folder / "f", b"1")
    disk.make_folder(folder / "empty")
    disk.make_folder(folder / "full")
    put(disk, folder / "full" / "g", b"1")
    number, attempt = FAILURES[failure]
    with pytest.raises(OSError) as caught:
        attempt(disk, folder)
    assert caught.value.errno == number
    assert type(caught.value) is type(OSError(number, ""))
    assert disk.names(folder) == ["empty", "f", "full"]
    assert disk.names(folder / "full") == ["g"]


def test_it_does_not_remove_a_file_as_a_folder(place: Place) -> None:
    put(place.disk, place.folder / "f", b"1")
    place.disk.remove_folder(place.folder / "f")
    assert place.disk.exists(place.folder / "f")
    assert not place.disk.exists(place.folder / "f" / "x")
    assert not place.disk.is_folder(place.folder / "f" / "x")


def test_it_locks_a_file_that_it_makes_and_leaves(place: Place) -> None:
    lock = place.disk.lock(place.folder / ".lock")
    lock.release()
    assert place.disk.names(place.folder) == [".lock"]
    place.disk.lock(place.folder / ".lock").release()


def test_it_writes_atomically(place: Place) -> None:
    write_atomically(place.disk, place.folder / "f", b"one")
    write_atomically(place.disk, place.folder / "f", b"two")
    assert content(place.disk, place.folder) == {"f": b"two"}
