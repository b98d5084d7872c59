"""A disk that tests can break, around a real one or one in memory, and that ends with its process.

``fail`` plants an ``OSError``, as ``odradek.testing.disk`` does. After ``end`` whatever uses it
still gets ``SimulatedCrash``: threads of a process that was killed write nothing more.
"""

import errno as errnos
import mmap
import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Literal

from odradek.storage.disk import Buffer, Disk, File, Lock, Mapping
from odradek.testing.disk_faults import Fault, Kind, SimulatedCrash

ANYTHING: Final = "*"


class DiskFaults:
    """What is wrong with a disk. It outlives the processes that use the disk."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def fail(
        self,
        kind: Kind | Literal["*"] = ANYTHING,
        error: int = errnos.EIO,
        *,
        path: str = "*",
        after: int = 0,
        times: int | None = None,
    ) -> None:
        """Let operations fail with an errno: ``times`` of them, once ``after`` others went well.

        ``path`` is a pattern as of ``PurePath.match``: ``*.log``, ``orders-0/*``.
        """
        self._faults = [*self._faults, Fault(kind, path, error, after, times)]

    def heal(self) -> None:
        self._faults = []

    def strike(self, kind: Kind, path: PurePath) -> None:
        for fault in self._faults:
            if fault.strikes(kind, path):
                raise OSError(fault.error, os.strerror(fault.error), str(path))


class BreakableDisk:
    """Implements ``odradek.storage.disk.Disk`` for one process; from any thread."""

    def __init__(self, inner: Disk, faults: DiskFaults) -> None:
        self._inner = inner
        self._faults = faults
        self._has_ended = False
        self._locks: list[Lock] = []

    def end(self) -> None:
        """Let go of all locks, as the system does for a process that was killed."""
        self._has_ended = True
        for lock in self._locks:
            lock.release()

    def begin(self, kind: Kind, path: PurePath) -> None:
        if self._has_ended:
            raise SimulatedCrash("the process that used this disk was killed")
        self._faults.strike(kind, path)

    def open(self, path: PurePath, *, create: bool = False) -> "BreakableFile":
        self.begin("create" if create else "open", path)
        return BreakableFile(self, self._inner.open(path, create=create))

    def exists(self, path: PurePath) -> bool:
        return self._inner.exists(path)

    def size(self, path: PurePath) -> int:
        return self._inner.size(path)

    def modified_ms(self, path: PurePath) -> int:
        return self._inner.modified_ms(path)

    def read(self, path: PurePath) -> bytes:
        self.begin("read", path)
        return self._inner.read(path)

    def names(self, folder: PurePath) -> list[str]:
        self.begin("read", folder)
        return self._inner.names(folder)

    def is_folder(self, path: PurePath) -> bool:
        return self._inner.is_folder(path)

    def make_folder(self, path: PurePath) -> None:
        self.begin("make_folder", path)
        self._inner.make_folder(path)

    def rename(self, source: PurePath, target: PurePath) -> None:
        self.begin("rename", source)
        self._inner.rename(source, target)

    def remove(self, path: PurePath) -> None:
        self.begin("remove", path)
        self._inner.remove(path)

    def remove_folder(self, path: PurePath) -> None:
        self.begin("remove_folder", path)
        self._inner.remove_folder(path)

    def sync_file(self, path: PurePath) -> None:
        self.begin("sync", path)
        self._inner.sync_file(path)

    def sync_folder(self, folder: PurePath) -> None:
        self.begin("sync_folder", folder)
        self._inner.sync_folder(folder)

    def lock(self, path: PurePath) -> Lock:
        self.begin("create", path)
        lock = self._inner.lock(path)
        self._locks.append(lock)
        return lock


class BreakableFile:
    def __init__(self, disk: BreakableDisk, inner: File) -> None:
        self._disk = disk
        self._inner = inner

    @property
    def path(self) -> PurePath:
        return self._inner.path

    @path.setter
    def path(self, path: PurePath) -> None:
        self._inner.path = path

    @property
    def size(self) -> int:
        return self._inner.size

    @size.setter
    def size(self, size: int) -> None:
        self._inner.size = size

    def read(self, position: int, count: int) -> Buffer:
        self._disk.begin("read", self.path)
        return self._inner.read(position, count)

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        self._disk.begin("write", self.path)
        self._inner.write(position, buffers)

    def truncate(self, size: int) -> None:
        self._disk.begin("truncate", self.path)
        self._inner.truncate(size)

    def sync(self) -> None:
        self._disk.begin("sync", self.path)
        self._inner.sync()

    def map(self, *, writable: bool) -> "BreakableMapping":
        self._disk.begin("map", self.path)
        return BreakableMapping(self._disk, self.path, self._inner.map(writable=writable))

    def close(self) -> None:
        self._inner.close()


class BreakableMapping:
    def __init__(self, disk: BreakableDisk, path: PurePath, inner: Mapping) -> None:
        self.size = inner.size
        self._disk = disk
        self._path = path
        self._inner = inner

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        return self._inner.buffer

    def sync(self) -> None:
        self._disk.begin("sync", self._path)
        self._inner.sync()

    def close(self) -> object:
        return self._inner.close()
