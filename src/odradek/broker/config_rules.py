"""The configs as the logs need them: resolved and typed."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from odradek.core.config import BrokerConfig, log_config_values
from odradek.records import TimestampType
from odradek.replication.leadership import LeaderSettings
from odradek.storage.config import CleanupPolicy, LogConfig
from odradek.storage.log_upkeep import StoreConfig
from odradek.storage.recovery import LogSettings

_TIMESTAMP_TYPES: Final = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


def log_settings(config: BrokerConfig, topic_configs: Mapping[str, str]) -> LogSettings:
    """Return the settings of a topic's logs: its own configs, else the broker's, else defaults."""
    known = LogConfig.__dataclass_fields__
    values: dict[str, Any] = {
        name: value
        for name, value in log_config_values(config.levels, topic_configs).items()
        if name in known and known[name].init
    }
    policies = values["cleanup_policy"]
    values["cleanup_policy"] = frozenset(map(CleanupPolicy, policies))
    values["message_timestamp_type"] = _TIMESTAMP_TYPES[values["message_timestamp_type"]]
    return LogSettings(
        LogConfig(**values), producer_id_expiration_ms=config.producer_id_expiration_ms
    )


class LastLogSettings:
    """Resolves the settings of logs, and keeps the last: thousands of topics have no others."""

    def __init__(self) -> None:
        self._last: tuple[BrokerConfig, Mapping[str, str], LogSettings] | None = None

    def find(self, config: BrokerConfig, topic_configs: Mapping[str, str]) -> LogSettings:
        if self._last is not None:
            known_config, known_configs, settings = self._last
            if known_config is config and known_configs == topic_configs:
                return settings
        settings = log_settings(config, topic_configs)
        self._last = config, topic_configs, settings
        return settings


def leader_settings(config: BrokerConfig, topic_configs: Mapping[str, str]) -> LeaderSettings:
    """Return what rules the partitions of a topic where they are led."""
    values = log_config_values(config.levels, topic_configs)
    minimum = values["min_insync_replicas"]
    assert isinstance(minimum, int)
    return LeaderSettings(
        min_insync_replicas=minimum, lag_ms_max=config.integer("replica.lag.time.max.ms")
    )


def store_config(config: BrokerConfig) -> StoreConfig:
    """Return the settings of all logs together."""
    return StoreConfig(
        **{
            field.name: config.integer(field.name.replace("_", "."))
            for field in fields(StoreConfig)
        }
    )
