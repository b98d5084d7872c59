"""The levels at which a broker is configured, and what they come to together.

From the strongest: what was set for this broker while it ran, what was set for all brokers, what
its file, environment and options said, and the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.core.config.definitions import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    TOPIC_SYNONYMS,
    broker_synonyms,
    listener_base_name,
)
from odradek.core.config.values import ConfigSource, ConfigValue, format_value, parse_value


@dataclass(frozen=True, slots=True)
class BrokerLevels:
    """The texts of one broker's configs, level by level, without the defaults."""

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    dynamic_broker: Mapping[str, str] = field(default_factory=dict)
    # A topic mostly has no configs of its own, and a request may name ten thousand topics: what
    # these levels say about one is worked out once. Filled by those who use them, never emptied.
    topic_values: dict[str, ConfigValue | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    topic_entries: dict[str, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def strongest_first(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        return (
            (ConfigSource.DYNAMIC_BROKER_CONFIG, self.dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.dynamic_default),
            (ConfigSource.STATIC_BROKER_CONFIG, self.static),
        )

    def merge(self) -> dict[str, str]:
        """Return the texts that count.

        A dynamic ``log.retention.ms`` takes static hours with it, as in Kafka: they would
        otherwise be shown as if they still counted.
        """
        merged = dict(self.static)
        for level in (self.dynamic_default, self.dynamic_broker):
            for name, text in level.items():
                if listener_base_name(name) is None:
                    for synonym in broker_synonyms(name):
                        merged.pop(synonym, None)
                merged[name] = text
        return merged


def resolve_topic_values(
    levels: BrokerLevels, topic: Mapping[str, str]
) -> dict[str, ConfigValue | None]:
    """Return the value of every topic config; only ``internal.segment.bytes`` may be None."""
    of_broker = levels.topic_values
    if not of_broker:
        of_broker.update((name, _resolve(levels, name)) for name in TOPIC_CONFIGS)
    values = of_broker.copy()
    for name, text in topic.items():
        definition = TOPIC_CONFIGS.get(name)
        if definition is not None:
            values[name] = parse_value(name, definition.type, text)
    return values


def resolve_topic_configs(levels: BrokerLevels, topic: Mapping[str, str]) -> dict[str, str]:
    """Return the text of every topic config, in the units of the topic."""
    values = resolve_topic_values(levels, topic)
    return {name: format_value(value) for name, value in values.items() if value is not None}


def log_config_values(levels: BrokerLevels, topic: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Return the topic configs under the names of a log's settings: ``segment_bytes`` and so on."""
    values = resolve_topic_values(levels, topic)
    small = values.pop("internal.segment.bytes")
    if small is not None:
        values["segment.bytes"] = small
    return {name.replace(".", "_"): value for name, value in values.items() if value is not None}


def _resolve(levels: BrokerLevels, name: str) -> ConfigValue | None:
    """Return what a topic has that says nothing itself."""
    definition = TOPIC_CONFIGS[name]
    for _, level in levels.strongest_first():
        for synonym in TOPIC_SYNONYMS.get(name, ()):
            if synonym.name in level:
                kind = BROKER_CONFIGS[synonym.name].type
                value = parse_value(synonym.name, kind, level[synonym.name])
                return _convert(name, value, synonym.milliseconds)
    return definition.default


def _convert(name: str, value: ConfigValue, milliseconds: int) -> ConfigValue:
    if name == "retention.ms" and isinstance(value, int) and value < 0:
        return -1  # a broker may say "for ever" by any negative number, a topic by -1 alone
    if milliseconds == 1:
        return value
    assert isinstance(value, int)
    return value * milliseconds
