"""Reads the batches of a segment that is being cleaned, whatever their format, in bounded memory.

Reads are copies, never views of a mapping: should the log be truncated in the main process
meanwhile, a view would end this one with a SIGBUS, while a copy is merely short.

Checksums are verified. A batch that is rebuilt gets a new one, which would make rotten bytes look
sound for ever. Messages of the formats v0 and v1 come out as batches v2.
"""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.records import BatchHeader, iter_headers
from odradek.records.batch import MAGIC
from odradek.records.legacy import convert_to_v2
from odradek.storage.cleaner.throttle import Throttle
from odradek.storage.disk import MAPPED_READ_BYTES_MIN, Buffer, Disk, File
from odradek.storage.scan import check_batch, iter_batches, peek_batch

CHUNK_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = MAPPED_READ_BYTES_MIN - 1
_LOOK_BYTES: Final = 61


class Chunk(NamedTuple):
    """Whole batches v2; the positions of ``headers`` are those in ``buffer``."""

    buffer: Buffer
    headers: list[BatchHeader]
    read_bytes: int
    """What they took in the file."""


def read_chunks(
    disk: Disk,
    path: PurePath,
    size: int,
    throttle: Throttle,
    *,
    position: int = 0,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Chunk]:
    """Iterate over the first ``size`` bytes of a log file from ``position`` on.

    Raises:
        CorruptionError: A batch is damaged, or the file is shorter than it was.
    """
    file = disk.open(path)
    try:
        while position < size:
            buffer = _read(file, position, min(chunk_bytes, size - position))
            headers = list(iter_batches(buffer))
            if not headers:
                whole = peek_batch(_read(file, position, min(_LOOK_BYTES, size - position))).size
                if whole > size - position:
                    raise CorruptionError(f"{path}: the batch at {position} is cut short")
                buffer = _read(file, position, whole)
                headers = list(iter_batches(buffer))
            end = headers[-1].end_position
            throttle.spend(end)
            for header in headers:
                check_batch(buffer, header)
            yield from _runs(buffer, headers)
            position += end
    finally:
        file.close()


def _read(file: File, position: int, count: int) -> bytes:
    pieces = []
    end = position + count
    while position < end:
        piece = bytes(file.read(position, min(_PIECE_BYTES, end - position)))
        if not piece:
            raise CorruptionError(f"{file.path} ends at {position}: it was cut meanwhile")
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)


def _runs(buffer: bytes, headers: list[BatchHeader]) -> Iterator[Chunk]:
    """Split into runs of one kind of format: a log may change from one to the other anywhere."""
    start = 0
    for slot in range(1, len(headers) + 1):
        is_old = headers[start].magic != MAGIC
        if slot < len(headers) and (headers[slot].magic != MAGIC) == is_old:
            continue
        run = headers[start:slot]
        first, last = run[0].position, run[-1].end_position
        if is_old:
            converted = b"".join(convert_to_v2(memoryview(buffer)[first:last]))
            yield Chunk(converted, list(iter_headers(converted)), last - first)
        else:
            yield Chunk(buffer, run, last - first)
        start = slot
