"""Changes of configs while the cluster runs: what is refused, and in which words.

The codes and messages are Kafka's, because its tools show them: a topic's config is refused with
INVALID_CONFIG, a broker's with INVALID_REQUEST, where Kafka regrets it and leaves it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from odradek.core.config.allowed import parse_allowed
from odradek.core.config.broker_config import BrokerConfig, broker_definitions
from odradek.core.config.client_match import parse_client_match
from odradek.core.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    listener_base_name,
)
from odradek.core.config.group_bounds import find_refusals
from odradek.core.config.levels import BrokerLevels, resolve_topic_values
from odradek.core.config.loading import reconfigure
from odradek.core.config.values import (
    ConfigError,
    UpdateMode,
    parse_value,
)
from odradek.core.errors import ApiError, ErrorCode

_SMALL_SEGMENT: Final = replace(TOPIC_CONFIGS["segment.bytes"], allowed=parse_allowed("1.."))
_CLUSTER_WIDE_LISTENER_CONFIGS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
_SECURITY_CONFIGS: Final = frozenset(
    f"ssl.{what}"
    for what in (
        *("keystore.type", "keystore.location", "keystore.password", "key.password"),
        *("keystore.key", "keystore.certificate.chain"),
        *("truststore.type", "truststore.location", "truststore.password"),
        "truststore.certificates",
    )
)
"""Kafka changes these for a listener only, never for all of a broker's at once."""


def validate_topic_config(name: str, value: str, *, small_segments: bool = False) -> None:
    """Raise ApiError(INVALID_CONFIG) if a topic config is unknown or may not have this value."""
    definition = TOPIC_CONFIGS.get(name)
    if definition is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if small_segments and name == "segment.bytes":
        definition = _SMALL_SEGMENT
    try:
        definition.parse(value)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from error


def validate_topic_configs(
    configs: Mapping[str, str | None], levels: BrokerLevels, *, small_segments: bool = False
) -> None:
    """Check all that is to be set for a topic: each, and that they fit together.

    Raises:
        ApiError: INVALID_CONFIG, with the words of Kafka.
    """
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        message = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    texts = {name: value for name, value in configs.items() if value is not None}
    for name in texts:
        if name not in TOPIC_CONFIGS:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    for name, text in texts.items():
        validate_topic_config(name, text, small_segments=small_segments)
    values = resolve_topic_values(levels, texts)
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        message = (
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most})"
        )
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    if values["remote.storage.enable"]:
        message = (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
        raise ApiError(ErrorCode.INVALID_CONFIG, message)


def validate_broker_configs(
    configs: Mapping[str, str], config: BrokerConfig, *, per_broker: bool
) -> None:
    """Check all that is to be set dynamically for this broker, or for all of them.

    Raises:
        ApiError: INVALID_REQUEST, with the words of Kafka.
    """
    _refuse_any(
        [name for name in configs if _is_read_only(name)], "Cannot update these configs dynamically"
    )
    _refuse_any(
        [name for name in configs if name in _SECURITY_CONFIGS],
        "These security configs can be dynamically updated only per-listener "
        "using the listener prefix",
    )
    definitions = broker_definitions(config.small_segments)
    try:
        for name, text in configs.items():
            definition = definitions.get(listener_base_name(name) or name)
            if definition is not None:
                definition.parse(text)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from error
    if not per_broker:
        _refuse_any(
            [name for name in configs if _is_per_broker(name)],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    levels = config.levels
    try:
        if per_broker:
            reconfigure(config, levels.dynamic_default, configs)
        else:
            reconfigure(config, configs, levels.dynamic_broker)
    except ConfigError as error:
        message = f"requirement failed: {error.message}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message) from error


def _refuse_any(names: list[str], message: str) -> None:
    if names:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{message}: [{', '.join(sorted(names))}]")


def _is_read_only(name: str) -> bool:
    # An unknown name, or one with a listener's prefix, may be meant for a plugin.
    definition = BROKER_CONFIGS.get(name)
    return definition is not None and definition.update_mode is UpdateMode.READ_ONLY


def _is_per_broker(name: str) -> bool:
    base = listener_base_name(name)
    if base is not None:
        return base not in _CLUSTER_WIDE_LISTENER_CONFIGS
    definition = BROKER_CONFIGS.get(name)
    return definition is not None and definition.update_mode is UpdateMode.PER_BROKER


def validate_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise ApiError(INVALID_CONFIG) if a group config is unknown or may not have its value."""
    for name, text in configs.items():
        definition = GROUP_CONFIGS.get(name)
        if definition is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            definition.parse(text)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from error
    for refusal in find_refusals(configs, broker):
        raise ApiError(ErrorCode.INVALID_CONFIG, refusal)


def validate_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Raise ApiError if a config of a client metrics subscription is unknown or not allowed."""
    for name, text in configs.items():
        definition = CLIENT_METRICS_CONFIGS.get(name)
        if definition is None:
            message = f"Unknown client metrics configuration: {name}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        try:
            value = parse_value(name, definition.type, text)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from error
        if name == "match" and isinstance(value, tuple):
            parse_client_match(value)
        try:
            definition.parse(text)
        except ConfigError as error:
            message = f"Invalid value {value} for {name}, interval must be between 100 and 3600000"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{message} (1 hour)") from error
