"""A disk in memory, for a broker that leaves no files: ``Broker(memory=True)``.

It implements ``odradek.storage.disk.Disk`` and never loses anything before the process ends, so
syncing does nothing. For crashes and faults there is ``odradek.testing.disk``.

A file is a ``bytearray`` of what was written; zeros behind that, which a ``truncate`` adds, exist
only as a size. Where such a file is mapped (the preallocated index of a segment that grows: 10 MiB
with hardly anything in it) it becomes anonymous memory, of which the system provides what is used.
Reads copy, so nobody holds a view of a file that grows.

``bytes_max`` counts what was written. Past it writes fail with ENOSPC, as on a full disk.
"""

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from threading import Lock as ThreadLock
from typing import Final, NoReturn

from odradek.core.clock import Clock
from odradek.storage.disk import MAPPED_READ_BYTES_MIN, Buffer

BYTES_MAX: Final = 256 * 1024 * 1024


class StoredBytes:
    """The content of a file, whatever it is called at the moment."""

    __slots__ = ("buffer", "modified_ms", "size", "written")

    def __init__(self, modified_ms: int) -> None:
        self.buffer: bytearray | mmap.mmap = bytearray()  # shorter than size: zeros follow
        self.size = 0
        self.written = 0  # how much of it counts
        self.modified_ms = modified_ms

    def read(self, position: int, count: int) -> bytes:
        end = min(position + count, self.size)
        with memoryview(self.buffer) as view, view[position:end] as part:
            data = bytes(part)
        missing = end - position - len(data)
        return data + bytes(missing) if missing > 0 else data

    def write(self, position: int, data: Buffer) -> None:
        end = position + len(data)
        if end > len(self.buffer):
            growing = self._growing()
            growing.extend(bytes(max(position - len(growing), 0)))
            growing[position:] = data
        else:
            self.buffer[position:end] = data
        self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        if size < len(self.buffer):
            self.buffer = bytearray(self.buffer[:size])
        self.size = size

    def mapped(self) -> bytearray | mmap.mmap:
        """Return the whole of it, to be changed in place."""
        if len(self.buffer) < self.size:
            mapped = mmap.mmap(-1, self.size)
            mapped[: len(self.buffer)] = self.buffer[:]
            self.buffer = mapped
        return self.buffer

    def _growing(self) -> bytearray:
        if not isinstance(self.buffer, bytearray):
            self.buffer = bytearray(self.buffer[:])
        return self.buffer


class Folder(dict[str, "StoredBytes | Folder"]):
    """Names and what they stand for."""


class MemoryDisk:
    def __init__(self, clock: Clock, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._clock = clock
        self._root = Folder()
        self._locked: set[PurePath] = set()
        # Threads write checkpoints and remove files while the loop appends.
        self._thread_lock = ThreadLock()

    def open(self, path: PurePath, *, create: bool = False) -> "MemoryFile":
        folder = self._folder(path.parent)
        if create and path.name not in folder:
            folder[path.name] = StoredBytes(self._clock.now_ms())
        return MemoryFile(self, path, self._file(path))

    def exists(self, path: PurePath) -> bool:
        try:
            self._find(path)
        except OSError:
            return False
        return True

    def size(self, path: PurePath) -> int:
        return self._file(path).size

    def modified_ms(self, path: PurePath) -> int:
        return self._file(path).modified_ms

    def read(self, path: PurePath) -> bytes:
        file = self._file(path)
        return file.read(0, file.size)

    def names(self, folder: PurePath) -> list[str]:
        return sorted(self._folder(folder))

    def is_folder(self, path: PurePath) -> bool:
        return self.exists(path) and isinstance(self._find(path), Folder)

    def make_folder(self, path: PurePath) -> None:
        if self.exists(path) and not self.is_folder(path):
            raise _error(errno.EEXIST, path)
        folder: StoredBytes | Folder = self._root
        for name in path.parts[1:]:
            if not isinstance(folder, Folder):
                raise _error(errno.ENOTDIR, path)
            folder = folder.setdefault(name, Folder())

    def rename(self, source: PurePath, target: PurePath) -> None:
        with self._thread_lock:
            old, new = self._folder(source.parent), self._folder(target.parent)
            moved, replaced = self._find(source), new.get(target.name)
            if moved is replaced:
                return
            _check_rename(moved, source, replaced, target)
            if isinstance(replaced, StoredBytes):
                self._discount(replaced)
            del old[source.name]
            new[target.name] = moved

    def remove(self, path: PurePath) -> None:
        with self._thread_lock:
            folder = self._folder(path.parent)
            if path.name not in folder:
                return
            self._discount(self._file(path))
            del folder[path.name]

    def remove_folder(self, path: PurePath) -> None:
        if not self.is_folder(path):
            return
        with self._thread_lock:
            for file in _files(self._folder(path)):
                self._discount(file)
            del self._folder(path.parent)[path.name]

    def sync_file(self, path: PurePath) -> None:
        self._file(path)

    def sync_folder(self, folder: PurePath) -> None:
        self._folder(folder)

    def lock(self, path: PurePath) -> "MemoryLock":
        self.open(path, create=True)
        if path in self._locked:
            raise _error(errno.EAGAIN, path)
        self._locked.add(path)
        return MemoryLock(self, path)

    def release(self, path: PurePath) -> None:
        self._locked.discard(path)

    # For its files.

    def write(self, path: PurePath, file: StoredBytes, position: int, data: Buffer) -> None:
        with self._thread_lock:
            growth = max(position + len(data) - file.written, 0)
            if self.used_bytes + growth > self.bytes_max:
                problem = f"memory is full, {self.bytes_max} bytes: raise memory_bytes_max"
                raise OSError(errno.ENOSPC, problem, str(path))
            file.write(position, data)
            file.written += growth
            self.used_bytes += growth
        file.modified_ms = self._clock.now_ms()

    def truncate(self, file: StoredBytes, size: int) -> None:
        with self._thread_lock:
            file.truncate(size)
            cut = max(file.written - size, 0)
            file.written -= cut
            self.used_bytes -= cut
        file.modified_ms = self._clock.now_ms()

    def _discount(self, removed: StoredBytes) -> None:
        self.used_bytes -= removed.written
        removed.written = 0  # whoever has it open may still cut it

    def _find(self, path: PurePath) -> "StoredBytes | Folder":
        found: StoredBytes | Folder = self._root
        for name in path.parts[1:]:  # behind the root
            if not isinstance(found, Folder):
                raise _error(errno.ENOTDIR, path)
            if name not in found:
                raise _error(errno.ENOENT, path)
            found = found[name]
        return found

    def _file(self, path: PurePath) -> StoredBytes:
        found = self._find(path)
        if isinstance(found, Folder):
            raise _error(errno.EISDIR, path)
        return found

    def _folder(self, path: PurePath) -> Folder:
        found = self._find(path)
        if isinstance(found, StoredBytes):
            raise _error(errno.ENOTDIR, path)
        return found


def _files(folder: Folder) -> Iterator[StoredBytes]:
    for each in folder.values():
        if isinstance(each, Folder):
            yield from _files(each)
        else:
            yield each


def _check_rename(
    moved: "StoredBytes | Folder",
    source: PurePath,
    replaced: "StoredBytes | Folder | None",
    target: PurePath,
) -> None:
    """Refuse what the operating system refuses."""
    if target in source.parents:
        raise _error(errno.ENOTEMPTY, target)
    if isinstance(moved, StoredBytes):
        if isinstance(replaced, Folder):
            raise _error(errno.EISDIR, target)
        return
    if source in target.parents:
        raise _error(errno.EINVAL, target)
    if isinstance(replaced, StoredBytes):
        raise _error(errno.ENOTDIR, target)
    if replaced:
        raise _error(errno.ENOTEMPTY, target)


class MemoryFile:
    __slots__ = ("_disk", "_stored", "path", "size")

    def __init__(self, disk: MemoryDisk, path: PurePath, stored: StoredBytes) -> None:
        self.path = path
        self.size = stored.size
        self._disk = disk
        self._stored = stored

    def read(self, position: int, count: int) -> Buffer:
        data = self._stored.read(position, max(count, 0))
        return memoryview(data) if len(data) >= MAPPED_READ_BYTES_MIN else data

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        if data:
            self._disk.write(self.path, self._stored, position, data)
            self.size = max(self.size, position + len(data))

    def truncate(self, size: int) -> None:
        self._disk.truncate(self._stored, size)
        self.size = size

    def sync(self) -> None:
        """Do nothing: all is where it is going to be."""

    def map(self, *, writable: bool) -> "MemoryMapping":
        return MemoryMapping(self._stored, writable=writable)

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class MemoryMapping:
    __slots__ = ("_stored", "_writable", "size")

    def __init__(self, stored: StoredBytes, *, writable: bool) -> None:
        self._stored = stored
        self._writable = writable
        self.size = stored.size

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        mapped = self._stored.mapped()
        return mapped if self._writable else _ReadOnly(mapped[:])

    def sync(self) -> None:
        """Do nothing, as ``MemoryFile.sync``."""

    def close(self) -> object:
        return True


class _ReadOnly(bytearray):
    """A copy that refuses to be changed, as a mapping for reading does."""

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError("mapped for reading")


class MemoryLock:
    def __init__(self, disk: MemoryDisk, path: PurePath) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.release(self._path)


def _error(number: int, path: PurePath) -> OSError:
    return OSError(number, os.strerror(number), str(path))
