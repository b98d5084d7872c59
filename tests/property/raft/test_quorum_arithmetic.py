"""The quorum's arithmetic against twins that are too simple to be wrong."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from odradek.core.ids import Uuid
from odradek.raft import VoterHistory, VoterSet
from odradek.raft.leader import Leader
from odradek.raft.messages import ReplicaKey, VoterDetails
from odradek.raft.roles import Election
from odradek.raft.voters import VoterNode

KEYS = [ReplicaKey(i, Uuid(bytes([i + 1] * 16))) for i in range(7)]
OFFSETS = st.none() | st.integers(0, 6)


def greatest_held_by_a_majority(held: list[int | None]) -> int | None:
    """Try every offset: is everything before it on more than half of the disks?"""
    best = None
    for offset in range(8):
        holders = sum(each is not None and each >= offset for each in held)
        if 2 * holders > len(held):
            best = offset
    return best


@given(st.lists(OFFSETS, max_size=6), st.integers(0, 6))
def test_what_is_committed_is_on_more_than_half_of_the_disks(
    others: list[int | None], own: int
) -> None:
    leader = Leader(KEYS[0], VoterSet(tuple(KEYS[: len(others) + 1])), 0, None, None)
    for progress, offset in zip(leader.progress.values(), others, strict=True):
        progress.end_offset = offset
    assert leader.majority_offset(own) == greatest_held_by_a_majority([own, *others])


@given(st.lists(OFFSETS, min_size=1, max_size=6), st.integers(0, 6))
def test_a_leader_without_a_vote_does_not_count_itself(others: list[int | None], own: int) -> None:
    leader = Leader(KEYS[0], VoterSet(tuple(KEYS[1 : len(others) + 1])), 0, None, None)
    for progress, offset in zip(leader.progress.values(), others, strict=True):
        progress.end_offset = offset
    assert leader.majority_offset(own) == greatest_held_by_a_majority(others)


@given(st.integers(1, 6), st.dictionaries(st.integers(0, 6), st.booleans()))
def test_an_election_is_decided_when_no_further_vote_can_change_it(
    size: int, votes: dict[int, bool]
) -> None:
    election = Election(VoterSet(tuple(KEYS[:size])))
    for voter, granted in votes.items():
        election.record(voter, granted)
    counted = {voter: granted for voter, granted in votes.items() if voter < size}
    open_votes = [voter for voter in range(size) if voter not in counted]
    ends = [
        2 * (sum(counted.values()) + sum(rest)) > size
        for rest in product((False, True), repeat=len(open_votes))
    ]
    assert election.is_won == all(ends)
    assert election.is_lost == (not any(ends))
    assert [key.id for key in election.unanswered] == open_votes


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 5)), max_size=30))
def test_voters_are_those_of_the_last_record_that_is_left(
    steps: list[tuple[bool, int, int]],
) -> None:
    history, log = VoterHistory(VoterSet(())), dict[int, VoterSet]()
    for is_append, offset, size in steps:
        if is_append and offset > max(log, default=-1):
            log[offset] = VoterSet(tuple(KEYS[:size]))
            history.append(offset, log[offset])
        elif not is_append:
            history.truncate_to(offset)
            log = {each: voters for each, voters in log.items() if each < offset}
        for end in range(42):
            before = [each for each in log if each < end]
            assert history.at(end) == (log[max(before)] if before else VoterSet(()))
        assert history.latest == history.at(10**9)


Change = tuple[bool, int]


@given(st.integers(1, 6), st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=8))
def test_majorities_of_sets_that_follow_each_other_have_a_member_in_common(
    size: int, changes: list[Change]
) -> None:
    voters = VoterSet(tuple(KEYS[:size]))
    for is_added, number in changes:
        before, key = voters, KEYS[number]
        if is_added and voters.find(number) is None:
            voters = voters.with_voter(VoterNode(key, VoterDetails()))
        elif not is_added and voters.contains(key) and len(voters.voters) > 1:
            voters = voters.without(key)
        ids = [set(each.ids) for each in (before, voters)]
        assert len(ids[0] ^ ids[1]) <= 1
        for some, others in product(
            *(combinations(sorted(each), len(each) // 2 + 1) for each in ids)
        ):
            assert set(some) & set(others)
        assert voters.details.keys() <= set(voters.ids)


@given(
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), max_size=4),
    st.none() | st.integers(0, 10),
    st.integers(0, 4),
)
def test_who_is_not_known_to_be_removed_may_stand(
    first: int, later: list[tuple[int, int]], high_watermark: int | None, number: int
) -> None:
    """Try all ends that the committed part of the log may have, as far as the node knows."""
    history = VoterHistory(VoterSet(tuple(KEYS[first % 5 : first % 5 + 2])))
    offset, sets = -1, {-1: history.latest}
    for gap, start in later:
        offset += gap
        sets[offset] = VoterSet(tuple(KEYS[start % 5 : start % 5 + 2]))
        history.append(offset, sets[offset])
    # A leader names no second set before the first is committed: the last but one is.
    known = -1 if high_watermark is None else high_watermark - 1
    committed_to = max([known, *sorted(sets)[:-1]], default=known)
    possible = {
        max(each for each in sets if each <= end)
        for end in range(max(committed_to, -1), offset + 1)
    } or {offset}
    expected = any(sets[each].contains(KEYS[number]) for each in possible)
    assert history.may_stand(KEYS[number], high_watermark) == expected
