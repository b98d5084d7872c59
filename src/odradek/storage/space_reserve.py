"""Space that is kept for what must be written although the disk is full.

A file of zeros, ``.reserve``, in each log directory. When there is no space for records any more,
writes of clients are refused. But a topic can be deleted only by a record in the metadata log;
checkpoints, the clean stop and the next start write files, too. Where one of these finds no space,
a piece of the reserve is given back to the file system, and it tries again (``ReservedDisk``).
Piece by piece, because others write to the same disk and would take it all.

Once there is space again the reserve is made whole, and as much is written behind it and given
back: only a write proves that a quota, too, allows it.
"""

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import PurePath
from threading import Lock as ThreadLock
from typing import Final, TypeVar

from odradek.storage.disk import Buffer, Disk, File, Lock, Mapping

R = TypeVar("R")

RESERVE_FILE: Final = ".reserve"
PIECE_BYTES: Final = 64 * 1024
PROBE_BYTES: Final = 4096
"""What must be free again where there is no reserve."""

FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class SpaceReserve:
    """Used from the owner's thread and from others, one at a time."""

    def __init__(
        self,
        disk: Disk,
        folder: PurePath,
        bytes_max: int,
        on_spent: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        """``on_spent`` hears, on any thread, of what needed a piece: records must not get it."""
        self._disk = disk
        self._path = folder / RESERVE_FILE
        self._bytes_max = bytes_max
        self._on_spent = on_spent
        self._size = disk.size(self._path) if disk.exists(self._path) else 0
        self._lock = ThreadLock()

    def fill(self) -> None:
        """Make it whole.

        Raises:
            OSError: There is no space; what it had it keeps.
        """
        with self._lock:
            self._grow(self._bytes_max)

    def probe(self) -> None:
        """Make it whole, and make sure that there is as much behind it.

        Raises:
            OSError: There is not; what it had it keeps.
        """
        with self._lock:
            self._grow(self._bytes_max + (self._bytes_max or PROBE_BYTES))
            self._cut(self._bytes_max)

    def _spend(self) -> bool:
        """Give a piece back to the file system; return whether there was one."""
        with self._lock, suppress(OSError):
            if self._size:
                self._cut(max(self._size - PIECE_BYTES, 0))
                return True
        return False

    def make_room(self, error: OSError) -> bool:
        """Return whether there is room now for what failed with ``error``, if that was missing."""
        if error.errno not in FULL_ERRORS or not self._spend():
            return False
        self._on_spent(error)
        return True

    def _grow(self, size: int) -> None:
        if self._size >= size:
            return
        file = self._disk.open(self._path, create=True)
        begun = self._size
        try:
            while self._size < size:
                piece = min(PIECE_BYTES, size - self._size)
                file.write(self._size, [bytes(piece)])
                self._size += piece
        except OSError:
            self._size = begun
            with suppress(OSError):
                file.truncate(begun)
            raise
        finally:
            file.close()

    def _cut(self, size: int) -> None:
        if size == 0:
            self._disk.remove(self._path)
        else:
            file = self._disk.open(self._path)
            try:
                file.truncate(size)
            finally:
                file.close()
        self._size = size


class ReservedDisk:
    """A disk for what must be written: it gives up only when the reserve is spent, too."""

    def __init__(self, disk: Disk, reserve: SpaceReserve) -> None:
        self.inner = disk
        self.reserve = reserve

    def _try(self, act: Callable[[], R]) -> R:
        while True:
            try:
                return act()
            except OSError as error:
                if not self.reserve.make_room(error):
                    raise

    def open(self, path: PurePath, *, create: bool = False) -> "ReservedFile":
        file = self._try(lambda: self.inner.open(path, create=create))
        return ReservedFile(self, file)

    def exists(self, path: PurePath) -> bool:
        return self.inner.exists(path)

    def size(self, path: PurePath) -> int:
        return self.inner.size(path)

    def modified_ms(self, path: PurePath) -> int:
        return self.inner.modified_ms(path)

    def read(self, path: PurePath) -> bytes:
        return self.inner.read(path)

    def names(self, folder: PurePath) -> list[str]:
        return self.inner.names(folder)

    def is_folder(self, path: PurePath) -> bool:
        return self.inner.is_folder(path)

    def make_folder(self, path: PurePath) -> None:
        self._try(lambda: self.inner.make_folder(path))

    def rename(self, source: PurePath, target: PurePath) -> None:
        self._try(lambda: self.inner.rename(source, target))

    def remove(self, path: PurePath) -> None:
        self.inner.remove(path)

    def remove_folder(self, path: PurePath) -> None:
        self.inner.remove_folder(path)

    def sync_file(self, path: PurePath) -> None:
        self.inner.sync_file(path)

    def sync_folder(self, folder: PurePath) -> None:
        self.inner.sync_folder(folder)

    def lock(self, path: PurePath) -> Lock:
        return self.inner.lock(path)


class ReservedFile:
    def __init__(self, disk: ReservedDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def path(self) -> PurePath:
        return self._file.path

    @path.setter
    def path(self, path: PurePath) -> None:
        self._file.path = path

    @property
    def size(self) -> int:
        return self._file.size

    @size.setter
    def size(self, size: int) -> None:
        self._file.size = size

    def read(self, position: int, count: int) -> Buffer:
        return self._file.read(position, count)

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        self._disk._try(lambda: self._file.write(position, buffers))

    def truncate(self, size: int) -> None:
        self._disk._try(lambda: self._file.truncate(size))

    def sync(self) -> None:
        self._file.sync()

    def map(self, *, writable: bool) -> Mapping:
        return self._file.map(writable=writable)

    def close(self) -> None:
        self._file.close()
