"""A metadata log in memory with its snapshots, and a disk that forgets what was not flushed."""

import json
from bisect import bisect_right
from random import Random
from typing import NamedTuple

from odradek.core.ids import Uuid
from odradek.raft import OffsetAndEpoch, ReplicaKey, VoterHistory, VoterSet

_VOTERS = "voters"


class Entry(NamedTuple):
    epoch: int
    value: str

    @classmethod
    def of_voters(cls, epoch: int, voters: VoterSet) -> "Entry":
        named = [f"{each.id}:{each.directory_id}" for each in voters.voters]
        return cls(epoch, " ".join([_VOTERS, *named]))

    @property
    def voters(self) -> VoterSet | None:
        """The voters that it names; None if it does not."""
        if not self.value.startswith(_VOTERS):
            return None
        pairs = [each.split(":") for each in self.value.split()[1:]]
        keys = [ReplicaKey(int(each), Uuid.from_text(directory)) for each, directory in pairs]
        return VoterSet(tuple(keys))


def voters_in(entries: list[Entry]) -> tuple[int, VoterSet] | None:
    """Return where the last record with voters is, and which it names."""
    for offset in range(len(entries) - 1, -1, -1):
        found = entries[offset].voters
        if found is not None:
            return offset, found
    return None


def history_of(log: "SimLog", first: VoterSet, *, is_by_log: bool) -> VoterHistory:
    """Return the voters by offset as a node finds them that starts on a log."""
    history, start = VoterHistory(first), log.log_start_offset
    if is_by_log:
        in_snapshot = voters_in(log.entries[:start])
        if in_snapshot is not None:
            history.start_at(start, in_snapshot[1])
        elif first.voters:
            history.start_at(0, first)
        for offset, entry in enumerate(log.entries[start:], start):
            voters = entry.voters
            if voters is not None:
                history.append(offset, voters)
    return history


class Snapshot(NamedTuple):
    content: bytes

    @property
    def entries(self) -> list[Entry]:
        return [Entry(*each) for each in json.loads(self.content)]


class SimLog:
    """``entries`` begin at offset 0; those before ``log_start_offset`` are in a snapshot alone.

    They are kept nevertheless, so that an oracle can compare whole logs.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.durable: list[Entry] = []
        self.log_start_offset = 0
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.parts: dict[OffsetAndEpoch, bytearray] = {}
        self.generation = 0  # of truncations: a flush from before one is void

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        found = self.snapshots.get(snapshot_id)
        return None if found is None else len(found.content)

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else 0

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        end = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if end < self.log_start_offset:
            return OffsetAndEpoch(self.log_start_offset, epoch)
        return OffsetAndEpoch(end, self.entries[end - 1].epoch if end else epoch)

    def read(self, offset: int, count: int) -> list[Entry]:
        assert offset >= self.log_start_offset, "these are in a snapshot alone"
        return self.entries[offset : offset + count]

    def append(self, entries: list[Entry]) -> None:
        assert entries[0].epoch >= self.last_epoch
        self.entries += entries

    def truncate(self, offset: int) -> None:
        assert offset >= self.log_start_offset
        del self.entries[offset:]
        self.generation += 1

    def snapshot(self, end_offset: int) -> None:
        """Replace what is before ``end_offset``, which is committed and on disk."""
        if end_offset <= self.log_start_offset or end_offset > len(self.durable):
            return
        entries = self.entries[:end_offset]
        snapshot_id = OffsetAndEpoch(end_offset, entries[-1].epoch)
        self.snapshots[snapshot_id] = Snapshot(json.dumps(entries).encode())
        self.log_start_offset = end_offset
        self.snapshots = {snapshot_id: self.snapshots[snapshot_id]}

    def install(self, snapshot_id: OffsetAndEpoch, *, keeps_log: bool = False) -> None:
        snapshot = Snapshot(bytes(self.parts.pop(snapshot_id)))
        self.snapshots = {snapshot_id: snapshot}
        if not keeps_log:
            self.entries = snapshot.entries
        else:
            self.entries[: snapshot_id.offset] = snapshot.entries
        self.durable = list(self.entries)
        self.log_start_offset = snapshot_id.offset
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
        self.parts.clear()
        self.generation += 1
