"""Configs that follow from the size of a cluster, for nodes that are started without a file."""

from collections.abc import Mapping
from typing import Final

COPIES_MAX: Final = 3
"""As many as Kafka's default; more would not help a cluster of this kind."""


def internal_topics(brokers: int) -> Mapping[str, str]:
    """Return how often the topics that brokers keep for themselves are copied.

    Kafka's defaults need three brokers: with fewer, no group and no transaction would ever find a
    coordinator.
    """
    copies = min(brokers, COPIES_MAX)
    needed = max(copies - 1, 1)
    return {
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(needed),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(needed),
    }
