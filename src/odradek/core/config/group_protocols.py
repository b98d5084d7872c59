"""What a broker offers to groups: which protocols are on, and who assigns partitions."""

from collections.abc import Mapping
from typing import Final

from odradek.core.config.broker_config import BrokerConfig

REBALANCE_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
CONSUMER_ASSIGNORS: Final = "group.consumer.assignors"

_ASSIGNOR_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Kafka takes its own assignors by name or by class."""

_ASSIGNORS: Final = frozenset(_ASSIGNOR_CLASSES.values())


def consumer_assignors(config: BrokerConfig) -> tuple[str, ...]:
    """Return the assignors of consumer groups by name, the default first."""
    given = config.elements(CONSUMER_ASSIGNORS)
    return tuple(_ASSIGNOR_CLASSES.get(each, each) for each in given)


def unknown_assignors(config: BrokerConfig) -> tuple[str, ...]:
    return tuple(each for each in consumer_assignors(config) if each not in _ASSIGNORS)
