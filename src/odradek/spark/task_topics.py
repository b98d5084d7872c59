"""What topics look like to a task that writes, and which are not to be had."""

from collections.abc import Sequence
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.errors import BrokerError, KafkaError
from odradek.client.metadata import NO_LEADER
from odradek.core.errors import ErrorCode
from odradek.spark.sink_routing import TopicPartitions

TOPIC_WAIT_MS_MAX: Final = 5_000
"""How long a topic may take to come into being. Brokers answer the same for one that is being
created and for one that never will be, so every unknown topic costs this once."""

_NO_SUCH_TOPIC: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}
)


class TaskTopics:
    def __init__(self, cluster: Cluster, block_ms_max: int) -> None:
        self._cluster = cluster
        self._wait_ms_max = min(block_ms_max, TOPIC_WAIT_MS_MAX)

    async def look_up(self, names: Sequence[str]) -> dict[str, TopicPartitions | str]:
        """Return what topics look like now, or why one is not to be had.

        Raises:
            KafkaError: Nobody answered, or not about topics.
        """
        metadata = self._cluster.metadata

        async def attempt() -> None:
            await self._cluster.refresh(names)
            for name in names:
                if name not in metadata.topics:
                    raise self._missing(name)

        try:
            await self._cluster.retry(attempt, self._wait_ms_max)
        except KafkaError:
            # Told below, topic by topic.
            if not all(name in metadata.topics or name in metadata.topic_errors for name in names):
                raise
        return {name: self._topic(name) for name in names}

    def _topic(self, name: str) -> TopicPartitions | str:
        known = self._cluster.metadata.topics.get(name)
        if known is None:
            error = self._missing(name)
            if error.code not in _NO_SUCH_TOPIC:
                raise error
            return str(error)
        led = [n for n, each in sorted(known.partitions.items()) if each.leader != NO_LEADER]
        return TopicPartitions(len(known.partitions), led or sorted(known.partitions))

    def _missing(self, name: str) -> BrokerError:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = self._cluster.metadata.topic_errors.get(name, unknown)
        return BrokerError(code, about=f"topic {name}")
