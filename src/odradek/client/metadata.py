"""What a client knows of a cluster: brokers, topics, who leads what. Replaced piece by piece.

A leader is believed only if its epoch is not older than the one known: brokers learn of changes at
different times, and an answer of one that lags must not bring an old leader back (KIP-320).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.core.ids import ZERO_UUID, TopicPartition, Uuid
from odradek.protocol.generated.describe_cluster import DescribeClusterResponse
from odradek.protocol.generated.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_LEADER: Final = -1
NO_EPOCH: Final = -1


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class TopicMetadata(NamedTuple):
    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]


class ClusterMetadata:
    """Changed only by ``update``, ``update_controllers`` and ``on_leader``."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.topic_errors: dict[str, int] = {}
        self._names: dict[Uuid, str] = {}

    def update(self, response: MetadataResponse, *, is_complete: bool) -> None:
        """Take in an answer; ``is_complete`` if all topics were asked for: others are gone."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        }
        known = {} if is_complete else dict(self.topics)
        if is_complete:
            self.topic_errors = {}
        for topic in response.topics:
            name = topic.name or self._names.get(topic.topic_id) or ""
            self.topic_errors.pop(name, None)
            if topic.error_code:
                self.topic_errors[name] = topic.error_code
                known.pop(name, None)
            else:
                known[name] = self._merged(name, topic)
        self.topics = known
        self._names = {topic.topic_id: topic.name for topic in known.values()}

    def update_controllers(self, response: DescribeClusterResponse) -> None:
        """Take in which controllers there are, in the place of brokers, and the active one."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            each.broker_id: BrokerAddress(each.broker_id, each.host, each.port, each.rack)
            for each in response.brokers
        }

    def _merged(self, name: str, topic: MetadataResponseTopic) -> TopicMetadata:
        old = self.topics.get(name)
        is_same = old is not None and old.topic_id == topic.topic_id
        partitions = {}
        for each in topic.partitions:
            new = _partition(each)
            before = old.partitions.get(each.partition_index) if old and is_same else None
            is_older = before is not None and NO_EPOCH < new.leader_epoch < before.leader_epoch
            partitions[each.partition_index] = before if before and is_older else new
        return TopicMetadata(name, topic.topic_id, topic.is_internal, partitions)

    def on_leader(self, partition: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Hear from a broker who leads a partition now; True if that is news (KIP-951)."""
        topic = self.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        if topic is None or known is None or leader_epoch <= known.leader_epoch:
            return False
        partitions = dict(topic.partitions)
        partitions[partition.partition] = known._replace(leader=leader, leader_epoch=leader_epoch)
        self.topics[partition.topic] = topic._replace(partitions=partitions)
        return True

    def find(self, partition: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def topic_id(self, name: str) -> Uuid:
        """Return a topic's id; all zeros where the broker is too old to have told one."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)


def _partition(each: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        each.leader_id,
        each.leader_epoch,
        tuple(each.replica_nodes),
        tuple(each.isr_nodes),
        tuple(each.offline_replicas),
    )
