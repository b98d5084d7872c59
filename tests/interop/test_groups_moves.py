"""What a rebalance leaves alone: cooperative members keep what they can, static ones everything."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.testing.broker import Broker
from tests.interop.group_members import (
    GROUP_CONFIGS,
    Kind,
    Member,
    MemberProcess,
    Partition,
    join_in_turn,
    partitions_of,
    wait_for_share,
    wait_until,
)

SLOW = [pytest.mark.kafka, pytest.mark.slow]
COOPERATIVE = "cooperative-sticky"
GROUPS_MAX = 10
_numbers = count(1)

Start = Callable[[Kind], MemberProcess]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=GROUP_CONFIGS) as started:
        yield started


@pytest.fixture
def start(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(kind: Kind) -> MemberProcess:
            if kind.client == "java":
                request.getfixturevalue("kafka_libs")
            return stack.enter_context(MemberProcess(kind, broker.bootstrap_servers))

        yield begin


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of six partitions; the group of a test has its name."""
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, 6)
    return name


def epoch_of(broker: Broker, group_id: str) -> int:
    """Return the generation of a group, or its epoch."""
    group = broker.node.broker.groups.shard_for(group_id).groups[group_id]
    if isinstance(group, ClassicGroup):
        return group.generation_id
    assert isinstance(group, ConsumerGroup)
    return group.state.group_epoch


def settled(members: list[Member], topic: str) -> None:
    wait_for_share(members, partitions_of(topic, 6))
    for member in members:
        member.rebalances.clear()
        member.restarts = 0


@pytest.mark.seed_row("4.2")
@pytest.mark.parametrize(
    ("kind", "assignor"),
    [
        (Kind("confluent"), COOPERATIVE),
        (Kind("kafka-python"), COOPERATIVE),
        (Kind("confluent", "consumer"), None),
        (Kind("confluent", "consumer"), "range"),
        pytest.param(Kind("java"), COOPERATIVE, marks=SLOW),
        pytest.param(Kind("java", "consumer"), "uniform", marks=SLOW),
    ],
    ids=str,
)
def test_only_what_must_move_is_revoked(
    start: Start, topic: str, kind: Kind, assignor: str | None
) -> None:
    held = let_a_third_join(start(kind), topic, assignor)
    for member in held:
        revoked = {
            partition
            for event in member.rebalances
            if event.what != "assigned"
            for partition in event.partitions
        }
        if assignor == "range":  # it is not sticky: what it keeps, it keeps without a break
            assert revoked.isdisjoint(member.assigned)
        else:
            assert revoked == held[member] - member.assigned
            assert member.assigned < held[member]
    assert not any(event.what == "lost" for member in held for event in member.rebalances)


def let_a_third_join(
    process: MemberProcess, topic: str, assignor: str | None
) -> dict[Member, set[Partition]]:
    """Give the members of a group of two, and what they had before there was a third.

    kafka-python hangs while it joins, one time in ten on a busy machine. Who has to be begun anew
    has lost everything, and that group says nothing about what moves: then there is another one.
    """
    for number in range(GROUPS_MAX):
        join = partial(process.join, f"{topic}-{number}", [topic], assignor=assignor)
        old = join_in_turn(partitions_of(topic, 6), join, join)
        settled(old, topic)
        held = {member: set(member.assigned) for member in old}
        all_three = [*old, join()]
        wait_for_share(all_three, partitions_of(topic, 6))
        if not any(member.restarts for member in all_three):
            return held
    raise AssertionError(f"in each of {GROUPS_MAX} groups somebody hung")


@pytest.mark.parametrize(
    "kind",
    [
        Kind("confluent"),
        Kind("confluent", "consumer"),
        Kind("aiokafka"),
        *(pytest.param(Kind("java", each), marks=SLOW) for each in ("classic", "consumer")),
    ],
    ids=str,
)
def test_a_static_member_that_comes_back_has_what_it_had(
    start: Start, broker: Broker, topic: str, kind: Kind
) -> None:
    process = start(kind)
    away, *others = join_in_turn(
        partitions_of(topic, 6),
        *(partial(process.join, topic, [topic], instance=f"static-{i}") for i in range(3)),
    )
    settled([away, *others], topic)
    epoch, held = epoch_of(broker, topic), set(away.assigned)
    away.leave()
    back = process.join(topic, [topic], instance="static-0")
    wait_until(lambda: back.assigned == held, lambda: f"{back.assigned} is not {held}")
    assert epoch_of(broker, topic) == epoch
    assert [member.rebalances for member in others] == [[], []]


def test_a_static_member_that_was_killed_has_what_it_had(
    start: Start, broker: Broker, topic: str
) -> None:
    victims, process = start(Kind("confluent")), start(Kind("confluent"))
    victim = victims.join(topic, [topic], instance="static-0")
    others = [process.join(topic, [topic], instance=f"static-{i}") for i in (1, 2)]
    settled([victim, *others], topic)
    epoch, held = epoch_of(broker, topic), set(victim.assigned)
    victims.kill()
    back = process.join(topic, [topic], instance="static-0")
    wait_until(lambda: back.assigned == held, lambda: f"{back.assigned} is not {held}")
    assert epoch_of(broker, topic) == epoch
    assert [member.rebalances for member in others] == [[], []]


@pytest.mark.parametrize("client", ["confluent", pytest.param("java", marks=SLOW)])
def test_of_two_with_one_static_name_the_classic_protocol_fences_the_older(
    start: Start, topic: str, client: str
) -> None:
    process = start(Kind(client))
    older = process.join(topic, [topic], instance="twin")
    settled([older], topic)
    younger = process.join(topic, [topic], instance="twin")
    wait_for_share([younger], partitions_of(topic, 6))
    wait_until(lambda: bool(older.errors), lambda: "the older one is told")
    assert "fenced" in older.errors[0].lower()
    assert not younger.errors


@pytest.mark.parametrize("client", ["confluent", pytest.param("java", marks=SLOW)])
def test_of_two_with_one_static_name_the_consumer_protocol_refuses_the_younger(
    start: Start, topic: str, client: str
) -> None:
    process = start(Kind(client, "consumer"))
    older = process.join(topic, [topic], instance="twin")
    settled([older], topic)
    younger = process.join(topic, [topic], instance="twin")
    wait_until(lambda: bool(younger.errors), lambda: "the younger one is told")
    # librdkafka's words, and Kafka's.
    assert re.search("still used by another|UnreleasedInstanceId", younger.errors[0])
    assert not older.errors
    assert older.assigned == set(partitions_of(topic, 6))
