"""From a topic and a key to a partition's queue; asks for metadata where they are not known."""

import asyncio
from typing import Any

from odradek.client.cluster import Cluster
from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError
from odradek.client.metadata import NO_LEADER, TopicMetadata
from odradek.client.producer.accumulator import Accumulator, PartitionQueue, TopicQueues
from odradek.client.producer.partitioners import Partitioner, partition_for_key
from odradek.client.producer.sender import Sender
from odradek.client.producer.settings import ProducerOptions


class Router:
    def __init__(
        self,
        options: ProducerOptions,
        cluster: Cluster,
        accumulator: Accumulator,
        sender: Sender,
        partitioner: Partitioner | None,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._accumulator = accumulator
        self._sender = sender
        self._partitioner = partitioner

    def find(self, topic: str, key: Any, value: Any) -> PartitionQueue | None:
        """Return where a record goes whose sender names no partition; None: ask ``learn``."""
        known = self._cluster.metadata.topics.get(topic)
        if known is None:
            return None
        queues = self._accumulator.topic(topic)
        if self._partitioner is not None:
            return queues.of(self._ask_partitioner(self._partitioner, known, key, value))
        if key is not None and not self._options.ignore_keys:
            return queues.of(partition_for_key(bytes(key), len(known.partitions)))
        return self._stuck(known, queues)

    def _ask_partitioner(
        self, partitioner: Partitioner, known: TopicMetadata, key: Any, value: Any
    ) -> int:
        partitions = sorted(known.partitions)
        chosen = partitioner(known.name, key, value, partitions, self._available(known))
        if chosen not in known.partitions:
            raise ValueError(f"the partitioner chose {chosen!r}, not one of {partitions}")
        return chosen

    def _stuck(self, known: TopicMetadata, queues: TopicQueues) -> PartitionQueue:
        """Return the partition that records without a key stick to, a new one when it is time."""
        batch = queues.stuck_batch
        if batch is not None and batch.is_closed:
            queues.sticky.produced(batch.size, is_full=batch.is_full)
            queues.stuck_batch = None
        current = queues.sticky.current
        if current is None or current not in known.partitions:
            choice = self._available(known) or sorted(known.partitions)
            sizes = None
            if self._options.adaptive:
                sizes = [len(queues.of(partition).batches) for partition in choice]
            current = queues.sticky.choose(choice, sizes)
        queues.stuck = queues.of(current)
        return queues.stuck

    def _available(self, known: TopicMetadata) -> list[int]:
        with_leader = [
            partition
            for partition, each in sorted(known.partitions.items())
            if each.leader != NO_LEADER
        ]
        if not self._options.adaptive or not self._options.availability_timeout_ms:
            return with_leader
        usable = [
            partition
            for partition in with_leader
            if not self._sender.is_unavailable(known.partitions[partition].leader)
        ]
        return usable or with_leader

    async def queue_for(
        self, topic: str, partition: int | None, key: Any, value: Any
    ) -> PartitionQueue:
        """Return where a record goes, as soon as its topic and partition are known."""
        known = self._cluster.metadata.topics.get(topic)
        if known is None or (partition is not None and partition not in known.partitions):
            await self.learn(topic, partition)
        if partition is not None:
            return self._accumulator.topic(topic).of(partition)
        queue = self.find(topic, key, value)
        assert queue is not None
        return queue

    async def learn(self, topic: str, partition: int | None = None) -> TopicMetadata:
        """Return a topic's metadata as soon as they are there, up to ``max.block.ms``.

        Raises:
            KafkaTimeoutError: There is no such topic or partition, as far as brokers know.
            BrokerError: The topic cannot be there.
        """
        problems: list[KafkaError] = []
        try:
            async with asyncio.timeout(self._options.max_block_ms / 1000):
                return await self._learn(topic, partition, problems)
        except KafkaError:
            raise
        except TimeoutError as error:
            wanted = topic if partition is None else f"{topic}-{partition}"
            why = f": {problems[-1]}" if problems else ""
            waited = f"{wanted} is not known after {self._options.max_block_ms} ms{why}"
            raise KafkaTimeoutError(waited) from error

    async def _learn(
        self, topic: str, partition: int | None, problems: list[KafkaError]
    ) -> TopicMetadata:
        backoff, metadata = self._cluster.backoff(), self._cluster.metadata
        while True:
            known = metadata.topics.get(topic)
            if known is not None and (partition is None or partition in known.partitions):
                return known
            if known is not None or topic in metadata.topic_errors or problems:
                # It was asked for before, or will have been by a refresh under way.
                await asyncio.sleep(backoff.next_ms() / 1000)
            try:
                await self._cluster.refresh([topic])
                code = metadata.topic_errors.get(topic)
                if code is not None:
                    raise BrokerError(code, about=topic)
            except KafkaError as error:
                if not error.retriable:
                    raise
                problems[:] = [error]
