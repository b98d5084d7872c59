"""Every config there is, by what it belongs to and by name; and which names mean the same.

A topic that does not set ``segment.ms`` takes it from its broker, where it is ``log.roll.ms`` or,
in hours, ``log.roll.hours``. The first that is set counts, level by level: a dynamic
``log.retention.ms`` beats a static one, and a static ``log.retention.ms`` beats static hours.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.core.config.definition import ConfigDefinition, read_table
from odradek.core.config.tables import (
    groups,
    logs,
    network,
    quorum,
    replication,
    security,
    subscriptions,
    tiered,
    topics,
    transactions,
)
from odradek.core.config.values import ConfigResourceType

_BROKER_TABLES: Final = (
    network.TABLE,
    logs.TABLE,
    replication.TABLE,
    quorum.TABLE,
    groups.TABLE,
    transactions.TABLE,
    security.TABLE,
    tiered.TABLE,
)

TOPIC_CONFIGS: Final[Mapping[str, ConfigDefinition]] = read_table(topics.TABLE)
BROKER_CONFIGS: Final[Mapping[str, ConfigDefinition]] = {
    name: row for table in _BROKER_TABLES for name, row in read_table(table).items()
}
GROUP_CONFIGS: Final[Mapping[str, ConfigDefinition]] = read_table(subscriptions.GROUP_TABLE)
CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigDefinition]] = read_table(
    subscriptions.CLIENT_METRICS_TABLE
)
CONFIGS: Final[Mapping[ConfigResourceType, Mapping[str, ConfigDefinition]]] = {
    ConfigResourceType.TOPIC: TOPIC_CONFIGS,
    ConfigResourceType.BROKER: BROKER_CONFIGS,
    ConfigResourceType.GROUP: GROUP_CONFIGS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}


class Synonym(NamedTuple):
    name: str
    milliseconds: int = 1
    """What one unit of the broker's config is in that of the topic."""


_MINUTE: Final = 60_000
_HOUR: Final = 3_600_000

TOPIC_SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR)),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR)),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE),
        Synonym("log.retention.hours", _HOUR),
    ),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    **{
        topic: (Synonym(broker),)
        for topic, broker in {
            "segment.index.bytes": "log.index.size.max.bytes",
            "flush.messages": "log.flush.interval.messages",
            "max.message.bytes": "message.max.bytes",
            "delete.retention.ms": "log.cleaner.delete.retention.ms",
            "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
            "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
            "file.delete.delay.ms": "log.segment.delete.delay.ms",
            "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        }.items()
    },
    **{
        name: (Synonym(name),)
        for name in (
            "unclean.leader.election.enable",
            "min.insync.replicas",
            "compression.type",
            "compression.gzip.level",
            "compression.lz4.level",
            "compression.zstd.level",
        )
    },
    **{
        name: (Synonym(f"log.{name}"),)
        for name in (
            "segment.bytes",
            "retention.bytes",
            "index.interval.bytes",
            "cleanup.policy",
            "preallocate",
            "message.timestamp.type",
            "message.timestamp.before.max.ms",
            "message.timestamp.after.max.ms",
            "local.retention.ms",
            "local.retention.bytes",
            "remote.copy.lag.ms",
            "remote.copy.lag.bytes",
        )
    },
}
"""A topic config, and the broker configs it falls back to, the first first."""

GROUP_SYNONYMS: Final[Mapping[str, str]] = {
    **{name: f"group.{name}" for name in GROUP_CONFIGS if f"group.{name}" in BROKER_CONFIGS},
    "streams.assignor.name": "group.streams.assignors",
}

_FAMILIES: Final = [
    tuple(synonym.name for synonym in TOPIC_SYNONYMS[name])
    for name in ("segment.ms", "segment.jitter.ms", "retention.ms")
]
_BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    # One way only: the scheduler's interval is the default of the other.
    "log.flush.interval.ms": tuple(synonym.name for synonym in TOPIC_SYNONYMS["flush.ms"]),
    **{name: family for family in _FAMILIES for name in family},
}
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
_MECHANISM_CONFIGS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Return the broker configs that mean the same as ``name``, in the order in which they count.

    ``listener.name.internal.ssl.key.password`` falls back to ``ssl.key.password``; with SASL the
    mechanism stands in between: ``listener.name.internal.plain.sasl.jaas.config``.
    """
    if name in _BROKER_SYNONYMS:
        return _BROKER_SYNONYMS[name]
    base = listener_base_name(name)
    return (name,) if base is None else (name, base)


def listener_base_name(name: str) -> str | None:
    """Return what a config with a listener's prefix is without it, or None if it has none."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match is None:
        return None
    base = match[1]
    return next((config for config in _MECHANISM_CONFIGS if base.endswith(config)), base)


def find_broker_definition(name: str) -> ConfigDefinition | None:
    """Return the definition of a broker config, also of one with a listener's prefix."""
    for synonym in (name, *broker_synonyms(name)):
        if definition := BROKER_CONFIGS.get(synonym):
            return definition
    return None
