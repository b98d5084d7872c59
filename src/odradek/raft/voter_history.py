"""Which replicas may vote, by the offset at which the log says so (KIP-853).

A set of voters counts from the moment it is appended, not when it is committed: otherwise two sets
could each elect a leader without a member in common. A truncation therefore takes it back, and the
set before it counts again.

A quorum of static voters (``controller.quorum.voters``) has one set, before all offsets.
"""

from typing import NamedTuple

from odradek.raft.messages import ReplicaKey
from odradek.raft.voters import VoterSet


class _Entry(NamedTuple):
    offset: int
    voters: VoterSet
    is_static: bool = False


class VoterHistory:
    def __init__(self, first: VoterSet) -> None:
        """``first`` counts as long as the log names no voters."""
        self._entries = [_Entry(-1, first, is_static=True)]

    @property
    def latest(self) -> VoterSet:
        return self._entries[-1].voters

    @property
    def is_static(self) -> bool:
        """Whether the log, and the snapshot before it, name no voters: kraft.version is 0."""
        return self._entries[-1].is_static

    @property
    def latest_offset(self) -> int:
        """Where the latest set was appended; -1 if the log names none."""
        return self._entries[-1].offset

    def at(self, end_offset: int) -> VoterSet:
        """Return the set that counts for a log that ends at ``end_offset``, exclusive."""
        return next(each.voters for each in reversed(self._entries) if each.offset < end_offset)

    def may_stand(self, key: ReplicaKey, high_watermark: int | None) -> bool:
        """Whether a replica may stand for election: a voter, or one whose removal may be undone.

        A leader that has removed itself and crashed may be the only one with all that is committed:
        nobody else would win, so it has to lead until the removal is committed (section 4.2.2 of
        the Raft thesis). It does not count itself.
        """
        latest = self._entries[-1]
        if latest.voters.contains(key):
            return True
        if high_watermark is not None and latest.offset < high_watermark:
            return False
        return len(self._entries) > 1 and self._entries[-2].voters.contains(key)

    def append(self, offset: int, voters: VoterSet) -> None:
        assert offset > self.latest_offset
        self._entries.append(_Entry(offset, voters))

    def truncate_to(self, end_offset: int) -> bool:
        """Forget the sets at ``end_offset`` and later; return whether the latest one changed."""
        before = self.latest_offset
        while self._entries[-1].offset >= end_offset:
            del self._entries[-1]
            assert self._entries, "the first set is never taken back"
        return self.latest_offset != before

    def start_at(self, end_offset: int, voters: VoterSet | None) -> None:
        """Begin anew behind a snapshot, which names its voters; None if they are static."""
        if voters is None:
            self._entries = [_Entry(-1, self._entries[0].voters, is_static=True)]
        else:
            self._entries = [_Entry(end_offset - 1, voters)]

    def forget_before(self, log_start_offset: int) -> None:
        """Forget sets that no truncation can lead back to."""
        while len(self._entries) > 1 and self._entries[1].offset < log_start_offset:
            del self._entries[0]
