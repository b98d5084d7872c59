"""A producer's core for tests: no event loop that runs, no broker."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

from odradek.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.batch import ProducerBatch, ProducerIdAndEpoch, RecordMetadata
from odradek.client.producer.delivery import Delivery
from odradek.client.producer.sequences import Sequences
from odradek.client.producer.settings import DEFINITIONS, options_from
from odradek.client.producer.transaction import Transaction
from odradek.client.settings import Settings
from odradek.core.ids import Uuid

PRODUCER = ProducerIdAndEpoch(7, 0)


class Core:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        transaction: Transaction | None = None,
        **settings: Any,
    ) -> None:
        self.loop = loop
        self.options = options_from(
            Settings(DEFINITIONS, {"bootstrap.servers": "none:1"}, **settings)
        )
        self.sequences: Sequences | None = None
        if self.options.idempotent:
            self.sequences = Sequences(is_transactional=transaction is not None)
            self.sequences.set_producer(PRODUCER)
        self.accumulator = Accumulator(self.options, Random(1), self.sequences)
        self.delivery = Delivery(self.options, self.accumulator, self.sequences, transaction)
        self.metadata = ClusterMetadata()
        self.set_leaders({0: 1})

    def set_leaders(self, leaders: Mapping[int, int], epoch: int = 0) -> None:
        partitions = {
            number: PartitionMetadata(leader, epoch, (leader,), (leader,))
            for number, leader in leaders.items()
        }
        self.metadata.topics = {"t": TopicMetadata("t", Uuid(16), False, partitions)}

    def send(
        self, value: bytes = b"x", partition: int = 0, now_ms: float = 0
    ) -> "asyncio.Future[RecordMetadata]":
        future: asyncio.Future[RecordMetadata] = self.loop.create_future()
        queue = self.accumulator.topic("t").of(partition)
        size = 36 + len(value)
        record = (0, None, value, (), future, size)
        if self.accumulator.append(queue, record):
            return future
        if not self.accumulator.grow(queue) or not self.accumulator.append(queue, record):
            reserved = self.accumulator.batch_bytes(size)
            assert self.accumulator.pool.try_reserve(reserved)
            self.accumulator.append_first(queue, record, reserved, now_ms)
        return future

    def new_batch(self, partition: int = 0, now_ms: float = 0) -> "asyncio.Future[RecordMetadata]":
        """Send a record in a batch of its own."""
        queue = self.accumulator.topic("t").of(partition)
        if queue.batches:
            queue.batches[-1].is_closed = True
        return self.send(partition=partition, now_ms=now_ms)

    def ready_nodes(self, now_ms: float) -> set[int]:
        return set(self.accumulator.ready(self.metadata, now_ms).nodes)

    def drain(self, now_ms: float = 1e6, node: int = 1) -> list[ProducerBatch]:
        queues = self.accumulator.ready(self.metadata, now_ms).nodes.get(node, [])
        return self.accumulator.drain(queues)
