"""Random groups for assignors: topics, members, what they want and what they say they had."""

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from odradek.client.consumer.assignors import ASSIGNORS, MemberSubscription
from odradek.core.ids import TopicPartition

NEWEST = 5


RACKS = ("a", "b", "c")


class Case(NamedTuple):
    assignor: str
    topics: dict[str, int]
    members: dict[str, MemberSubscription]
    racks: dict[TopicPartition, frozenset[str]] = {}  # noqa: RUF012


def random_case(random: Random, assignor: str, *, same_topics: bool | None = None) -> Case:
    """A group as it may be: with newcomers, stale members and double claims."""
    topics = {f"topic-{n}": random.randint(1, 9) for n in range(random.randint(1, 5))}
    wants_same = random.random() < 0.5 if same_topics is None else same_topics
    count = random.randint(1, 8)
    names = [f"member-{random.randrange(10**6)}-{n}" for n in range(count)]
    everything = [TopicPartition(t, n) for t, size in topics.items() for n in range(size)]
    owned: dict[str, list[TopicPartition]] = {name: [] for name in names}
    for partition in everything:
        if random.random() < 0.7:
            owned[random.choice(names)].append(partition)
        if random.random() < 0.05:  # claimed twice
            other = owned[random.choice(names)]
            if partition not in other:
                other.append(partition)
    members = {}
    for name in names:
        chosen = sorted(topics) if wants_same else random_subset(random, sorted(topics))
        generation = random.choice([NEWEST, NEWEST, NEWEST, 4, -1])
        claimed = owned[name]
        if generation < NEWEST:
            # Java's would give what such a member claims back to it, even if it wants it no more.
            claimed = [partition for partition in claimed if partition.topic in chosen]
        members[name] = member(assignor, chosen, claimed, generation, random)
    asked_for = {topic for each in members.values() for topic in each.topics}
    return Case(assignor, {t: size for t, size in topics.items() if t in asked_for}, members)


def with_racks(random: Random, case: Case) -> Case:
    """The same group with members and replicas in racks: few or many, some everywhere."""
    count = random.randint(1, len(RACKS))
    replicas = random.randint(1, count)
    members = {
        name: each._replace(rack_id=random.choice([*RACKS, *RACKS, "", None]))
        for name, each in case.members.items()
    }
    racks = {
        TopicPartition(topic, number): frozenset(random.sample(RACKS[:count], replicas))
        for topic, size in case.topics.items()
        for number in range(size)
        if random.random() < 0.95
    }
    return case._replace(members=members, racks=racks)


def random_subset(random: Random, names: list[str]) -> list[str]:
    return [name for name in names if random.random() < 0.6] or [random.choice(names)]


def member(
    assignor: str,
    topics: Iterable[str],
    owned: list[TopicPartition],
    generation: int,
    random: Random | None = None,
) -> MemberSubscription:
    instance = None
    if random is not None and random.random() < 0.2:
        instance = f"instance-{random.randrange(10**6)}"
    user_data = ASSIGNORS[assignor].user_data(owned, generation)
    kept = tuple(owned) if assignor == "cooperative-sticky" else ()
    return MemberSubscription(tuple(topics), kept, generation, user_data, instance)
