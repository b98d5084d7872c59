"""Files to look at and never to touch.

A narrower port than ``storage.disk``: ``OsDisk`` has all of it, but it opens files to write, which
a reader of somebody else's data may not be allowed to, and it maps large reads into memory, which
is a SIGBUS when the broker that owns the file truncates it meanwhile.
"""

from pathlib import Path, PurePath
from typing import Protocol

from odradek.core.errors import CorruptionError
from odradek.storage.disk import Buffer


class ReadableFile(Protocol):
    @property
    def size(self) -> int: ...

    def read(self, position: int, count: int) -> Buffer:
        """Return ``count`` bytes from ``position``, fewer at the end of the file."""

    def close(self) -> None: ...


class ReadableDisk(Protocol):
    def open(self, path: PurePath) -> ReadableFile: ...


def read_exactly(file: ReadableFile, position: int, count: int) -> bytes:
    """Return ``count`` bytes; CorruptionError if the file ends before, or was just cut."""
    data = bytes(file.read(position, count))
    if len(data) < count:
        raise CorruptionError(f"{count} bytes expected at position {position}, found {len(data)}")
    return data


class ReadOnlyDisk:
    def open(self, path: PurePath) -> "ReadOnlyFile":
        return ReadOnlyFile(path)


class ReadOnlyFile:
    def __init__(self, path: PurePath) -> None:
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115  # closed by close()

    @property
    def size(self) -> int:
        """The size now: a live log grows while it is dumped."""
        return self._file.seek(0, 2)

    def read(self, position: int, count: int) -> bytes:
        self._file.seek(position)
        pieces = []
        while count > 0 and (piece := self._file.read(count)):
            pieces.append(piece)
            count -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        self._file.close()
