"""The port through which storage touches files, and the disk of the operating system behind it.

Nothing else in this package imports ``os`` or ``mmap``, so that tests can put a disk here that
loses what was not synced, tears writes, fills up or stops at the n-th operation
(``odradek.testing.disk``). Failures are ``OSError``, as the operating system raises them.

What callers may rely on, and no more:

- what was written is read back at once, by this process and others;
- after a crash, bytes written since the last ``sync`` may be old, new, or zero, in any mixture, and
  the file may have any size in between; names made or changed since the last ``sync_folder`` may
  be undone, the latest first;
- ``rename`` is atomic and replaces its target.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Final, Protocol, TypeAlias
from weakref import ref

Buffer: TypeAlias = bytes | bytearray | memoryview

MAPPED_READ_BYTES_MIN: Final = 64 * 1024
"""From here on a read is a view of a mapping: faulting pages in is cheaper than copying them."""

TEMPORARY_SUFFIX: Final = ".tmp"
"""Of what ``write_atomically`` has not renamed yet; a kill leaves it."""
TRUNCATED_SUFFIX: Final = ".truncated"
"""Of a shorter copy that is about to replace a file whose pages somebody still reads."""

DESCRIPTORS_MAX: Final = 800
IOV_MAX: Final = 1024


class File(Protocol):
    """A file, open for as long as it is in use and opened again when need be."""

    path: PurePath
    size: int

    def read(self, position: int, count: int) -> Buffer:
        """Return ``count`` bytes from ``position``, fewer at the end of the file."""

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other; if it fails, any part may have been written."""

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros that take no space."""

    def sync(self) -> None:
        """Return when all that was written is on stable storage."""

    def map(self, *, writable: bool) -> "Mapping":
        """Map the file as it is now; its size must not change while the mapping is in use."""

    def close(self) -> None: ...


class Mapping(Protocol):
    """A file in memory. Take ``buffer`` anew for each access and keep no view of it."""

    size: int

    @property
    def buffer(self) -> mmap.mmap | bytearray: ...

    def sync(self) -> None: ...

    def close(self) -> object: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: PurePath, *, create: bool = False) -> File:
        """Return a file to read and write; it must exist unless ``create``."""

    def exists(self, path: PurePath) -> bool: ...

    def size(self, path: PurePath) -> int: ...

    def modified_ms(self, path: PurePath) -> int:
        """Return when the file's content last changed."""

    def read(self, path: PurePath) -> bytes:
        """Return the whole content of a small file."""

    def names(self, folder: PurePath) -> list[str]:
        """Return what is in a folder, sorted."""

    def is_folder(self, path: PurePath) -> bool: ...

    def make_folder(self, path: PurePath) -> None:
        """Make a folder and its parents, unless they exist."""

    def rename(self, source: PurePath, target: PurePath) -> None: ...

    def remove(self, path: PurePath) -> None:
        """Remove a file; not there is fine."""

    def remove_folder(self, path: PurePath) -> None:
        """Remove a folder with all that is in it; not there is fine."""

    def sync_file(self, path: PurePath) -> None:
        """As ``File.sync``, by name and from any thread; FileNotFoundError if it is gone."""

    def sync_folder(self, folder: PurePath) -> None:
        """Return when the names in a folder are on stable storage; from any thread."""

    def lock(self, path: PurePath) -> Lock:
        """Lock a file that is made for the purpose; BlockingIOError if another holds it."""


def write_atomically(disk: Disk, path: PurePath, data: bytes, *, syncs: bool = True) -> None:
    """Replace a small file so that after a crash it has the old content or the new, whole.

    Without ``syncs`` that is so after the end of the process alone. After a loss of power it may be
    damaged as well, until the file and its folder are synced.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    disk.remove(temporary)
    try:
        file = disk.open(temporary, create=True)
        try:
            file.write(0, [data])
            if syncs:
                file.sync()
        finally:
            file.close()
        disk.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            disk.remove(temporary)  # the space may be what is missing
        raise
    if syncs:
        disk.sync_folder(path.parent)


class OsDisk:
    """The disk of the operating system, with a limit on open descriptors.

    Past ``descriptors_max`` the file or mapping that was not used since the last look round is
    closed (the clock algorithm: exact order of use is not worth a list on the hot path). It opens
    itself again when it is used.

    Without ``syncs`` nothing waits for stable storage: what was written outlives the process, which
    may be killed, but not the machine. That is enough for data that goes with the process.
    """

    def __init__(self, descriptors_max: int = DESCRIPTORS_MAX, *, syncs: bool = True) -> None:
        self.descriptors_max = descriptors_max
        self.syncs = syncs
        self._open: list[OsFile | OsMapping] = []
        self._hand = 0

    @property
    def descriptors(self) -> int:
        return len(self._open)

    def open(self, path: PurePath, *, create: bool = False) -> "OsFile":
        return OsFile(self, path, create=create)

    def exists(self, path: PurePath) -> bool:
        return os.path.exists(path)

    def size(self, path: PurePath) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: PurePath) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def read(self, path: PurePath) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def names(self, folder: PurePath) -> list[str]:
        return sorted(os.listdir(folder))

    def is_folder(self, path: PurePath) -> bool:
        return os.path.isdir(path)

    def make_folder(self, path: PurePath) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, source: PurePath, target: PurePath) -> None:
        os.replace(source, target)

    def remove(self, path: PurePath) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def remove_folder(self, path: PurePath) -> None:
        if not os.path.isdir(path):
            return
        for name in os.listdir(path):
            inside = path / name
            if os.path.isdir(inside) and not os.path.islink(inside):
                self.remove_folder(inside)
            else:
                os.unlink(inside)
        os.rmdir(path)

    def sync_file(self, path: PurePath) -> None:
        # A descriptor of its own: those of OsFile come and go on the event loop's thread.
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.sync_descriptor(descriptor)
        finally:
            os.close(descriptor)

    def sync_folder(self, folder: PurePath) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sync_descriptor(descriptor)
        finally:
            os.close(descriptor)

    def sync_descriptor(self, descriptor: int) -> None:
        if self.syncs:
            os.fsync(descriptor)

    def lock(self, path: PurePath) -> "OsLock":
        return OsLock(path)

    def opened(self, new: "OsFile | OsMapping") -> None:
        """Count a new descriptor and close others if there are too many."""
        new.place = len(self._open)
        self._open.append(new)
        looks = 2 * len(self._open)
        while len(self._open) > self.descriptors_max and looks:
            looks -= 1
            self._hand = (self._hand + 1) % len(self._open)
            candidate = self._open[self._hand]
            if candidate is new:
                continue
            if candidate.used:
                candidate.used = False
            else:
                candidate.release()

    def closed(self, old: "OsFile | OsMapping") -> None:
        # The last takes its place: to search the list would be most of what closing costs.
        last = self._open.pop()
        if last is not old:
            last.place = old.place
            self._open[old.place] = last


class OsFile:
    __slots__ = ("_descriptor", "_disk", "_view", "_viewed", "path", "place", "size", "used")

    def __init__(self, disk: OsDisk, path: PurePath, *, create: bool) -> None:
        self.path = path
        self.place = -1
        """Among what the disk has open."""
        self.used = True
        self._disk = disk
        self._view: OsMapping | None = None
        self._viewed: list[OsMapping] = []  # older mappings of which views are still about
        self._descriptor = -1
        self._open(os.O_CREAT if create else 0)
        self.size = os.fstat(self._descriptor).st_size

    def _open(self, flags: int = 0) -> int:
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
        self._disk.opened(self)
        return self._descriptor

    def read(self, position: int, count: int) -> Buffer:
        count = min(count, self.size - position)
        if count >= MAPPED_READ_BYTES_MIN:
            return self._mapped(position, count)
        self.used = True
        descriptor = self._descriptor if self._descriptor >= 0 else self._open()
        return os.pread(descriptor, max(count, 0), position)

    def _mapped(self, position: int, count: int) -> memoryview:
        """Return a view of the file's pages. It keeps its mapping alive for as long as it lives."""
        if self._view is None or self._view.size < position + count:
            self._drop_view()
            self._view = self.map(writable=False)
        return memoryview(self._view.buffer)[position : position + count]

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.used = True
        descriptor = self._descriptor if self._descriptor >= 0 else self._open()
        if len(buffers) == 1:
            size = len(buffers[0])
            written = os.pwrite(descriptor, buffers[0], position)
        else:
            size = sum(map(len, buffers))
            written = os.pwritev(descriptor, buffers[:IOV_MAX], position)
        if written < size:
            self._write_rest(descriptor, position + written, buffers, written)
        if size:
            self.size = max(self.size, position + size)

    def _write_rest(
        self, descriptor: int, position: int, buffers: Sequence[Buffer], skip: int
    ) -> None:
        """Go on after a short write: a full disk, a signal, more than IOV_MAX buffers."""
        for buffer in buffers:
            if skip >= len(buffer):
                skip -= len(buffer)
                continue
            view = memoryview(buffer)[skip:]
            skip = 0
            while view:
                written = os.pwrite(descriptor, view, position)
                position += written
                view = view[written:]

    def truncate(self, size: int) -> None:
        self.used = True
        self._forget_view(size)
        descriptor = self._descriptor if self._descriptor >= 0 else self._open()
        os.ftruncate(descriptor, size)
        self.size = size

    def _forget_view(self, size: int) -> None:
        """Make sure that nobody can touch pages that are about to go: that would be a SIGBUS.

        A response under way may still hold views. Then the file is replaced by a shorter copy,
        and the old one lives on, nameless, until they are gone.
        """
        self._drop_view()
        if any(view.size > size for view in self._viewed):
            self._replace_by_copy(size)
            self._viewed.clear()

    def _drop_view(self) -> None:
        """Let go of the mapping, but remember it for as long as somebody has views of it."""
        self._viewed = [view for view in self._viewed if not view.close()]
        if self._view is not None and not self._view.close():
            self._viewed.append(self._view)
        self._view = None

    def _replace_by_copy(self, size: int) -> None:
        copy = self.path.with_name(self.path.name + TRUNCATED_SUFFIX)
        source = self._descriptor if self._descriptor >= 0 else self._open()
        target = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            position = 0
            while position < size:
                data = os.pread(source, min(size - position, 1 << 20), position)
                self._write_rest(target, position, [data], 0)
                position += len(data)
            self._disk.sync_descriptor(target)
            os.replace(copy, self.path)
        finally:
            os.close(target)
        self.release()

    def sync(self) -> None:
        self.used = True
        descriptor = self._descriptor if self._descriptor >= 0 else self._open()
        self._disk.sync_descriptor(descriptor)

    def map(self, *, writable: bool) -> "OsMapping":
        return OsMapping(self._disk, self.path, self.size, writable=writable)

    def release(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
        self._disk.closed(self)

    def close(self) -> None:
        self._drop_view()
        if self._descriptor >= 0:
            self.release()


class OsMapping:
    __slots__ = ("_disk", "_lingering", "_map", "_path", "_writable", "place", "size", "used")

    def __init__(self, disk: OsDisk, path: PurePath, size: int, *, writable: bool) -> None:
        self.size = size
        self.place = -1
        self.used = True
        self._disk = disk
        self._path = path
        self._writable = writable
        self._map: mmap.mmap | None = None
        self._lingering: list[ref[mmap.mmap]] = []  # unmapped, but somebody has views of them

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        self.used = True
        if self._map is None:
            return self._open()
        return self._map

    def _open(self) -> mmap.mmap | bytearray:
        if self.size == 0:
            return bytearray()  # an empty file cannot be mapped
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        flags = os.O_RDWR if self._writable else os.O_RDONLY
        descriptor = os.open(self._path, flags | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(descriptor, self.size, access=access)  # keeps a duplicate
        finally:
            os.close(descriptor)
        self._disk.opened(self)
        return self._map

    def sync(self) -> None:
        if self._writable and self.size and self._disk.syncs:
            buffer = self.buffer
            assert isinstance(buffer, mmap.mmap)
            buffer.flush()

    def release(self) -> None:
        """Unmap; what was written stays in the page cache.

        Where views are still held the pages stay mapped until the last of them is gone.
        """
        unmapped, self._map = self._map, None
        assert unmapped is not None
        self._disk.closed(self)
        try:
            unmapped.close()
        except BufferError:
            self._lingering.append(ref(unmapped))

    def close(self) -> bool:
        """Unmap; return whether nobody holds views any more."""
        if self._map is not None:
            self.release()
        self._lingering = [held for held in self._lingering if held() is not None]
        return not self._lingering


class OsLock:
    def __init__(self, path: PurePath) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # POSIX record locks, because Java takes those: a Kafka and an Odradek on one folder
            # must see each other. They do not hold against this same process, see LogDirectory.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)
