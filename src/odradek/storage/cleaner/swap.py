"""Puts cleaned segments in the place of those they were made from, so that any crash is harmless.

For each new segment, oldest first::

    1. .cleaned -> .swap     the indexes first, then the log file: from here on it is complete
    2. the old ones -> .deleted
    3. .swap -> its name     the indexes first, then the log file

What opening a log does about what is left (``recovery``): ``.cleaned`` is removed, as if nothing
had been done. ``.swap`` replaces whatever it covers. So each crash leaves, for each new segment,
the old records or the new ones, and the old ones only behind the new ones.

The order of the new segments matters, because a tombstone may go in the same cleaning as the values
it deletes, which are before it. Whatever part of the swap survives, values go before tombstones.

The disk undoes renames only from the latest back (``disk``), so no step waits for it. The
checkpoint does: were it to say that records are clean whose swap was undone, old values among them
would never be looked at again. ``SwapPlan.run`` brings all of it to the disk, in any thread.
"""

from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple

from odradek.core.ids import TopicPartition
from odradek.storage.checkpoints import write_offset_checkpoint
from odradek.storage.cleaner.task import CleanedSegment, CleaningResult
from odradek.storage.disk import Disk
from odradek.storage.log import DeletedSegment, Log
from odradek.storage.segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, Segment


class SwapPlan(NamedTuple):
    """What to bring to the disk after a swap, in this order, from any thread."""

    disk: Disk
    folder: PurePath
    checkpoint_path: PurePath
    checkpoint: Mapping[TopicPartition, int]

    def run(self) -> None:
        self.disk.sync_folder(self.folder)
        write_offset_checkpoint(self.disk, self.checkpoint_path, self.checkpoint)


def can_swap(log: Log, result: CleaningResult) -> bool:
    """Whether the log still has all segments that were cleaned, as they were.

    All or nothing: a segment that is left as it was, in front of others that are swapped, may hold
    values whose tombstones are gone from those.
    """
    now = {segment.base_offset: segment.size for segment in log.segments}
    return all(
        now.get(source.base_offset) == source.size
        for cleaned in result.segments
        for source in cleaned.sources
    )


def swap_all(log: Log, result: CleaningResult, now_ms: int) -> None:
    assert can_swap(log, result)
    for cleaned in result.segments:
        swap(log, cleaned, now_ms)


def swap(log: Log, cleaned: CleanedSegment, now_ms: int) -> None:
    """Let one new segment take the place of its sources."""
    new = Segment.open(
        log.disk,
        log.folder,
        cleaned.base_offset,
        log.config,
        now_ms=now_ms,
        suffix=CLEANED_SUFFIX,
    )
    assert new.size == cleaned.size
    bases = {source.base_offset for source in cleaned.sources}
    old = [segment for segment in log.segments if segment.base_offset in bases]
    assert log.segments.active not in old
    new.rename_to(SWAP_SUFFIX)
    log.segments.replace(old, [new])
    for segment in old:
        segment.rename_to(DELETED_SUFFIX)
        log.deleted.append(DeletedSegment(now_ms + log.config.file_delete_delay_ms, segment))
        if segment.base_offset != new.base_offset:
            # The state of the producers there is of use only where a segment begins.
            log.producer_states.delete_snapshot_at(segment.base_offset)
    new.rename_to("")
