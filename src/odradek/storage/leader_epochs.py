"""Which leader epoch wrote which part of a log (``leader-epoch-checkpoint``, KIP-101 and KIP-279).

A checkpoint file (``checkpoints``) with a line ``<epoch> <start offset>`` for each epoch that has
records in the log: the offset is that of its first record, and its records end where the next
epoch starts. Epochs and start offsets ascend strictly.

An epoch begins with leadership, at the end of the log, and may be asked about before it has a
record: ``begin`` adds an entry to those in memory. It is written with its first record, not before.
Kafka writes it at once; but a log that is loaded drops the entries at its end, so the file would
only cost an fsync for each partition of each election.

Replicas find by ``end_offset_for`` where their logs part; an entry lost, or left over, would make
one keep records that the leader does not have. So truncations from the end are on disk when the
method returns. Two changes wait:

- ``assign`` writes the file and does not sync it. When a broker fails, thousands of partitions get
  an epoch at once, and two fsyncs for each, 7 ms, would hold up all others. A flush of the log
  syncs the file before the recovery point passes the epoch's first record (``unsynced_changes``).
  What is behind the recovery point is read again after an unclean stop, and its epochs with it; a
  file that a loss of power damaged, or emptied, is made anew from all batches.
- ``truncate_from_start`` waits for the next ``sync`` or change: entries of deleted records do no
  harm, and a log that is loaded drops them again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.storage.checkpoints import (
    INT32_MAX,
    INT64_MAX,
    parse_number,
    read_checkpoint,
    write_checkpoint,
)
from odradek.storage.disk import Disk

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


UNDEFINED_EPOCH: Final = -1
UNDEFINED: Final = EpochEndOffset(UNDEFINED_EPOCH, -1)


class LeaderEpochs:
    __slots__ = (
        "_changes",
        "_disk",
        "_entries",
        "_has_begun",
        "_is_dirty",
        "_synced_changes",
        "path",
    )

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self.path = path
        self._disk = disk
        self._entries: list[EpochEntry] | None = None  # not loaded yet
        self._is_dirty = False
        self._has_begun = False  # the last entry has no record yet and may not be in the file
        self._changes = self._synced_changes = 0

    @property
    def entries(self) -> list[EpochEntry]:
        """The entries in order; not to be changed.

        Raises:
            CorruptionError: The file is malformed; the message names the line.
        """
        if self._entries is None:
            loaded: list[EpochEntry] = []
            # By the rules of assigning, as Kafka does: old brokers wrote entries in conflict.
            for entry in read_checkpoint(self._disk, self.path, _parse):
                if _is_news(loaded, *entry):
                    loaded = _assigned(loaded, entry)
            self._entries = loaded
        return self._entries

    @property
    def latest_epoch(self) -> int | None:
        return self.entries[-1].epoch if self.entries else None

    @property
    def written_epoch(self) -> int | None:
        """The latest epoch that may have records: its entry is in the file."""
        written = self.entries[:-1] if self._has_begun else self.entries
        return written[-1].epoch if written else None

    def begin(self, epoch: int, log_end_offset: int) -> None:
        """Say that a leader of ``epoch`` will append at ``log_end_offset``, in memory only.

        Nothing happens if it is the latest epoch already.
        """
        assert epoch >= 0
        if _is_news(self.entries, epoch, log_end_offset):
            self._entries = _assigned(self.entries, EpochEntry(epoch, log_end_offset))
            self._has_begun = True

    def assign(self, epoch: int, start_offset: int) -> None:
        """Say that ``epoch`` begins at ``start_offset``; entries in conflict with that go.

        Nothing happens if it is the latest epoch already, unless it turns out to begin earlier.
        """
        assert epoch >= 0
        assert start_offset >= 0
        if _is_news(self.entries, epoch, start_offset):
            entries = _assigned(self.entries, EpochEntry(epoch, start_offset))
            self._write(entries, syncs=False)
        elif self._has_begun:
            self._write(self.entries, syncs=False)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the greatest epoch up to ``epoch`` and the offset at which its records end.

        - The latest epoch ends with the log.
        - An epoch from before the first entry: the epoch asked for, and where the first entry
          starts. Its records are gone, and a follower goes on from there.
        - An epoch beyond the latest, or -1: undefined.
        """
        entries = self.entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        above = bisect_right(entries, epoch, key=_epoch)
        found = entries[above - 1].epoch if above else epoch
        return EpochEndOffset(found, entries[above].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of the record at ``offset``; None before the first entry."""
        above = bisect_right(self.entries, offset, key=_start_offset)
        return self.entries[above - 1].epoch if above else None

    def previous_epoch(self, epoch: int) -> int | None:
        """Return the greatest known epoch below ``epoch``."""
        above = bisect_left(self.entries, epoch, key=_epoch)
        return self.entries[above - 1].epoch if above else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the entries that start at or behind ``end_offset``, where the log now ends.

        To be called when the log has been cut, and again when it is loaded, for the crash between.
        Written at once: the next records may be of the epoch that is now the latest, so that no
        ``assign`` would write, and soon a stale entry would lie within the log and be believed.
        """
        assert end_offset >= 0
        keep = bisect_left(self.entries, end_offset, key=_start_offset)
        if keep < len(self.entries):
            self._write(self.entries[:keep])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the entries of records before ``start_offset``, where the log now starts.

        The epoch that ``start_offset`` belongs to stays and starts there.
        """
        above = bisect_right(self.entries, start_offset, key=_start_offset)
        if above == 0 or self.entries[0].start_offset == start_offset:
            return
        first = EpochEntry(self.entries[above - 1].epoch, start_offset)
        self._entries = [first, *self.entries[above:]]
        self._is_dirty = True

    def clear(self) -> None:
        """Drop all entries, without looking at what is in the file."""
        self._write([])

    def replace(self, found: Iterable[EpochEntry]) -> None:
        """Take what the batches of the log say instead of a file that is damaged."""
        entries: list[EpochEntry] = []
        for entry in found:
            if _is_news(entries, *entry):
                entries = _assigned(entries, entry)
        if entries or self._entries is None:
            self._write(entries)

    @property
    def unsynced_changes(self) -> int | None:
        """How often the file was written, for ``on_synced``; None if all of that is on disk."""
        return self._changes if self._changes > self._synced_changes else None

    def on_synced(self, changes: int) -> None:
        """Take note that file and folder were synced when it had been written so often."""
        self._synced_changes = max(self._synced_changes, changes)

    def sync(self) -> None:
        """Have on disk what there is now, if that is not what the file is known to have."""
        changes = self.unsynced_changes
        if self._is_dirty:
            self._write(self.entries)
        elif changes is not None:
            self._disk.sync_file(self.path)
            self._disk.sync_folder(self.path.parent)
            self.on_synced(changes)

    def relocate(self, path: PurePath) -> None:
        """Go on under a new path, because the folder was renamed."""
        self.path = path

    def check_invariants(self) -> None:
        entries = self.entries
        assert entries or not self._has_begun
        for before, after in pairwise(entries):
            assert before.epoch < after.epoch
            assert before.start_offset < after.start_offset
        assert not entries or (entries[0].epoch >= 0 and entries[0].start_offset >= 0)

    def _write(self, entries: list[EpochEntry], *, syncs: bool = True) -> None:
        lines = [f"{entry.epoch} {entry.start_offset}" for entry in entries]
        self._changes += 1
        write_checkpoint(self._disk, self.path, lines, syncs=syncs)
        if syncs:
            self._synced_changes = self._changes
        # Remembered last: a caller that tries again after an OSError must not find it done.
        self._entries = entries
        self._is_dirty = False
        self._has_begun = False


def _is_news(entries: list[EpochEntry], epoch: int, start_offset: int) -> bool:
    if not entries:
        return True
    latest = entries[-1]
    return epoch != latest.epoch or start_offset < latest.start_offset


def _assigned(entries: list[EpochEntry], new: EpochEntry) -> list[EpochEntry]:
    keep = len(entries)
    while keep and (
        entries[keep - 1].epoch >= new.epoch or entries[keep - 1].start_offset >= new.start_offset
    ):
        keep -= 1
    return [*entries[:keep], new]


def _parse(fields: list[str]) -> EpochEntry:
    epoch, start_offset = fields
    return EpochEntry(parse_number(epoch, INT32_MAX), parse_number(start_offset, INT64_MAX))


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset
