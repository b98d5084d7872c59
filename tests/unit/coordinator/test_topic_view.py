"""The cluster image as groups see it: versions that move only when an answer may differ."""

from odradek.coordinator.group.topic_view import ImageTopics, metadata_hash
from odradek.core.ids import Uuid
from odradek.metadata.image import ClusterImage, MetadataProvenance
from odradek.protocol.generated.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from odradek.protocol.message import Message

ORDERS = Uuid(b"o" * 16)
PAYMENTS = Uuid(b"p" * 16)


def partition(topic_id: Uuid, number: int, replicas: list[int]) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=number,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
    )


class Cluster:
    def __init__(self) -> None:
        self.image = ClusterImage()
        self.offset = 0
        self.image = self._next(
            RegisterBrokerRecord(broker_id=1, rack="a", broker_epoch=1),
            RegisterBrokerRecord(broker_id=2, rack="b", broker_epoch=2),
            TopicRecord(name="orders", topic_id=ORDERS),
            partition(ORDERS, 0, [2, 1]),
            partition(ORDERS, 1, [1]),
        )
        self.topics = ImageTopics(self.image)

    def _next(self, *records: Message) -> ClusterImage:
        self.offset += len(records)
        return self.image.apply(list(records), MetadataProvenance(last_offset=self.offset))

    def apply(self, *records: Message) -> tuple[int, int]:
        """Return by how much the version and the version of names moved."""
        before = self.topics.version, self.topics.names_version
        self.image = self._next(*records)
        self.topics.advance(self.image)
        return self.topics.version - before[0], self.topics.names_version - before[1]

    def hash(self) -> int:
        return metadata_hash(self.topics, ["orders", "payments"])


def test_topics_by_name_and_by_id() -> None:
    topics = Cluster().topics
    orders = topics.find("orders")
    assert orders is not None
    assert (orders.topic_id, orders.name, orders.partition_count) == (ORDERS, "orders", 2)
    assert topics.find_by_id(ORDERS) is orders
    assert topics.find("payments") is None
    assert topics.find_by_id(PAYMENTS) is None
    assert list(topics.names()) == ["orders"]
    assert topics.version == 5


def test_what_groups_do_not_ask_about_moves_nothing() -> None:
    cluster = Cluster()
    config = ConfigRecord(
        resource_type=2, resource_name="orders", name="retention.ms", value="1000"
    )
    assert cluster.apply(config) == (0, 0)


def test_a_change_of_leaders_moves_the_version_and_not_the_hash() -> None:
    cluster = Cluster()
    before = cluster.hash()
    moved = cluster.apply(PartitionChangeRecord(topic_id=ORDERS, partition_id=0, leader=1))
    assert moved == (1, 0)
    assert cluster.hash() == before


def test_partitions_topics_and_racks_change_the_hash() -> None:
    cluster = Cluster()
    hashes = {cluster.hash()}
    assert cluster.apply(partition(ORDERS, 2, [1])) == (1, 0)
    hashes.add(cluster.hash())
    created = cluster.apply(
        TopicRecord(name="payments", topic_id=PAYMENTS), partition(PAYMENTS, 0, [1])
    )
    assert created[1] > 0
    hashes.add(cluster.hash())
    cluster.apply(RegisterBrokerRecord(broker_id=2, rack="c", broker_epoch=9))
    hashes.add(cluster.hash())
    assert cluster.apply(RemoveTopicRecord(topic_id=PAYMENTS)) == (1, 0)
    hashes.add(cluster.hash())
    assert len(hashes) == 5
    cluster.apply(RemoveTopicRecord(topic_id=ORDERS))
    assert cluster.hash() == 0
    assert cluster.topics.find("orders") is None
