"""The settings of consumer groups, from the broker's configs and those of one group."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from odradek.coordinator.group.classic.config import GroupConfig


class MigrationPolicy(Enum):
    """``group.consumer.migration.policy``: which way groups may change their protocol online."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


_OVERRIDES: Final = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """Defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """How long a target assignment stays before the next is computed; 0 computes at once."""
    group_size_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """Names that members may ask for; the first is the default."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000
    classic: GroupConfig = field(default_factory=GroupConfig)
    """For members that speak the classic protocol, and groups that go back to it."""

    def with_overrides(self, configs: Mapping[str, int]) -> "ConsumerGroupConfig":
        """Return these settings with the configs of a GROUP resource; others are ignored."""
        known = {_OVERRIDES[name]: value for name, value in configs.items() if name in _OVERRIDES}
        return replace(self, **known) if known else self  # type: ignore[arg-type]  # ints all
