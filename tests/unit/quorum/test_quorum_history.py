"""What a log says of its quorum counts from where it says so, and is taken back with it."""

import pytest

from odradek.core.errors import CorruptionError
from odradek.metadata.snapshots import QuorumRecords
from odradek.protocol.generated.control_records import VotersRecord, VotersRecordVoter
from odradek.quorum.quorum_history import QuorumHistory, voter_set
from odradek.raft.voters import VoterSet
from odradek.records import BatchBuilder, iter_headers
from tests.unit.quorum.quorum_members import voters_record


def append(history: QuorumHistory, records: QuorumRecords, base_offset: int) -> list[int]:
    builder = BatchBuilder(control=True, base_offset=base_offset)
    records.append_to(builder, 0)
    batch = builder.build()
    appended = history.append(history.plan((batch, each) for each in iter_headers(batch)))
    return [offset for offset, _ in appended]


def ids(records: QuorumRecords) -> tuple[int, ...]:
    return voter_set(records.voters).ids


def test_voters_count_from_their_offset_and_are_taken_back() -> None:
    history = QuorumHistory()
    assert append(history, voters_record([1]), 10) == [11]  # kraft.version at 10, voters at 11
    assert append(history, voters_record([1, 2]), 20) == [21]
    assert ids(history.latest) == (1, 2)
    assert [ids(history.at(offset)) for offset in (10, 12, 21, 22)] == [(), (1,), (1,), (1, 2)]
    history.truncate_to(20)
    assert ids(history.latest) == (1,)
    history.truncate_to(10)
    assert history.latest == QuorumRecords()


def test_raft_gets_the_same_history() -> None:
    history = QuorumHistory()
    static = VoterSet.of_ids(7)
    assert history.voter_history(static).latest == static
    append(history, voters_record([1]), 10)
    append(history, voters_record([1, 2]), 20)
    voters = history.voter_history(static)
    assert (voters.latest.ids, voters.latest_offset) == ((1, 2), 21)
    assert voters.at(12).ids == (1,)
    assert voters.at(11) == static
    assert voters.truncate_to(21)
    assert voters.latest.ids == (1,)


def test_a_snapshot_begins_the_history_again() -> None:
    history = QuorumHistory()
    history.start_at(30, voters_record([3]), is_in_log=True)
    append(history, voters_record([3, 4]), 30)
    assert [ids(history.at(offset)) for offset in (30, 31, 32)] == [(3,), (3,), (3, 4)]
    history.forget_before(32)
    assert ids(history.at(0)) == (3, 4)
    assert history.voter_history(VoterSet(())).latest.ids == (3, 4)


def test_impossible_voters_are_refused_before_anything_is_appended() -> None:
    history = QuorumHistory()
    twice = VotersRecord(voters=[VotersRecordVoter(voter_id=1)] * 2)
    many = VotersRecord(voters=[VotersRecordVoter(voter_id=each) for each in range(100)])
    for record in (twice, many):
        with pytest.raises(CorruptionError):
            append(history, QuorumRecords(1, record), 0)
    assert history.latest == QuorumRecords()
