"""Clients of other languages as members of consumer groups."""

from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from tests.interop.clients import DEADLINE_SECONDS
from tests.interop.clients.confluent import Confluent
from tests.interop.programs.contract import NUMBERED, seen
from tests.interop.programs.program import Program, ProgramClient, Target

pytestmark = pytest.mark.slow

MEMBERS = [
    ("java", "classic"),
    ("java", "consumer"),
    ("franz-go", "classic"),
    ("sarama", "classic"),
    ("kafkajs", "classic"),
]


def committed(servers: str, group: str, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(3)]
        return [each.offset for each in consumer.committed(asked, DEADLINE_SECONDS)]
    finally:
        consumer.close()


@pytest.mark.parametrize(("name", "protocol"), MEMBERS)
def test_the_next_member_begins_where_the_last_one_committed(
    program: Callable[[str], Program],
    target: Target,
    witness: Confluent,
    topic: str,
    name: str,
    protocol: str,
) -> None:
    client = ProgramClient(program(name), target.servers)
    witness.create_topic(topic, 3)
    for partition in range(3):
        witness.produce(topic, NUMBERED, partition=partition)
    first = client.consume_as_member(topic, f"of-{topic}", 30, protocol=protocol)
    assert first == dict.fromkeys(range(3), seen(NUMBERED))
    assert committed(target.servers, f"of-{topic}", topic) == [10, 10, 10]

    witness.produce(topic, NUMBERED[:5], partition=1)
    second = client.consume_as_member(topic, f"of-{topic}", 5, protocol=protocol)
    assert second == {1: seen([*NUMBERED, *NUMBERED[:5]])[10:]}
    assert committed(target.servers, f"of-{topic}", topic) == [10, 15, 10]
