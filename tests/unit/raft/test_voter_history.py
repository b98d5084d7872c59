"""Voters count when they are appended, and a truncation takes them back."""

from odradek.raft import VoterHistory, VoterSet
from odradek.raft.messages import ReplicaKey
from tests.unit.raft.epoch_log import KEYS

ONE, THREE, FOUR = (VoterSet(tuple(KEYS[:size])) for size in (1, 3, 4))


def history() -> VoterHistory:
    made = VoterHistory(ONE)
    made.append(5, THREE)
    made.append(9, FOUR)
    return made


def test_the_latest_set_counts_and_earlier_ones_are_found_by_offset() -> None:
    assert history().latest == FOUR
    assert [history().at(end) for end in (0, 5, 6, 9, 10)] == [ONE, ONE, THREE, THREE, FOUR]


def test_truncation_takes_sets_back() -> None:
    made = history()
    assert not made.truncate_to(10)
    assert made.truncate_to(9)
    assert made.latest == THREE
    assert made.truncate_to(0)
    assert made.latest == ONE
    assert made.latest_offset == -1


def test_a_snapshot_begins_the_history_anew() -> None:
    made = history()
    made.start_at(20, THREE)
    assert made.latest == THREE
    assert made.latest_offset == 19
    static = VoterHistory(ONE)
    static.start_at(20, None)
    assert static.latest == ONE


def test_sets_that_no_truncation_leads_back_to_are_forgotten() -> None:
    made = history()
    made.forget_before(6)
    assert made.at(7) == THREE
    made.forget_before(100)
    assert made.latest == FOUR
    assert made.latest_offset == 9


def test_directories_not_known_fit_each() -> None:
    assert VoterSet.of_ids(1).contains(ReplicaKey(1, KEYS[1].directory_id))
