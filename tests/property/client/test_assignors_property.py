"""What assignors promise for every group: nothing twice, nobody gets what they do not want."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.consumer.assignors import ASSIGNORS, Assignment, MemberSubscription
from odradek.core.ids import TopicPartition
from tests.assignor_cases import Case, member, random_case

SEEDS = st.integers(0, 2**32)
STICKY = ["sticky", "cooperative-sticky"]


def assign(case: Case) -> Assignment:
    return ASSIGNORS[case.assignor].assign(case.topics, case.members)


def wanted(case: Case) -> set[TopicPartition]:
    topics = {topic for each in case.members.values() for topic in each.topics}
    return {TopicPartition(t, n) for t in topics if t in case.topics for n in range(case.topics[t])}


def settle(assignor: str, topics: Mapping[str, int], members: dict[str, list[str]]) -> Assignment:
    """Rebalance until nothing moves, as a cooperative group does."""
    owned: Assignment = {name: [] for name in members}
    for generation in range(10):
        asked = {
            name: member(assignor, wants, owned.get(name, []), generation)
            for name, wants in members.items()
        }
        after = ASSIGNORS[assignor].assign(topics, asked)
        if after == owned:
            return after
        owned = after
    raise AssertionError("a group that never settles")


@pytest.mark.seed_row("4.1")
@pytest.mark.parametrize("assignor", list(ASSIGNORS))
@given(seed=SEEDS)
def test_nothing_is_given_twice_or_to_whom_does_not_want_it(assignor: str, seed: int) -> None:
    case = random_case(Random(seed), assignor)
    given_out = [(name, partition) for name, share in assign(case).items() for partition in share]
    partitions = [partition for _, partition in given_out]
    assert len(partitions) == len(set(partitions))
    assert all(partition.topic in case.members[name].topics for name, partition in given_out)
    if assignor == "cooperative-sticky":
        assert set(partitions) <= wanted(case)
    else:
        assert set(partitions) == wanted(case)


@pytest.mark.seed_row("4.1")
@pytest.mark.parametrize("assignor", ["roundrobin", *STICKY])
@given(seed=SEEDS)
def test_members_that_want_the_same_have_as_much(assignor: str, seed: int) -> None:
    case = random_case(Random(seed), assignor, same_topics=True)
    names = {name: list(each.topics) for name, each in case.members.items()}
    if assignor == "cooperative-sticky":
        shares = settle(assignor, case.topics, names)
    else:
        shares = assign(case)
    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.seed_row("4.1")
@given(seed=SEEDS)
def test_a_range_is_cut_per_topic(seed: int) -> None:
    case = random_case(Random(seed), "range", same_topics=True)
    for topic in case.topics:
        runs = [[p.partition for p in share if p.topic == topic] for share in assign(case).values()]
        sizes = [len(run) for run in runs]
        assert max(sizes) - min(sizes) <= 1
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)


@pytest.mark.seed_row("4.2")
@pytest.mark.parametrize("assignor", STICKY)
@given(seed=SEEDS)
def test_a_lost_members_partitions_move_and_the_others_stay(assignor: str, seed: int) -> None:
    random = Random(seed)
    case = random_case(random, assignor, same_topics=True)
    names = {name: list(each.topics) for name, each in case.members.items()}
    before = settle(assignor, case.topics, names)
    gone = random.choice(list(names))
    if len(names) == 1:
        return
    left = {
        name: member(assignor, wants, before[name], 20)
        for name, wants in names.items()
        if name != gone
    }
    after = ASSIGNORS[assignor].assign(case.topics, left)
    for name in left:
        assert set(before[name]) <= set(after[name])


@pytest.mark.seed_row("4.2")
@pytest.mark.parametrize("assignor", STICKY)
@given(seed=SEEDS)
def test_a_settled_group_stays_as_it_is(assignor: str, seed: int) -> None:
    case = random_case(Random(seed), assignor)
    names = {name: list(each.topics) for name, each in case.members.items()}
    before = settle(assignor, case.topics, names)
    asked = {name: member(assignor, wants, before[name], 20) for name, wants in names.items()}
    after = ASSIGNORS[assignor].assign(case.topics, asked)
    assert {name: set(share) for name, share in after.items()} == {
        name: set(share) for name, share in before.items()
    }


@pytest.mark.seed_row("4.2")
@given(seed=SEEDS)
def test_what_moves_is_first_only_taken_away(seed: int) -> None:
    case = random_case(Random(seed), "cooperative-sticky")
    claimed: dict[TopicPartition, set[str]] = {}
    for name, each in case.members.items():
        for partition in each.owned:
            claimed.setdefault(partition, set()).add(name)
    for name, share in assign(case).items():
        for partition in share:
            owners = claimed.get(partition, {name})
            assert name in owners or _claimed_in_vain(case, partition, owners)


def _claimed_in_vain(case: Case, partition: TopicPartition, owners: set[str]) -> bool:
    """Whether a partition is at nobody now, whatever was claimed: its owners do not want it."""
    return all(partition.topic not in case.members[owner].topics for owner in owners)


def test_a_past_owner_that_wants_a_topic_no_more_does_not_get_it_back() -> None:
    held = [TopicPartition("t", n) for n in range(4)]
    members = {
        "a": MemberSubscription(("t",), tuple(held), 5),
        "b": MemberSubscription(("u",), tuple(held), 4),
        "c": MemberSubscription(("t", "u"), (), 5),
    }
    shares = ASSIGNORS["cooperative-sticky"].assign({"t": 4, "u": 1}, members)
    assert all(partition.topic == "u" for partition in shares["b"])
