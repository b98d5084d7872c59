"""The settings of group coordination; their owner keeps them up to date with the configs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.coordinator.group.classic.config import GroupConfig
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig


@dataclass(slots=True)
class GroupSettings:
    """``overrides`` are the configs of GROUP resources, by group id."""

    classic: GroupConfig = field(default_factory=GroupConfig)
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    overrides: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    offsets_retention_check_interval_ms: int = 600_000

    def consumer_for(self, group_id: str) -> ConsumerGroupConfig:
        overrides = self.overrides.get(group_id)
        return self.consumer.with_overrides(overrides) if overrides else self.consumer
