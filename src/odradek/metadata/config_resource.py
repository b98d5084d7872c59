"""What dynamic configs belong to: topics, brokers, client metrics, groups."""

from enum import IntEnum
from typing import Final, NamedTuple


class ResourceType(IntEnum):
    """What a config belongs to, in Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, _value: object) -> "ResourceType":
        return cls.UNKNOWN


class ConfigResource(NamedTuple):
    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> "ConfigResource":
        return cls(ResourceType.BROKER, str(broker_id))


CLUSTER_DEFAULTS: Final = ConfigResource(ResourceType.BROKER, "")
"""Dynamic configs of all brokers at once: a broker resource without a name."""
