"""Which neighbouring segments are cleaned into one, so that a log does not end up in crumbs.

Together they must fit ``segment.bytes`` and their indexes ``segment.index.bytes``, and the last
offset must be within an int32 of the first. What they would take is judged by what they take now;
cleaning makes it less.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from odradek.storage.cleaner.task import SourceSegment
from odradek.storage.config import LogConfig
from odradek.storage.offset_index import RELATIVE_OFFSET_MAX

_INDEX_ENTRY_BYTES: Final = 12  # of the time index, the larger of the two
_SPARE_ENTRIES: Final = 2


def group_segments(
    segments: Sequence[SourceSegment], end_offset: int, config: LogConfig
) -> Iterator[list[SourceSegment]]:
    """Divide neighbours into groups; ``end_offset`` is where the last of them ends."""
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    bytes_max = min(config.segment_bytes, _log_bytes_max(config))
    group: list[SourceSegment] = []
    size = 0
    for segment, end in zip(segments, ends, strict=False):
        fits = (
            size + segment.size <= bytes_max
            and group
            and end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if group and not fits:
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group


def _log_bytes_max(config: LogConfig) -> int:
    """Return how many bytes of log the indexes have room for at the usual density."""
    entries_max = config.segment_index_bytes // _INDEX_ENTRY_BYTES - _SPARE_ENTRIES
    return max(entries_max, 0) * max(config.index_interval_bytes, 1)


def index_interval_bytes(group: Sequence[SourceSegment], config: LogConfig) -> int:
    """Return how far apart index entries must be so that those of the group have room.

    More than the log's own setting only where that was lowered since the segments were written.
    Recompressing may make a batch larger, so twice the room is taken for enough.
    """
    entries_max = max(config.segment_index_bytes // _INDEX_ENTRY_BYTES - _SPARE_ENTRIES, 1)
    size = 2 * sum(segment.size for segment in group)
    return max(config.index_interval_bytes, -(-size // entries_max))
