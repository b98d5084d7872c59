"""The keys of an image's sections, and which of them records have touched so far."""

from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.core.ids import Uuid
from odradek.metadata.config_resource import ConfigResource


class TopicIdPartition(NamedTuple):
    topic_id: Uuid
    partition: int


class ScramKey(NamedTuple):
    mechanism: int
    name: str


class QuotaKey(NamedTuple):
    """``entity`` is (type, name) pairs in order of type; name None is the default of the type."""

    entity: tuple[tuple[str, str | None], ...]
    key: str


@dataclass(slots=True)
class Touched:
    """Outlives the drafts: an aborted transaction discards them, but not what came before it.

    So a key may be here although nothing about it changed; the other way round never happens.
    """

    features: set[str] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    topics: set[Uuid] = field(default_factory=set)
    partitions: set[TopicIdPartition] = field(default_factory=set)
    configs: set[ConfigResource] = field(default_factory=set)
    acls: set[Uuid] = field(default_factory=set)
    scram: set[ScramKey] = field(default_factory=set)
    quotas: set[QuotaKey] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
