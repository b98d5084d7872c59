"""What DescribeConfigs answers: each config with its value, where it comes from, and its synonyms.

The order of synonyms is the order in which they count. Some answers surprise, and are Kafka's: a
broker config that is unknown is shown as sensitive, because it may be a secret; a topic whose
retention comes from its broker's static *hours* is said to have the default.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import dropwhile
from typing import NamedTuple

from odradek.core.config.definition import ConfigDefinition
from odradek.core.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    GROUP_SYNONYMS,
    TOPIC_CONFIGS,
    TOPIC_SYNONYMS,
    broker_synonyms,
    find_broker_definition,
)
from odradek.core.config.levels import BrokerLevels, resolve_topic_configs
from odradek.core.config.values import (
    ConfigSource,
    ConfigType,
    UpdateMode,
    format_value,
    parse_value,
)


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One line of an answer, field by field as it goes over the wire."""

    name: str
    value: str | None
    """None if there is none, or if it is sensitive."""
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    type: ConfigType
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(
    levels: BrokerLevels, topic: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Describe the configs of a topic, all of them or those asked for, sorted by name."""
    entries = dict(_without_own_configs(levels))
    if topic:
        texts = {**topic, **resolve_topic_configs(levels, topic)}
        entries |= {name: _topic_entry(levels, name, texts.get(name), topic) for name in topic}
    asked = set(names or ()) or entries.keys()
    # Those of the broker are sorted already.
    return [entries[name] for name in (sorted(entries) if topic else entries) if name in asked]


def _without_own_configs(levels: BrokerLevels) -> dict[str, ConfigEntry]:
    """Return what is shown of a topic that has no configs of its own, sorted by name."""
    found: dict[str, ConfigEntry] = levels.topic_entries
    if not found:
        texts = resolve_topic_configs(levels, {})
        names = sorted(_shown(TOPIC_CONFIGS))
        found.update((name, _topic_entry(levels, name, texts.get(name), {})) for name in names)
    return found


def _topic_entry(
    levels: BrokerLevels, name: str, text: str | None, topic: Mapping[str, str]
) -> ConfigEntry:
    broker_names = TOPIC_SYNONYMS.get(name, ())
    synonyms = _synonyms(broker_names[0].name, levels) if broker_names else ()
    if name in topic:
        own = ConfigSynonym(name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG)
        synonyms = (own, *synonyms)
    return _entry(name, text, TOPIC_CONFIGS.get(name), synonyms)


def describe_broker(levels: BrokerLevels, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """Describe the configs of one broker, all of them or those asked for, sorted by name."""
    texts = levels.merge()

    def entry(name: str) -> ConfigEntry:
        definition = find_broker_definition(name)
        own = BROKER_CONFIGS.get(name)
        text = texts.get(name)
        if own is not None and not own.dynamic_only:
            text = own.default_text if text is None else _normalise(own, text)
        return _entry(
            name,
            text,
            definition,
            _synonyms(name, levels),
            read_only=_is_read_only(name),
            documentation=own.documentation if own else None,
        )

    return _entries(entry, {*_shown(BROKER_CONFIGS), *texts}, names)


def describe_broker_defaults(
    dynamic_default: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Describe what is set for all brokers: the broker resource without a name."""

    def entry(name: str) -> ConfigEntry:
        text = dynamic_default[name]
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        own = BROKER_CONFIGS.get(name)
        return _entry(
            name,
            text,
            find_broker_definition(name),
            (ConfigSynonym(name, text, source),),
            read_only=_is_read_only(name),
            documentation=own.documentation if own else None,
        )

    return _entries(entry, set(dynamic_default), names)


def describe_group(
    levels: BrokerLevels, group: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Describe the configs of a group, which fall back to those of its broker."""
    broker = levels.merge()

    def entry(name: str) -> ConfigEntry:
        definition = GROUP_CONFIGS.get(name)
        synonyms: tuple[ConfigSynonym, ...] = ()
        text = None
        if definition is not None:
            text = definition.default_text
            if synonym := GROUP_SYNONYMS.get(name):
                text = broker.get(synonym, BROKER_CONFIGS[synonym].default_text)
                synonyms = _synonyms(synonym, levels)
            elif text is not None:
                synonyms = (ConfigSynonym(name, text, ConfigSource.DEFAULT_CONFIG),)
        if name in group:
            text = _normalise(definition, group[name]) if definition else group[name]
            own = ConfigSynonym(name, text, ConfigSource.DYNAMIC_GROUP_CONFIG)
            synonyms = (own, *synonyms)
        return _entry(name, text, definition, synonyms)

    return _entries(entry, {*_shown(GROUP_CONFIGS), *group}, names)


def describe_client_metrics(
    subscription: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Describe a subscription to client metrics."""

    def entry(name: str) -> ConfigEntry:
        definition = CLIENT_METRICS_CONFIGS[name]
        if name not in subscription:
            return _entry(name, definition.default_text, definition, ())
        text = _normalise(definition, subscription[name])
        synonym = ConfigSynonym(name, text, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)
        return _entry(name, text, definition, (synonym,))

    return _entries(entry, set(CLIENT_METRICS_CONFIGS), names)


def _shown(definitions: Mapping[str, ConfigDefinition]) -> Iterable[str]:
    return (
        name
        for name, definition in definitions.items()
        if not (definition.internal or definition.dynamic_only or definition.is_new)
    )


def _entries(
    entry: Callable[[str], ConfigEntry], present: set[str], names: Iterable[str] | None
) -> list[ConfigEntry]:
    # An empty list of names asks for all, like none at all.
    asked = set(names or ()) or present
    return [entry(name) for name in sorted(present & asked)]


def _entry(
    name: str,
    text: str | None,
    definition: ConfigDefinition | None,
    synonyms: tuple[ConfigSynonym, ...],
    *,
    read_only: bool = False,
    documentation: str | None = None,
) -> ConfigEntry:
    sensitive = definition is None or definition.sensitive
    if sensitive:
        synonyms = tuple(ConfigSynonym(each.name, None, each.source) for each in synonyms)
    if documentation is None and definition is not None and definition.name == name:
        documentation = definition.documentation
    return ConfigEntry(
        name=name,
        value=None if sensitive else text,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=read_only,
        is_sensitive=sensitive,
        type=definition.type if definition else ConfigType.UNKNOWN,
        synonyms=synonyms,
        documentation=documentation,
    )


def _synonyms(name: str, levels: BrokerLevels) -> tuple[ConfigSynonym, ...]:
    """Return what is set for a broker config under any of its names, and the defaults."""
    names = broker_synonyms(name)
    found = [
        ConfigSynonym(each, level[each], source)
        for source, level in levels.strongest_first()
        for each in names
        if each in level
    ]
    for each in names:
        definition = BROKER_CONFIGS.get(each)
        if definition and not definition.dynamic_only and definition.default_text is not None:
            found.append(ConfigSynonym(each, definition.default_text, ConfigSource.DEFAULT_CONFIG))
    # What only a synonym says comes after the config's own name or not at all.
    return tuple(dropwhile(lambda synonym: synonym.name != name, found))


def _is_read_only(name: str) -> bool:
    definition = BROKER_CONFIGS.get(name)
    return definition is None or definition.update_mode is UpdateMode.READ_ONLY


def _normalise(definition: ConfigDefinition, text: str) -> str:
    """Return ``text`` as Kafka prints its value: ``TRUE`` is ``true``, ``0.50`` is ``0.5``."""
    return format_value(parse_value(definition.name, definition.type, text))
