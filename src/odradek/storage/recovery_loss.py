"""What recovery has to give up of a log: where, how much, and what can still be read of it.

A log ends before its first bad batch. What follows is discarded, sound batches too: after a hole
nothing can be trusted to be complete. Before that happens it is looked through, so that the
operator learns what is gone.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.records import HEADER_BYTES, BatchHeader
from odradek.records.batch import MAGIC, MAGIC_POSITION
from odradek.storage.disk import Buffer
from odradek.storage.scan import check_batch, peek_batch
from odradek.storage.segment import LOG_SUFFIX, Segment

SEARCH_BYTES_MAX: Final = 4 << 20
"""How far a sound batch is searched for behind a header that makes no sense."""

_MAGIC: Final = bytes([MAGIC])


class Loss(NamedTuple):
    """The end of a log that was discarded."""

    path: PurePath
    position: int
    """Of the first byte that was discarded, in the file."""
    offset: int
    """Of the first record that was discarded."""
    end_offset: int
    """Behind the last one that could be made out; ``offset`` if there was none."""
    bytes: int
    """In this file and all later ones."""
    reason: str

    @property
    def records(self) -> int:
        """How many are gone, as far as can be known; those that compaction took count too."""
        return self.end_offset - self.offset


OnLoss = Callable[[Loss, Iterator[tuple[Buffer, BatchHeader]]], None]
"""Sees a loss before anything is discarded, with the sound batches in it; raises to prevent it."""


def describe_loss(
    segments: Sequence[Segment], *, position: int, offset: int, reason: str
) -> Loss | None:
    """Look at what is behind ``position`` of the first segment; None if that is only space."""
    first = segments[0]
    lost = sum(segment.size for segment in segments) - position
    if first.is_preallocated and not any(first.read(position, HEADER_BYTES)):
        lost -= first.size - position
        if not lost:
            return None
    end_offset = _damaged_end(first, position, offset)
    for _, header in sound_batches(segments, position):
        end_offset = max(end_offset, header.next_offset)
    return Loss(first.path(LOG_SUFFIX), position, offset, end_offset, lost, reason)


def _damaged_end(segment: Segment, position: int, offset: int) -> int:
    """Return where the batch at ``position`` ends by its own word, if that is to be believed."""
    try:
        header = peek_batch(segment.read(position, HEADER_BYTES))
    except CorruptionError:
        return offset
    is_credible = header.base_offset == offset and header.records_count <= (
        header.last_offset_delta + 1
    )
    return header.next_offset if is_credible else offset


def sound_batches(
    segments: Sequence[Segment], position: int
) -> Iterator[tuple[Buffer, BatchHeader]]:
    """Iterate over the batches with the right checksum, from ``position`` of the first segment."""
    for segment in segments:
        buffer = segment.read(0, segment.size)
        at: int | None = position
        while at is not None and at < len(buffer):
            try:
                header = peek_batch(buffer, at)
                check_batch(buffer, header)
            except CorruptionError:
                at = _next_batch(buffer, at + 1)
            else:
                yield buffer, header
                at = header.end_position
        position = 0


def _next_batch(buffer: Buffer, position: int) -> int | None:
    """Find the next batch whose checksum is right; its magic is what can be searched for."""
    data = bytes(memoryview(buffer)[position : position + SEARCH_BYTES_MAX])
    found = data.find(_MAGIC, MAGIC_POSITION)
    while found >= 0:
        start = position + found - MAGIC_POSITION
        try:
            header = peek_batch(buffer, start)
            if header.end_position <= len(buffer) and header.records_count >= 0:
                check_batch(buffer, header)
                return start
        except CorruptionError:
            pass
        found = data.find(_MAGIC, found + 1)
    return None
