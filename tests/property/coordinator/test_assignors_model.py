"""Every assignor: complete, within subscriptions; uniform also balanced and sticky.

The model of "complete" is a set of all partitions that somebody subscribes to; of "balanced" the
difference between the largest and the smallest share; of "sticky" the set of partitions that moved.
"""

from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.group.consumer.assignors import Assignor, AssignorInput, AssignorMember
from odradek.coordinator.group.consumer.assignors.range import assign as assign_range
from odradek.coordinator.group.consumer.assignors.uniform import assign as assign_uniform
from odradek.coordinator.group.consumer.member import Partitions
from odradek.core.ids import Uuid

Target = dict[str, Partitions]

TOPICS = [Uuid(bytes([number]) * 16) for number in range(1, 6)]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12), min_size=1)
assignors = pytest.mark.parametrize("assign", [assign_uniform, assign_range])


def group(
    topic_counts: dict[Uuid, int], subscriptions: dict[str, set[Uuid]], target: Target | None = None
) -> AssignorInput:
    members = [
        AssignorMember(member_id, None, frozenset(topics), (target or {}).get(member_id, {}))
        for member_id, topics in subscriptions.items()
    ]
    used = {topic for topics in subscriptions.values() for topic in topics}
    return AssignorInput(members, {each: topic_counts[each] for each in used})


@st.composite
def heterogeneous(draw: st.DrawFn) -> tuple[dict[Uuid, int], dict[str, set[Uuid]]]:
    topic_counts = draw(counts)
    some = st.sets(st.sampled_from(sorted(topic_counts)))
    return topic_counts, draw(st.dictionaries(st.sampled_from("abcdefgh"), some, min_size=1))


def owners(target: Target) -> dict[tuple[Uuid, int], str]:
    found: dict[tuple[Uuid, int], str] = {}
    for member_id, partitions in target.items():
        for topic_id, numbers in partitions.items():
            assert numbers, "a topic without partitions"
            for number in numbers:
                assert (topic_id, number) not in found, "assigned twice"
                found[topic_id, number] = member_id
    return found


def sizes(target: Target) -> list[int]:
    return [sum(map(len, partitions.values())) for partitions in target.values()]


def check_complete(spec: AssignorInput, target: Target) -> None:
    assert target.keys() == {member.member_id for member in spec.members}
    found = owners(target)
    assert found.keys() == {
        (topic_id, number)
        for topic_id, count in spec.partition_counts.items()
        for number in range(count)
    }
    subscribed = {member.member_id: member.topic_ids for member in spec.members}
    assert all(topic_id in subscribed[owner] for (topic_id, _), owner in found.items())


@assignors
@given(case=heterogeneous())
def test_complete_and_within_subscriptions(
    assign: Assignor, case: tuple[dict[Uuid, int], dict[str, set[Uuid]]]
) -> None:
    spec = group(*case)
    check_complete(spec, assign(spec))


@given(topic_counts=counts, names=st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_uniform_is_balanced_for_equal_subscriptions(
    topic_counts: dict[Uuid, int], names: set[str]
) -> None:
    spec = group(topic_counts, {name: set(topic_counts) for name in sorted(names)})
    target = assign_uniform(spec)
    assert max(sizes(target)) - min(sizes(target)) <= 1


@pytest.mark.slow
@assignors
@given(case=heterogeneous())
def test_a_second_run_moves_nothing(
    assign: Assignor, case: tuple[dict[Uuid, int], dict[str, set[Uuid]]]
) -> None:
    topic_counts, subscriptions = case
    first = assign(group(topic_counts, subscriptions))
    second = assign(group(topic_counts, subscriptions, first))
    assert second == first
    if assign is assign_uniform:
        assert all(second[name] is first[name] for name in first), "copied for nothing"


@given(topic_counts=counts, names=st.sets(st.sampled_from("abcdefgh"), min_size=2), data=st.data())
def test_uniform_moves_only_the_partitions_of_a_member_that_left(
    topic_counts: dict[Uuid, int], names: set[str], data: st.DataObject
) -> None:
    subscriptions = {name: set(topic_counts) for name in sorted(names)}
    before = owners(first := assign_uniform(group(topic_counts, subscriptions)))
    gone = data.draw(st.sampled_from(sorted(names)))
    del subscriptions[gone], first[gone]
    target = assign_uniform(group(topic_counts, subscriptions, first))
    moved = {each for each, owner in owners(target).items() if before[each] != owner}
    assert moved == {each for each, owner in before.items() if owner == gone}
    assert max(sizes(target)) - min(sizes(target)) <= 1


@given(topic_counts=counts, names=st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_uniform_moves_only_what_a_new_member_gets(
    topic_counts: dict[Uuid, int], names: set[str]
) -> None:
    subscriptions = {name: set(topic_counts) for name in sorted(names)}
    first = assign_uniform(group(topic_counts, subscriptions))
    before = owners(first)
    target = assign_uniform(group(topic_counts, {**subscriptions, "new": set(topic_counts)}, first))
    assert all(owner in ("new", before[each]) for each, owner in owners(target).items())


@given(case=heterogeneous(), broken=heterogeneous())
def test_uniform_makes_sense_of_any_last_target(
    case: tuple[dict[Uuid, int], dict[str, set[Uuid]]],
    broken: tuple[dict[Uuid, int], dict[str, set[Uuid]]],
) -> None:
    """Partitions that do not exist, topics not subscribed to, the same partition twice."""
    last: Target = {
        name: {topic: frozenset(range(broken[0][topic])) for topic in topics if broken[0][topic]}
        for name, topics in broken[1].items()
    }
    spec = group(*case, last)
    check_complete(spec, assign_uniform(spec))


@pytest.mark.slow
@given(case=heterogeneous())
def test_uniform_leaves_no_move_that_would_help(
    case: tuple[dict[Uuid, int], dict[str, set[Uuid]]],
) -> None:
    spec = group(*case)
    target = assign_uniform(spec)
    load = dict(zip(target, sizes(target), strict=True))
    for member in spec.members:
        for topic_id in target[member.member_id]:
            for other in spec.members:
                if topic_id in other.topic_ids:
                    assert load[member.member_id] - load[other.member_id] <= 1


def test_range_gives_the_same_numbers_of_equally_large_topics() -> None:
    topic_counts = {TOPICS[0]: 3, TOPICS[1]: 3}
    target = assign_range(group(topic_counts, {"b": set(topic_counts), "a": set(topic_counts)}))
    assert target == {
        "a": {TOPICS[0]: frozenset({0, 1}), TOPICS[1]: frozenset({0, 1})},
        "b": {TOPICS[0]: frozenset({2}), TOPICS[1]: frozenset({2})},
    }


def test_range_puts_static_members_first() -> None:
    topics = frozenset(TOPICS[:1])
    members = [
        AssignorMember("a", None, topics, {}),
        AssignorMember("z", "i1", topics, {}),
        AssignorMember("b", "i2", topics, {}),
    ]
    target = assign_range(AssignorInput(members, {TOPICS[0]: 2}))
    assert target == {
        "z": {TOPICS[0]: frozenset({0})},
        "b": {TOPICS[0]: frozenset({1})},
        "a": {},
    }


@assignors
@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_thousand_members_with_ten_thousand_partitions(assign: Assignor, is_mixed: bool) -> None:
    """Far below the two seconds that a group could notice."""
    random = Random(5)
    topic_counts = {Uuid.random(random): 100 for _ in range(100)}
    topics = set(topic_counts)
    subscriptions = {f"m{number:04}": set(topics) for number in range(1_000)}
    if is_mixed:
        for mine in subscriptions.values():
            mine -= set(random.sample(sorted(topics), 10))
    started = process_time()
    target = assign(group(topic_counts, subscriptions))
    second = assign(group(topic_counts, subscriptions, target))
    took = process_time() - started
    assert second == target
    assert took < 8  # two runs; of work, whatever else the machine has to do
