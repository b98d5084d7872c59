"""What every plan reads: the image, the settings, and questions that need both."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from odradek.controller.partition_index import PartitionIndex
from odradek.controller.settings import ConfigRules, ControllerSettings
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import (
    CLUSTER_DEFAULTS,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    PartitionImage,
    TopicImage,
    VersionedRecord,
    versioned,
)
from odradek.metadata.partition import DIRECTORY_UNASSIGNED
from odradek.metadata.touched import TopicIdPartition
from odradek.protocol.message import Message

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"


class ClusterView(NamedTuple):
    image: ClusterImage
    settings: ControllerSettings
    rules: ConfigRules
    partition_index: PartitionIndex

    @property
    def metadata_version(self) -> int:
        level = self.image.metadata_version
        assert level is not None, "the controller is not activated: no bootstrap records"
        return level

    def versioned(self, message: Message) -> VersionedRecord:
        return versioned(message, self.metadata_version)

    def is_active(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def active_brokers(self) -> Iterator[int]:
        return (each.broker_id for each in self.image.brokers.values() if each.active)

    def check_broker_epoch(self, broker_id: int, epoch: int) -> BrokerImage:
        """Return the broker; refuse one that has registered again since, or never did."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            known = "none" if broker is None else broker.epoch
            problem = f"broker {broker_id} sent epoch {epoch}, the registered one is {known}"
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, problem)
        return broker

    def default_directory(self, broker_id: int) -> Uuid:
        broker = self.image.brokers.get(broker_id)
        return DIRECTORY_UNASSIGNED if broker is None else broker.default_directory

    def partitions(
        self, keys: Iterable[TopicIdPartition]
    ) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """Yield what the image has under keys of its index."""
        for topic_id, number in keys:
            topic = self.image.topics_by_id[topic_id]
            yield topic, number, topic.partitions[number]

    def min_isr(self, topic: TopicImage) -> int:
        """The effective min.insync.replicas: never more than the topic has replicas."""
        value = self._topic_config(topic.name, MIN_INSYNC_REPLICAS)
        configured = self.settings.min_insync_replicas if value is None else int(value)
        return min(configured, len(topic.partitions[0].replicas))

    def unclean_election_allowed(self, topic_name: str) -> bool:
        value = self._topic_config(topic_name, UNCLEAN_LEADER_ELECTION)
        return self.settings.unclean_leader_election if value is None else value.lower() == "true"

    def _topic_config(self, topic_name: str, name: str) -> str | None:
        """Look where Kafka looks: the topic, this node, all brokers. None: server.properties."""
        places = (
            ConfigResource.topic(topic_name),
            ConfigResource.broker(self.settings.node_id),
            CLUSTER_DEFAULTS,
        )
        for place in places:
            value = self.image.config_of(place).get(name)
            if value is not None:
                return value
        return None
