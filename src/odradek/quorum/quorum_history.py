"""What the metadata log says of its own quorum, by the offset at which it says so (KIP-853).

Control records name the level of ``kraft.version`` and the voters with their endpoints. Raft counts
voters from the moment they are appended, snapshots hold what was committed at their offset, and a
truncation takes back what it cuts off: so all three are asked of one history.
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.core.errors import CorruptionError
from odradek.core.ids import ZERO_UUID
from odradek.metadata.snapshots import QuorumRecords
from odradek.protocol.generated.control_records import VotersRecord
from odradek.quorum.voters_record import details_of
from odradek.raft.driver import AppendedVoters
from odradek.raft.messages import ReplicaKey
from odradek.raft.voter_history import VoterHistory
from odradek.raft.voters import VOTERS_MAX, VoterSet
from odradek.records import BatchHeader
from odradek.storage.disk import Buffer


class _Entry(NamedTuple):
    offset: int  # of the last record of the batch
    records: QuorumRecords


class QuorumHistory:
    def __init__(self) -> None:
        self._entries = [_Entry(-1, QuorumRecords())]
        self.is_in_log = True
        """False: only the snapshot that formatting left has it, and no voter fetches that one."""

    @property
    def latest(self) -> QuorumRecords:
        return self._entries[-1].records

    def at(self, end_offset: int) -> QuorumRecords:
        """Return what holds for a log that ends at ``end_offset``, exclusive."""
        found = (each.records for each in reversed(self._entries) if each.offset < end_offset)
        return next(found, self._entries[0].records)

    def plan(self, batches: Iterable[tuple[Buffer, BatchHeader]]) -> list[_Entry]:
        """Return the entries that batches would add, which follow the log's end.

        Raises:
            CorruptionError: A control record cannot be read, or names an impossible set of voters.
        """
        planned, records = list[_Entry](), self.latest
        for buffer, header in batches:
            after = records.after(buffer, header)
            if after is not records:
                if after.voters is not records.voters:
                    voter_set(after.voters)
                planned.append(_Entry(header.last_offset, after))
                records = after
        return planned

    def append(self, planned: Iterable[_Entry]) -> list[AppendedVoters]:
        """Take in what was appended to the log; return the voters that raft is to count by."""
        appended: list[AppendedVoters] = []
        for entry in planned:
            if entry.records.voters is not self.latest.voters:
                appended.append((entry.offset, voter_set(entry.records.voters)))
            self._entries.append(entry)
            self.is_in_log = True
        return appended

    def start_at(self, end_offset: int, records: QuorumRecords, *, is_in_log: bool) -> None:
        """Begin again behind a snapshot."""
        self._entries = [_Entry(end_offset - 1, records)]
        self.is_in_log = is_in_log

    def truncate_to(self, end_offset: int) -> None:
        while len(self._entries) > 1 and self._entries[-1].offset >= end_offset:
            del self._entries[-1]

    def forget_before(self, log_start_offset: int) -> None:
        while len(self._entries) > 1 and self._entries[1].offset < log_start_offset:
            del self._entries[0]

    def voter_history(self, static: VoterSet) -> VoterHistory:
        """Return the sets of voters for raft; ``static`` counts as long as the log names none."""
        history = VoterHistory(static)
        first, *later = self._entries
        if first.records.voters is not None:
            history.start_at(first.offset + 1, voter_set(first.records.voters))
        known = first.records.voters
        for offset, records in later:
            if records.voters is not known and records.voters is not None:
                history.append(offset, voter_set(records.voters))
                known = records.voters
        return history


def voter_set(record: VotersRecord | None) -> VoterSet:
    """Return the voters of a record.

    Raises:
        CorruptionError: There are too many, or an id is named twice.
    """
    voters = () if record is None else tuple(record.voters)
    keys = [
        ReplicaKey(
            each.voter_id,
            None if each.voter_directory_id == ZERO_UUID else each.voter_directory_id,
        )
        for each in voters
    ]
    if len({key.id for key in keys}) != len(keys) or len(keys) > VOTERS_MAX:
        named = ", ".join(str(key.id) for key in keys[: VOTERS_MAX + 1])
        raise CorruptionError(
            f"the metadata log names the voters {named}: expected up to {VOTERS_MAX}, each id once"
        )
    return VoterSet(tuple(keys), {each.voter_id: details_of(each) for each in voters})
