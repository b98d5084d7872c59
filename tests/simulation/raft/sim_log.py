"""A metadata log in memory, and a disk that forgets what was not flushed."""

from bisect import bisect_right
from random import Random
from typing import NamedTuple

from odradek.raft import OffsetAndEpoch


class Entry(NamedTuple):
    epoch: int
    value: str


class SimLog:
    log_start_offset = 0
    earliest_snapshot: OffsetAndEpoch | None = None
    latest_snapshot: OffsetAndEpoch | None = None

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.durable: list[Entry] = []
        self.generation = 0  # of truncations: a flush from before one is void

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else 0

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        end = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        return OffsetAndEpoch(end, self.entries[end - 1].epoch if end else epoch)

    def append(self, entries: list[Entry]) -> None:
        assert entries[0].epoch >= self.last_epoch
        self.entries += entries

    def truncate(self, offset: int) -> None:
        del self.entries[offset:]
        self.generation += 1

    def flush(self, offset: int) -> None:
        if self.entries[: len(self.durable)] == self.durable:
            offset = max(offset, len(self.durable))  # flushes may end in any order
        self.durable = self.entries[:offset]

    def crash(self, random: Random) -> None:
        """Keep what was flushed and, of later appends, a random part.

        A truncation that no flush followed may be undone: the old tail is back.
        """
        kept = self.durable
        if self.entries[: len(kept)] == kept:
            kept = self.entries[: random.randint(len(kept), len(self.entries))]
        self.entries, self.durable = list(kept), list(kept)
        self.generation += 1
