"""A group changes its protocol while it works: members of both protocols share its partitions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from odradek.testing.broker import Broker
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import (
    DEADLINE_SECONDS,
    GROUP_CONFIGS,
    Kind,
    Member,
    MemberProcess,
    join_in_turn,
    partitions_of,
    wait_for_share,
    wait_until,
)

SLOW = [pytest.mark.kafka, pytest.mark.slow]
PARTITIONS = partitions_of("t", 6)
# Not librdkafka's cooperative-sticky: it leaves user data in assignments, for which Kafka, and we,
# refuse to upgrade a group.
PAIRS = [
    pytest.param("confluent", "confluent", None, id="confluent-range"),
    pytest.param("kafka-python", "confluent", None, id="kafka-python"),
    pytest.param("aiokafka", "confluent", None, id="aiokafka", marks=pytest.mark.slow),
    pytest.param("java", "java", None, id="java-range", marks=SLOW),
    pytest.param("java", "java", "cooperative-sticky", id="java-cooperative", marks=SLOW),
]

Start = Callable[[Kind], MemberProcess]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 6}, config=GROUP_CONFIGS) as started:
        yield started


@pytest.fixture
def start(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(kind: Kind) -> MemberProcess:
            if kind.client == "java":
                request.getfixturevalue("kafka_libs")
            return stack.enter_context(MemberProcess(kind, broker.bootstrap_servers))

        yield begin


def type_of(broker: Broker) -> str:
    return broker.node.broker.groups.shard_for("g").groups["g"].listed().group_type


def committed(servers: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g"})
    try:
        asked = [TopicPartition(*each) for each in PARTITIONS]
        return [each.offset for each in consumer.committed(asked, DEADLINE_SECONDS)]
    finally:
        consumer.close()


def have_read(members: list[Member], count: int) -> None:
    wait_until(
        lambda: len({each for member in members for each in member.read}) == count,
        lambda: f"{[len(member.read) for member in members]} of {count}",
    )


@pytest.mark.parametrize(("old", "new", "assignor"), PAIRS)
def test_a_group_is_upgraded_and_downgraded_without_a_stop(
    broker: Broker, start: Start, old: str, new: str, assignor: str | None
) -> None:
    witness = Confluent(broker.bootstrap_servers)
    classic, consumer = start(Kind(old)), start(Kind(new, "consumer"))
    join = partial(classic.join, "g", ["t"], assignor=assignor)
    members = join_in_turn(PARTITIONS, join, join)
    assert type_of(broker) == "classic"
    for _, number in PARTITIONS:
        witness.produce("t", [Sent(None, b"v")] * 5, partition=number)
    have_read(members, 30)
    for member in members:
        member.commit()

    members.append(consumer.join("g", ["t"]))
    wait_for_share(members, PARTITIONS)
    assert type_of(broker) == "consumer"
    for _ in range(2):
        members.pop(0).leave()
        wait_for_share(members, PARTITIONS)
    assert members[0].read == [], "what was committed before the upgrade is not read again"
    assert committed(broker.bootstrap_servers) == [5] * 6

    for _, number in PARTITIONS:
        witness.produce("t", [Sent(None, b"v")], partition=number)
    have_read(members, 6)
    members[0].commit()

    members.append(join())
    wait_for_share(members, PARTITIONS)
    members.pop(0).leave()
    wait_for_share(members, PARTITIONS)
    assert type_of(broker) == "classic"
    assert committed(broker.bootstrap_servers) == [6] * 6
    assert not members[0].errors
