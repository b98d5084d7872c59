"""Clusters whose partitions have replicas on brokers of Odradek and of Kafka; what to ask them.

One controller of either kind, two Odradek brokers and one of Kafka: with Kafka's tools there are
never more than three JVMs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from odradek.core.ids import TopicPartition
from odradek.protocol.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.records.batch import HEADER_BYTES, parse_header
from tests.broker_connection import BrokerConnection
from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.cluster.processes import Cluster, ClusterNode, wait_until
from tests.interop.cluster.kafka_tools import KafkaTools

CONTROLLER, FIRST, KAFKAS, SECOND = 1, 11, 12, 13
BROKERS: Final = (FIRST, KAFKAS, SECOND)
ROLES: Final = {CONTROLLER: "controller", **dict.fromkeys(BROKERS, "broker")}
CONFIGS: Final = {
    # Short, so that a broker that is killed or paused is soon led without.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "log.retention.ms": "-1",
}
PREFERRED, UNCLEAN = 0, 1


class Batch(NamedTuple):
    """What must be the same in all replicas."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    checksum: int


class Partition(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def flavours(controllers: str) -> dict[int, Flavour]:
    """Return the kind of each node; ``controllers`` is kafka or odradek."""
    controller: Flavour = Kafka() if controllers == "kafka" else Odradek()
    return {CONTROLLER: controller, FIRST: Odradek(), KAFKAS: Kafka(), SECOND: Odradek()}


class Replicated:
    def __init__(self, cluster: Cluster, tools: KafkaTools, controllers: str) -> None:
        self.cluster = cluster
        self.tools = tools
        self.controllers = controllers

    def node(self, broker: int) -> ClusterNode:
        return self.cluster.nodes[broker]

    def through(self, broker: int) -> tuple[str, str]:
        return "--bootstrap-server", self.node(broker).bootstrap_servers

    # Topics.

    def create(
        self,
        topic: str,
        *placed: Sequence[int],
        through: int = FIRST,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic with these replicas of each partition; wait until all are in sync."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
                for number, replicas in enumerate(placed)
            ],
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in (configs or {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)
        with BrokerConnection(self.node(through).port) as connection:
            (made,) = connection.ask(request, CreateTopicsResponse).topics
        assert not made.error_code, made
        for number in range(len(placed)):
            self.wait_until_whole(TopicPartition(topic, number))

    def partition(self, at: TopicPartition, *, through: int = FIRST) -> Partition | None:
        """Return a partition as one broker knows it; None if it does not."""
        with BrokerConnection(self.node(through).port) as connection:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=at.topic)], allow_auto_topic_creation=False
            )
            (found,) = connection.ask(request, MetadataResponse, 12).topics
        for each in found.partitions:
            if each.partition_index == at.partition:
                leader = (each.leader_id, each.leader_epoch)
                return Partition(*leader, tuple(each.replica_nodes), tuple(each.isr_nodes))
        return None

    def wait_for(
        self,
        at: TopicPartition,
        *,
        leader: int | None = None,
        isr: Sequence[int] = (),
        asked: Collection[int] = BROKERS,
    ) -> None:
        """Wait until every running broker, of those asked, knows that leader and that ISR."""

        def is_so(broker: int) -> bool:
            found = self.partition(at, through=broker)
            return (
                found is not None
                and leader in (None, found.leader)
                and (not isr or set(found.isr) == set(isr))
            )

        for broker in asked:
            if self.node(broker).is_running:
                what = f"{at} is led by {leader} with {isr}, says {broker}"
                wait_until(partial(is_so, broker), what)

    def wait_until_whole(self, at: TopicPartition) -> None:
        """Wait until all replicas are in the ISR."""
        wait_until(lambda: self.partition(at) is not None, f"{at} is there")
        found = self.partition(at)
        assert found is not None
        self.wait_for(at, isr=found.replicas)

    def elect(self, at: TopicPartition, kind: int = PREFERRED) -> int:
        """Ask for an election once; return the error code."""
        wanted = TopicPartitions(topic=at.topic, partitions=[at.partition])
        request = ElectLeadersRequest(
            election_type=kind, topic_partitions=[wanted], timeout_ms=60_000
        )
        with BrokerConnection(self.node(SECOND).port) as connection:
            answer = connection.ask(request, ElectLeadersResponse)
        results = [
            each.error_code
            for topic in answer.replica_election_results
            for each in topic.partition_result
        ]
        return results[0] if results else answer.error_code

    # Logs.

    def folder(self, broker: int, at: TopicPartition) -> Path:
        return self.node(broker).data_dir / f"{at.topic}-{at.partition}"

    def batches(self, broker: int, at: TopicPartition) -> list[Batch]:
        return list(read_batches(self.folder(broker, at)))

    def wait_until_equal(self, at: TopicPartition, brokers: Sequence[int] = BROKERS) -> None:
        """Wait until these replicas have the same batches."""

        def are_equal() -> bool:
            first, *others = (self.batches(broker, at) for broker in brokers)
            return all(each == first for each in others)

        wait_until(are_equal, f"the replicas of {at} are equal")


def read_batches(folder: Path) -> Iterator[Batch]:
    """Yield the batches in the segment files of a log; a torn last one is left out."""
    for file in sorted(folder.glob("*.log")):
        data = memoryview(file.read_bytes())
        position = 0
        while position + HEADER_BYTES <= len(data):
            header = parse_header(data[position:])
            if position + header.size > len(data):
                return
            yield Batch(
                header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc
            )
            position += header.size
