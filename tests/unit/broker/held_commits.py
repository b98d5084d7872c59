"""A broker whose commits are held back, or whose leadership is taken away, as tests see it."""

import select
import time
from collections.abc import Callable, Sequence

from odradek.broker.broker_server import BrokerServer
from odradek.broker.coordinator_runtime import CoordinatorRuntime
from odradek.broker.partition import Partition
from odradek.core.ids import TopicPartition
from odradek.metadata.image import ClusterImage
from odradek.metadata.partition import DIRECTORY_UNASSIGNED
from odradek.protocol.generated.metadata_records import PartitionChangeRecord
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

SECONDS_MAX = 120
NO_LEADER = -1
ELSEWHERE = 7
GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


def held_answers(broker: Broker) -> int:
    """Return how many answers wait for a commit."""
    server = broker.node.broker
    return broker._call(lambda: _held_by_partitions(server) + _held_by_coordinators(server))


def _held_by_partitions(server: BrokerServer) -> int:
    return sum(len(partition_of(server, at)._waiters) for at in server.replicas.partitions)


def _held_by_coordinators(server: BrokerServer) -> int:
    runtimes: Sequence[CoordinatorRuntime] = list(server.coordinators.values())  # type: ignore[type-arg]
    return sum(len(led.outbox) for runtime in runtimes for led in runtime._led.values())


def partition_of(server: BrokerServer, at: TopicPartition) -> Partition:
    found = server.replicas.find(at)
    assert found is not None
    return found


def assert_held(broker: Broker, *connections: BrokerConnection, count: int) -> None:
    """Wait until so many answers are held, and see that these connections have got none."""
    wait_until(lambda: held_answers(broker) >= count, f"{count} answers should be held")
    for connection in connections:
        assert not is_answered(connection)


def is_answered(connection: BrokerConnection) -> bool:
    readable, _, _ = select.select([connection.socket], [], [], 0)
    return bool(readable)


class Leadership:
    """Lets a node hear that partitions have other leaders, as the metadata log would tell it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.image: ClusterImage = broker.node.broker.image

    def give(
        self, topic: str, leader: int, number: int = 0, replicas: list[int] | None = None
    ) -> None:
        """Return when the node has taken its new role."""
        self._change(topic, PartitionChangeRecord(leader=leader, replicas=replicas), number)

    def share(self, topic: str, replicas: list[int], isr: list[int], number: int = 0) -> None:
        """Return when the node knows that others have copies too; none of them really fetches."""
        (held, *_) = self.image.topics[topic].partitions[number].directories
        directories = [held, *[DIRECTORY_UNASSIGNED] * (len(replicas) - 1)]
        record = PartitionChangeRecord(replicas=replicas, isr=isr, directories=directories)
        self._change(topic, record, number)

    def pass_by(self, topic: str, number: int = 0) -> None:
        """Have others lead, and this node again: it hears of both in one update."""
        node_id = self._broker.node.broker.node_id
        records = [PartitionChangeRecord(leader=each) for each in (ELSEWHERE, node_id)]
        self._change(topic, records, number)

    def _change(
        self,
        topic: str,
        records: PartitionChangeRecord | list[PartitionChangeRecord],
        number: int,
    ) -> None:
        server = self._broker.node.broker
        topic_id = self.image.topics[topic].topic_id
        records = records if isinstance(records, list) else [records]
        for record in records:
            record.partition_id, record.topic_id = number, topic_id
        update = self.image.advance(records)
        self.image = update.image
        done: list[None] = []

        def publish() -> None:
            server.publisher.publish(update)
            server.publisher.when_published(lambda: done.append(None))

        self._broker._call(publish)
        wait_until(lambda: bool(done), "the new leader should be known")

    def take(self, topic: str, number: int = 0) -> None:
        """Leave a partition without a leader."""
        self.give(topic, NO_LEADER, number)

    def give_back(self, topic: str, number: int = 0) -> None:
        self.give(topic, self._broker.node.broker.node_id, number)
