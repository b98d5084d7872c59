"""Our consumer group against Kafka's own: the same requests, the same answers.

A script from a seed is played to both in lockstep: joins, heartbeats with and without what the
member owns, wrong epochs, leaves, static members that come back, classic members in between. Kafka
is asked over the wire. The ``range`` assignor leaves no choice, so assignments must be equal.

Left out: time, and regular expressions (Kafka resolves them later). Changes of protocol have a
story of their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker_connection import BrokerConnection
from tests.interop.kafka_peer.golden_workload import wait_for
from tests.interop.kafka_peer.node import KafkaNode
from tests.property.coordinator.group_conversion import Conversion
from tests.property.coordinator.group_match import PROTOCOL, TOPICS, Match
from tests.unit.coordinator.consumer.group_driver import (
    Owned,
)

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    folder: Path = tmp_path_factory.mktemp("oracle")
    overrides = {
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.assignors": "range,uniform",
        # Time is left out: whoever is not heard of for long, because the machine is busy, stays.
        "group.consumer.session.timeout.ms": "600000",
        "group.consumer.max.session.timeout.ms": "600000",
    }
    with KafkaNode(folder / "kafka", overrides) as node:
        yield node


@pytest.fixture(scope="module")
def topic_ids(kafka: KafkaNode) -> dict[str, Uuid]:
    with BrokerConnection(kafka.port) as connection:
        created = connection.ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=name, num_partitions=count, replication_factor=1)
                    for name, count in TOPICS.items()
                ],
                timeout_ms=120_000,
            ),
            CreateTopicsResponse,
        )
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["group-0"])
        wait_for(
            "the group coordinator",
            lambda: (
                connection.ask(find, FindCoordinatorResponse).coordinators[0].error_code == 0
                and connection.ask(
                    HeartbeatRequest(group_id="group-0", member_id="x"), HeartbeatResponse
                ).error_code
                == ErrorCode.UNKNOWN_MEMBER_ID
            ),
            180,
        )
    return {topic.name: topic.topic_id for topic in created.topics}


@pytest.mark.parametrize("seed", range(8))
def test_kafka_answers_the_same(seed: int, kafka: KafkaNode, topic_ids: dict[str, Uuid]) -> None:
    with BrokerConnection(kafka.port) as connection:
        match = Match(seed, connection, topic_ids)
        match.play()
        assert len(match.codes) > 4


def test_kafka_converts_groups_the_same(kafka: KafkaNode, topic_ids: dict[str, Uuid]) -> None:
    with BrokerConnection(kafka.port) as connection:
        story = Conversion(connection, topic_ids)
        whole: Owned = {"orders": {0, 1, 2, 3, 4}}
        assert story.join({}) == (0, 1, PROTOCOL, True)
        assert story.sync(1, whole) == whole
        assert story.beat(1) is ErrorCode.NONE

        joined = story.consume(
            member_epoch=0,
            rebalance_timeout_ms=600_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        assert (joined.error_code, joined.member_epoch) == (0, 2)
        assert story.beat(1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert story.join(whole) == (0, 1, PROTOCOL, False)
        kept = story.sync(1)
        assert isinstance(kept, dict)
        assert story.join(kept) == (0, 2, PROTOCOL, False)
        assert story.sync(2) == kept
        given = story.consume(member_epoch=2)
        assert given.assignment is not None

        assert story.consume(member_epoch=-1).error_code == 0
        assert story.is_classic
        assert story.beat(2) is ErrorCode.REBALANCE_IN_PROGRESS
        assert story.join(kept) == (0, 3, PROTOCOL, True)
        assert story.sync(3, whole) == whole
