"""A folder of files in memory that can only be read, and short ways to dump from it."""

import errno
import os
from pathlib import PurePath
from typing import Any

from odradek.records import BatchBuilder
from odradek.storage.dump import DumpOptions, Line, dump

FOLDER = PurePath("/data/orders-0")
LOG = "00000000000000000000.log"


class BytesFile:
    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def read(self, position: int, count: int) -> bytes:
        assert position >= 0
        return self._data[position : position + count]

    def close(self) -> None:
        pass


class BytesDisk:
    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = {FOLDER / name: data for name, data in files.items()}

    def open(self, path: PurePath) -> BytesFile:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return BytesFile(self._files[path])


def lines_of(files: dict[str, bytes], *names: str, **options: Any) -> list[Line]:
    disk = BytesDisk(files)
    return list(dump(names, DumpOptions(**options), disk=disk, working_folder=FOLDER))


def out(lines: list[Line]) -> list[str]:
    return [line.text for line in lines if not line.is_problem]


def problems(lines: list[Line]) -> list[str]:
    return [line.text for line in lines if line.is_problem]


def batch(*values: bytes, base_offset: int = 0, timestamp: int = 1000, **options: Any) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, partition_leader_epoch=0, **options)
    for value in values:
        builder.append(timestamp, None, value)
    return bytes(builder.build())
