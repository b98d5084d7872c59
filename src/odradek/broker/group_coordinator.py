"""The group coordinator of this node: the shards of ``__consumer_offsets`` that it leads.

What a group is and how it rebalances is decided in ``odradek.coordinator.group``; this gives its
shards their settings, shows them the cluster's topics, and tells them what changes. None of that
is imported before the topic exists: a node that starts has no groups yet.
"""

from typing import TYPE_CHECKING

from odradek.broker.coordinator_runtime import CoordinatorRuntime
from odradek.broker.internal_topics import GROUP_TOPIC
from odradek.core.config.group_bounds import clamp
from odradek.core.config.group_protocols import REBALANCE_PROTOCOLS, consumer_assignors
from odradek.metadata.config_resource import ResourceType
from odradek.metadata.features import GROUP_VERSION
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.protocol.message import Message
from odradek.records import CompressionType

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.coordinator.group.settings import GroupSettings
    from odradek.coordinator.group.shard import GroupShard
    from odradek.coordinator.group.topic_view import ImageTopics
    from odradek.core.config import BrokerConfig


class GroupCoordinator(CoordinatorRuntime["GroupShard"]):
    def __init__(self, broker: "BrokerServer") -> None:
        super().__init__(broker, GROUP_TOPIC, self._new_shard, _decode, self._offsets_codec)
        self.settings: GroupSettings | None = None
        self._topics: ImageTopics | None = None

    @property
    def is_consumer_protocol_on(self) -> bool:
        """Whether there are consumer groups: both the cluster and this broker must say so."""
        return self._broker.image.features.get(
            GROUP_VERSION, 0
        ) > 0 and "consumer" in self._broker.config.elements(REBALANCE_PROTOCOLS)

    def on_update(self, update: MetadataUpdate) -> None:
        """Hear of a new image: other topics, topics that are gone, other settings."""
        if self._topics is None or self.settings is None:
            return  # no shards yet
        self._topics.advance(update.image)
        gone = [(topic.name, topic.topic_id) for topic in update.delta.topics_deleted]
        if gone:
            self.tell_all(lambda shard, _now: shard.on_topics_deleted(gone))
        kinds = {resource.type for resource in update.delta.configs_changed}
        if kinds & {ResourceType.BROKER, ResourceType.GROUP}:
            _set(self.settings, self._broker.config, update.image)
            for shard in self.loaded_shards():
                shard.on_settings_changed()

    def _new_shard(self, _leader_epoch: int) -> "GroupShard":
        from odradek.coordinator.group.settings import GroupSettings
        from odradek.coordinator.group.shard import GroupShard
        from odradek.coordinator.group.topic_view import ImageTopics

        if self.settings is None or self._topics is None:
            self.settings = GroupSettings()
            _set(self.settings, self._broker.config, self._broker.image)
            self._topics = ImageTopics(self._broker.image)
        return GroupShard(self.settings, self._topics, self._broker.random)

    def _offsets_codec(self) -> CompressionType:
        return CompressionType(self._broker.config.integer("offsets.topic.compression.codec"))


def _set(settings: "GroupSettings", config: "BrokerConfig", image: ClusterImage) -> None:
    """Bring settings that shards already have up to date with the broker's configs."""
    from odradek.coordinator.group.consumer.config import ConsumerGroupConfig, MigrationPolicy

    classic = settings.classic
    classic.group_min_session_timeout_ms = config.integer("group.min.session.timeout.ms")
    classic.group_max_session_timeout_ms = config.integer("group.max.session.timeout.ms")
    classic.group_initial_rebalance_delay_ms = config.integer("group.initial.rebalance.delay.ms")
    classic.group_max_size = config.integer("group.max.size")
    policy = config.text("group.consumer.migration.policy") or "bidirectional"
    settings.consumer = ConsumerGroupConfig(
        session_timeout_ms=config.integer("group.consumer.session.timeout.ms"),
        heartbeat_interval_ms=config.integer("group.consumer.heartbeat.interval.ms"),
        assignment_interval_ms=config.integer("group.consumer.assignment.interval.ms"),
        group_size_max=config.integer("group.consumer.max.size"),
        assignors=consumer_assignors(config),
        migration_policy=MigrationPolicy(policy.lower()),
        regex_refresh_interval_ms=config.integer("group.consumer.regex.refresh.interval.ms"),
        classic=classic,
    )
    settings.overrides = {
        resource.name: clamp(configs, config)
        for resource, configs in image.configs.items()
        if resource.type is ResourceType.GROUP
    }
    settings.offset_metadata_bytes_max = config.integer("offset.metadata.max.bytes")
    settings.offsets_retention_ms = config.integer("offsets.retention.minutes") * 60_000
    settings.offsets_retention_check_interval_ms = config.integer(
        "offsets.retention.check.interval.ms"
    )


def _decode(key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
    from odradek.coordinator.group.record_types import decode_group_record

    return decode_group_record(key, value)
