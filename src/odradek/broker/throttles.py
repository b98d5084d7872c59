"""The replication throttles of a broker, as the configs have them now.

How fast is a matter of the broker (``leader.replication.throttled.rate``,
``follower.replication.throttled.rate``, ``replica.alter.log.dirs.io.max.bytes.per.second``), which
replicas is one of the topic (``leader.replication.throttled.replicas`` and the follower's). Where
no replica is throttled, nothing is counted or looked up.
"""

from collections.abc import Callable, Iterable
from typing import Final

from odradek.core.config import BrokerConfig
from odradek.metadata.config_resource import ConfigResource, ResourceType
from odradek.metadata.image import ClusterImage
from odradek.replication.quota import ReplicationQuota, throttled_partitions

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class Throttles:
    def __init__(self, config: BrokerConfig, monotonic_ms: Callable[[], int]) -> None:
        self.leader = _quota(config, "replication.quota.window")
        """What is sent to followers."""
        self.follower = _quota(config, "replication.quota.window")
        """What is fetched from leaders."""
        self.log_dirs = _quota(config, "alter.log.dirs.replication.quota.window")
        """What is copied between log directories: all of it counts."""
        self._node_id = config.node_id
        self._monotonic_ms = monotonic_ms
        self.on_config(config)

    def on_config(self, config: BrokerConfig) -> None:
        """Take the rates of a broker's config."""
        self.leader.bound = config.integer("leader.replication.throttled.rate")
        self.follower.bound = config.integer("follower.replication.throttled.rate")
        self.log_dirs.bound = config.integer("replica.alter.log.dirs.io.max.bytes.per.second")

    def on_topics(self, image: ClusterImage, changed: Iterable[ConfigResource]) -> None:
        """Take which replicas are throttled from the configs of topics that have changed."""
        for resource in changed:
            if resource.type is ResourceType.TOPIC:
                configs = image.config_of(resource)
                for quota, name in (
                    (self.leader, LEADER_REPLICAS),
                    (self.follower, FOLLOWER_REPLICAS),
                ):
                    partitions = throttled_partitions(configs.get(name, ""), self._node_id)
                    quota.throttle(resource.name, partitions)

    # Moves between directories.

    def on_copied(self, count: int) -> None:
        self.log_dirs.record(count, self._monotonic_ms())

    def copies_from_ms(self) -> int | None:
        """Return when the next piece may be copied; None is now."""
        now_ms = self._monotonic_ms()
        return self.log_dirs.retry_at_ms(now_ms) if self.log_dirs.is_exceeded(now_ms) else None


def _quota(config: BrokerConfig, window: str) -> ReplicationQuota:
    return ReplicationQuota(
        config.integer(f"{window}.num"), config.integer(f"{window}.size.seconds") * 1_000
    )
