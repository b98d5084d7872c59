"""A disk in memory, for tests of what storage does when the machine, or the disk, lets it down.

It keeps the promises of ``odradek.storage.disk`` and no others:

- ``crash`` is a power loss and leaves what ``disk_image`` says. ``kill`` is the end of the process
  alone: all it wrote is still there. After either, files, mappings and locks of before are dead.
- ``stop_at`` ends the machine at the n-th operation, with ``SimulatedCrash``. A write may get part
  of the way. Nothing works any more until ``crash`` or ``kill``. Trying every n is a crash-point
  sweep.
- ``fail`` plants an ``OSError``. A failed write may get part of the way; a failed sync loses what
  it should have written, even if the next one succeeds. ``capacity_bytes`` makes a small disk;
  ``flip_bit`` a rotten one.
- A file finds itself by its path at each use, as the real one does once its descriptor was closed
  to make room: after a rename set ``File.path``, and map anew.

All chance comes from the one ``Random``, so a seed tells the whole story. Not for threads: let
tests run what would be in another thread at a moment of their choice.
"""

import errno
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from random import Random
from typing import Final, Literal, NoReturn, get_args

from odradek.core.clock import Clock
from odradek.storage.disk import MAPPED_READ_BYTES_MIN, Buffer
from odradek.testing.disk_faults import Fault, Kind, Operation, SimulatedCrash
from odradek.testing.disk_image import Entry, Folder, Image, Node, StoredFile

__all__ = ["SimulatedCrash", "SimulatedDisk", "Snapshot"]

SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096
TRACE_LINES_MAX: Final = 1000
ROOT: Final = PurePosixPath("/")
OPERATIONS: Final = get_args(Operation)
_OPERATIONS: Final = frozenset(OPERATIONS)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A disk at some moment, to go back to any number of times."""

    image: Image
    is_off: bool
    operations: int
    now_ms: int


class SimulatedDisk:
    """Implements ``odradek.storage.disk.Disk``. There is nothing on it but the root folder."""

    def __init__(
        self,
        random: Random,
        *,
        now_ms: int = 0,
        clock: Clock | None = None,
        block_bytes: int = SECTOR_BYTES,
        capacity_bytes: int | None = None,
        write_back: float = 0.25,
    ) -> None:
        """With a ``clock`` its wall says when files were changed, and ``now_ms`` means nothing."""
        self.random = random
        self._clock = clock
        self._now_ms = now_ms
        # What is written whole or not at all: a sector, a page; less to tear small files more.
        self.block_bytes = block_bytes
        self.capacity_bytes = capacity_bytes
        # How likely it is that the system writes a file back before a change to it, unasked.
        # This is how content that was overwritten or cut off later can be there after a crash.
        self.write_back = write_back

        self.operations = 0
        self.stop_at: int | None = None
        self.faults: list[Fault] = []
        self.trace: deque[str] = deque(maxlen=TRACE_LINES_MAX)

        self._image = Image()
        self._is_off = False
        self._boots = 0
        self._locked: set[PurePath] = set()

    @property
    def now_ms(self) -> int:
        return self._now_ms if self._clock is None else self._clock.now_ms()

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms

    @property
    def is_off(self) -> bool:
        """Whether ``stop_at`` has ended the machine, and neither crash nor kill came yet."""
        return self._is_off

    # What tests do to it.

    def crash(self) -> None:
        """Cut the power, if it is still on, and switch on again."""
        self._restart("crash")
        self._image.lose_power(self.random)

    def kill(self) -> None:
        """End the process that uses the disk, and be ready for the next."""
        self._restart("kill")
        self._image.restart()

    def fail(
        self,
        kind: Kind | Literal["*"],
        error: int,
        *,
        path: str = "*",
        after: int = 0,
        times: int | None = 1,
    ) -> None:
        """Let operations fail with an errno: ``times`` of them, once ``after`` others went well.

        ``path`` is a pattern as of ``PurePath.match``: ``*.index``, ``topic-0/*``.
        """
        self.faults.append(Fault(kind, path, error, after, times))

    def flip_bit(self, path: PurePath, position: int) -> None:
        """Change one bit of the byte at a position, on the platter and in memory."""
        self._file(path).flip(position, 1 << self.random.randrange(8))

    def sync_all(self) -> None:
        """Make everything durable, as time would: the end of a test's preparations."""
        self._image.sync_all()

    def used_bytes(self) -> int:
        return sum(file.allocated for file in self._image.root.files())

    def snapshot(self) -> Snapshot:
        return Snapshot(deepcopy(self._image), self._is_off, self.operations, self.now_ms)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back, with all handles dead. Chance goes on: the next crash has another outcome."""
        self._restart("restore")
        self._image = deepcopy(snapshot.image)
        self._is_off = snapshot.is_off
        self.operations = snapshot.operations
        self.now_ms = snapshot.now_ms

    def export(self, target: Path, source: PurePath = ROOT) -> None:
        """Copy a folder to the real disk, for other tools to look at."""
        target.mkdir(parents=True, exist_ok=True)
        for name, node in sorted(self._folder(source).current.items()):
            if isinstance(node, Folder):
                self.export(target / name, source / name)
            else:
                (target / name).write_bytes(node.current)
                os.utime(target / name, ns=(node.modified_ms * 1_000_000,) * 2)

    def load(self, source: Path, target: PurePath = ROOT) -> None:
        """Copy a folder from the real disk. Afterwards all there is on this one is durable."""
        folder = self._make_folder(target)
        for path in sorted(source.iterdir()):
            if path.is_dir():
                self.load(path, target / path.name)
            else:
                modified_ms = path.stat().st_mtime_ns // 1_000_000
                file = StoredFile(self.block_bytes, modified_ms)
                file.write(0, path.read_bytes(), modified_ms)
                self._image.change(Entry(folder, path.name, file))
        self._image.sync_all()

    # What storage does with it.

    def open(self, path: PurePath, *, create: bool = False) -> "SimulatedFile":
        folder = self._parent(path)
        if create and not self.exists(path):
            self._begin("create", path)
            file = StoredFile(self.block_bytes, self.now_ms)
            self._image.change(Entry(folder, path.name, file))
        else:
            file = self._file(path)
            self._begin("open", path)
        return SimulatedFile(self, path, file)

    def exists(self, path: PurePath) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            self._find(path)
            return True
        return False

    def size(self, path: PurePath) -> int:
        return len(self._file(path).current)

    def modified_ms(self, path: PurePath) -> int:
        return self._file(path).modified_ms

    def read(self, path: PurePath) -> bytes:
        file = self._file(path)
        self._begin("read", path)
        return bytes(file.current)

    def names(self, folder: PurePath) -> list[str]:
        return sorted(self._folder(folder).current)

    def is_folder(self, path: PurePath) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            return isinstance(self._find(path), Folder)
        return False

    def make_folder(self, path: PurePath) -> None:
        if self.exists(path) and not self.is_folder(path):
            raise _error(errno.EEXIST, path)
        self._make_folder(path)

    def rename(self, source: PurePath, target: PurePath) -> None:
        old, new = self._parent(source), self._parent(target)
        node = self._find(source)
        replaced = new.current.get(target.name)
        if replaced is node:
            return
        self._check_rename(node, source, replaced, target)
        self._begin("rename", source, f"to {target}")
        self._image.change(Entry(old, source.name, None), Entry(new, target.name, node))

    def remove(self, path: PurePath) -> None:
        try:
            node = self._find(path)
        except FileNotFoundError:
            return
        if isinstance(node, Folder):
            raise _error(errno.EISDIR, path)
        self._begin("remove", path)
        self._image.change(Entry(self._parent(path), path.name, None))

    def remove_folder(self, path: PurePath) -> None:
        """Remove one thing after the other, in no order: each step can be the last."""
        if not self.is_folder(path):
            return
        names = self.names(path)
        self.random.shuffle(names)
        for name in names:
            if self.is_folder(path / name):
                self.remove_folder(path / name)
            else:
                self.remove(path / name)
        self._begin("remove_folder", path)
        self._image.change(Entry(self._parent(path), path.name, None))

    def sync_file(self, path: PurePath) -> None:
        _sync(self, path, self._file(path))

    def sync_folder(self, folder: PurePath) -> None:
        node = self._folder(folder)
        self._begin("sync_folder", folder)
        self._image.sync_folder(node)

    def lock(self, path: PurePath) -> "SimulatedLock":
        """Lock a file, against this same process too: it plays all the processes there are."""
        self.open(path, create=True).close()
        if path in self._locked:
            raise _error(errno.EAGAIN, path)
        self._locked.add(path)
        return SimulatedLock(self, path)

    # How it is done.

    def _begin(self, kind: Kind, path: PurePath, note: str = "") -> None:
        """Note and count an operation that is about to take effect; raise if it must not."""
        if kind in _OPERATIONS:
            self.operations += 1
            self.trace.append(f"{self.operations} {kind} {path} {note}".rstrip())
            if self.stop_at is not None and self.operations >= self.stop_at:
                self._is_off = True
                raise SimulatedCrash(self.trace[-1])
        for fault in self.faults:
            if fault.strikes(kind, path):
                self.trace.append(f"{kind} {path}: {errno.errorcode[fault.error]}")
                raise _error(fault.error, path)

    def _check_alive(self, boot: int | None = None) -> None:
        if self._is_off:
            raise SimulatedCrash("the machine is off: crash() or kill() before using the disk")
        if boot is not None and boot != self._boots:
            raise SimulatedCrash("opened before the machine or the process stopped")

    def _restart(self, reason: str) -> None:
        self.trace.append(reason)
        self.stop_at = None
        self._is_off = False
        self._boots += 1
        self._locked.clear()

    def _find(self, path: PurePath) -> Node:
        self._check_alive()
        assert ".." not in path.parts, path
        node: Node = self._image.root
        for name in path.parts[1:]:  # behind the root
            if not isinstance(node, Folder):
                raise _error(errno.ENOTDIR, path)
            if name not in node.current:
                raise _error(errno.ENOENT, path)
            node = node.current[name]
        return node

    def _file(self, path: PurePath) -> StoredFile:
        node = self._find(path)
        if isinstance(node, Folder):
            raise _error(errno.EISDIR, path)
        return node

    def _folder(self, path: PurePath) -> Folder:
        node = self._find(path)
        if isinstance(node, StoredFile):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: PurePath) -> Folder:
        return self._folder(path.parent)

    def _make_folder(self, path: PurePath) -> Folder:
        if not self.exists(path):
            parent = self._make_folder(path.parent)
            self._begin("make_folder", path)
            self._image.change(Entry(parent, path.name, Folder()))
        return self._folder(path)

    def _check_rename(
        self, node: Node, source: PurePath, replaced: Node | None, target: PurePath
    ) -> None:
        if target in source.parents:
            raise _error(errno.ENOTEMPTY, target)
        if isinstance(node, StoredFile):
            if isinstance(replaced, Folder):
                raise _error(errno.EISDIR, target)
            return
        if source in target.parents:
            raise _error(errno.EINVAL, target)
        if isinstance(replaced, StoredFile):
            raise _error(errno.ENOTDIR, target)
        if replaced is not None and replaced.current:
            raise _error(errno.ENOTEMPTY, target)

    def _write_back(self, file: StoredFile) -> None:
        if self.random.random() < self.write_back:
            file.write_back(self.random)

    def _fitting(self, file: StoredFile, end: int, count: int) -> int:
        """Return how many of ``count`` bytes up to ``end`` there is space for."""
        if self.capacity_bytes is None:
            return count
        missing = max(0, end - file.allocated) - (self.capacity_bytes - self.used_bytes())
        return count - min(count, max(0, missing))


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, path: PurePath, file: StoredFile) -> None:
        self.path = path
        self.size = len(file.current)
        self._disk = disk
        self._boot = disk._boots
        self._file = file
        self._found_at = -1

    def read(self, position: int, count: int) -> Buffer:
        file = self._find()
        self._disk._begin("read", self.path)
        count = max(0, min(count, self.size - position))
        data = bytes(file.current[position : position + count])
        return memoryview(data) if count >= MAPPED_READ_BYTES_MIN else data

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        file, disk = self._find(), self._disk
        data = b"".join(buffers)
        end = position + len(data)
        fitting = disk._fitting(file, end, len(data))
        disk._write_back(file)
        try:
            disk._begin("write", self.path, f"{position}+{len(data)}")
        except BaseException:
            torn = disk.random.choice((0, fitting, disk.random.randint(0, fitting)))
            file.write(position, data[:torn], disk.now_ms)
            raise
        file.write(position, data[:fitting], disk.now_ms)
        if fitting < len(data):
            raise _error(errno.ENOSPC, self.path)
        if data:
            self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        file, disk = self._find(), self._disk
        disk._write_back(file)
        disk._begin("truncate", self.path, f"{len(file.current)} to {size}")
        file.truncate(size, disk.now_ms)
        self.size = size

    def sync(self) -> None:
        _sync(self._disk, self.path, self._find())

    def map(self, *, writable: bool) -> "SimulatedMapping":
        file = self._find()
        self._disk._begin("map", self.path)
        return SimulatedMapping(self._disk, self.path, file, self.size, writable=writable)

    def close(self) -> None:
        """Do nothing: the next use would open the file again."""

    def _find(self) -> StoredFile:
        self._found_at = _find_again(self._disk, self._boot, self.path, self._file, self._found_at)
        return self._file


class SimulatedMapping:
    def __init__(
        self, disk: SimulatedDisk, path: PurePath, file: StoredFile, size: int, *, writable: bool
    ) -> None:
        self.size = size
        self._disk = disk
        self._boot = disk._boots
        self._path = path
        self._file = file
        self._writable = writable
        self._found_at = -1

    @property
    def buffer(self) -> bytearray:
        if self.size == 0:
            return bytearray()
        file = self._find()
        if len(file.current) != self.size:
            raise ValueError(f"{self._path} was mapped with another size: map it anew")
        return file.current if self._writable else _ReadOnly(file.current)

    def sync(self) -> None:
        if self._writable and self.size:
            _sync(self._disk, self._path, self._find())

    def close(self) -> object:
        return True

    def _find(self) -> StoredFile:
        self._found_at = _find_again(self._disk, self._boot, self._path, self._file, self._found_at)
        return self._file


class SimulatedLock:
    def __init__(self, disk: SimulatedDisk, path: PurePath) -> None:
        self._disk = disk
        self._boot = disk._boots
        self._path = path

    def release(self) -> None:
        if self._boot == self._disk._boots:
            self._disk._locked.discard(self._path)


class _ReadOnly(bytearray):
    """A copy that refuses to be changed, as a mapping for reading does."""

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError("mapped for reading")


def _find_again(
    disk: SimulatedDisk, boot: int, path: PurePath, file: StoredFile, found_at: int
) -> int:
    """Check that a path leads to a file still; return how often names had changed by now.

    While none has changed since it was last found, nothing needs to be looked for.
    """
    disk._check_alive(boot)
    changes = disk._image.changes
    if changes != found_at and disk._file(path) is not file:
        raise FileNotFoundError(errno.ENOENT, "another file has this name now", str(path))
    return changes


def _sync(disk: SimulatedDisk, path: PurePath, file: StoredFile) -> None:
    try:
        disk._begin("sync", path)
    except OSError:
        file.fail_sync()
        raise
    file.sync()


def _error(number: int, path: PurePath) -> OSError:
    return OSError(number, os.strerror(number), str(path))
