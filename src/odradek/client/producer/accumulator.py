"""Where records wait: a queue of batches per partition, in bounded memory. Pure.

A partition is ready to send when its first batch is full, has lingered, or somebody is in a hurry:
a flush, the end of a transaction, a sender who waits for memory. A batch that is full and not sent
yet may grow, unless ``batch.size`` was chosen. A broker that has one ready
partition is sent a batch of every partition it leads, as far as a request has room: they would
cost a request of their own soon after.

All of it belongs to one thread, but for ``append_shared``: a blocking producer's threads append to
open batches themselves. So a batch is closed under a lock, before it is built or given up.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, NamedTuple

from odradek.client.metadata import NO_LEADER, ClusterMetadata
from odradek.client.producer.batch import (
    Flush,
    Format,
    Outgoing,
    ProducerBatch,
    in_order,
)
from odradek.client.producer.buffer_pool import BufferPool
from odradek.client.producer.partitioners import StickyPartition
from odradek.client.producer.row_batch import RowBatch, RowSpan, RowsReceipt
from odradek.client.producer.sequences import Sequences
from odradek.client.producer.settings import ProducerOptions
from odradek.core.ids import TopicPartition
from odradek.records import HEADER_BYTES
from odradek.records.columns import EncodedRows

NEVER: Final = float("inf")
_JITTER: Final = 0.2
_BACKOFF_EXPONENT_MAX: Final = 30


class PartitionQueue:
    __slots__ = ("batches", "in_flight", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.in_flight = 0


class TopicQueues:
    """The partitions of a topic that had records, and where records without a key go."""

    __slots__ = ("batches_grow", "partitions", "sticky", "stuck", "stuck_batch", "topic")

    def __init__(self, topic: str, sticky: StickyPartition) -> None:
        self.topic = topic
        self.sticky = sticky
        self.stuck: PartitionQueue | None = None
        """The queue of the partition that records without a key stick to."""
        self.stuck_batch: ProducerBatch | None = None
        """The last batch that was begun there."""
        self.partitions: dict[int, PartitionQueue] = {}
        self.batches_grow = True
        """Whether brokers have taken all large batches so far."""

    def of(self, partition: int) -> PartitionQueue:
        queue = self.partitions.get(partition)
        if queue is None:
            queue = PartitionQueue(TopicPartition(self.topic, partition))
            self.partitions[partition] = queue
        return queue


class Ready(NamedTuple):
    """What could be sent now."""

    nodes: dict[int, list[PartitionQueue]]
    """Leaders that have something ready, with all their queues."""
    next_check_ms: float
    """When more becomes ready by itself."""
    leaderless: set[str]
    """Topics with records for a partition whose leader is not known."""


class Accumulator:
    def __init__(
        self,
        options: ProducerOptions,
        random: Random,
        sequences: Sequences | None = None,
        may_send: Callable[[TopicPartition], bool] = lambda _: True,
    ) -> None:
        self.pool = BufferPool(options.buffer_memory)
        self.incomplete: dict[ProducerBatch, None] = {}
        """All batches that are not done, the oldest first."""
        self._options = options
        self._batch_size = options.batch_size
        self._random = random
        self._sequences = sequences
        self._may_send = may_send
        self.record_size_max = min(options.max_request_size, options.buffer_memory) - HEADER_BYTES
        self._format = Format(
            options.codec,
            options.codec_level,
            options.transactional_id is not None,
            options.batch_size,
            self.record_size_max,
        )
        self.topics: dict[str, TopicQueues] = {}
        self._waiting: dict[PartitionQueue, None] = {}
        self._hurries = 0
        self._count = 0
        self._lock = threading.Lock()
        # With one request at a time order is kept without sequences, unless the leader moves
        # between two attempts: so then a partition has one batch under way, wherever it is.
        self._one_by_one = sequences is None and options.in_flight_max == 1

    def topic(self, name: str) -> TopicQueues:
        found = self.topics.get(name)
        if found is None:
            sticky = StickyPartition(self._options.batch_size, self._random)
            found = self.topics[name] = TopicQueues(name, sticky)
        return found

    # Records in.

    def append(self, queue: PartitionQueue, record: Outgoing) -> bool:
        """Add a record to the batch that is open; False: there is none, or it has no room."""
        batches = queue.batches
        return bool(batches) and batches[-1].try_append(*record)

    def append_shared(self, queue: PartitionQueue, record: Outgoing) -> bool:
        """Do as ``append`` does, from any thread."""
        with self._lock:
            try:
                return self.append(queue, record)
            except IndexError:
                return False  # the batch was taken away between two looks at the queue

    def grow(self, queue: PartitionQueue) -> bool:
        """Let the last batch, which is full, take more while it waits to be sent.

        It would have to wait anyway: for the event loop, or for answers. And it is a request less.
        """
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or not batch.is_full or not batch.grows:
            return False
        step = self._batch_size
        size_max = batch.reserved_bytes + step
        if size_max > self._options.batch_size_max or not self.pool.try_reserve(step):
            return False
        batch.reserved_bytes = size_max
        batch.reopen(size_max)
        return True

    def _close(self, batch: ProducerBatch) -> None:
        """Have a batch take no more records, whoever was about to append one."""
        with self._lock:
            batch.is_closed = True
            batch.grows = False

    def batch_bytes(self, size_max: int) -> int:
        """Return what a batch that begins with such a record reserves."""
        return max(self._options.batch_size, HEADER_BYTES + size_max)

    def append_first(
        self, queue: PartitionQueue, record: Outgoing, reserved_bytes: int, now_ms: float
    ) -> ProducerBatch:
        """Begin a batch with a record, in bytes reserved before."""
        self._count += 1
        batch = ProducerBatch(
            queue.partition, self._format, now_ms, (self._count, 0), reserved_bytes
        )
        batch.append(*record[:-1])
        batch.grows = self.topic(queue.partition.topic).batches_grow
        if batch.size >= self._batch_size:
            batch.is_closed = batch.is_full = True
        self._add(queue, batch)
        return batch

    def append_rows(
        self,
        queue: PartitionQueue,
        rows: EncodedRows,
        span: RowSpan,
        receipt: RowsReceipt,
        reserved_bytes: int,
        now_ms: float,
    ) -> RowBatch:
        """Put rows that are encoded already behind what is there, as a batch of their own."""
        self._count += 1
        order = (self._count, 0)
        batch = RowBatch(
            queue.partition, self._format, now_ms, order, reserved_bytes, receipt, span
        )
        batch.take_rows(rows)
        self._add(queue, batch)
        return batch

    def _add(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queue.batches.append(batch)
        self._waiting[queue] = None
        self.incomplete[batch] = None

    # Batches out.

    def hurry(self, difference: int) -> None:
        """Wait for nothing while somebody is in a hurry (+1), until he no longer is (-1)."""
        self._hurries += difference
        assert self._hurries >= 0

    def ready(self, metadata: ClusterMetadata, now_ms: float) -> Ready:
        is_hurried = self._hurries > 0 or self.pool.waiting > 0
        nodes: dict[int, list[PartitionQueue]] = {}
        ready_nodes: set[int] = set()
        next_check_ms = NEVER
        leaderless: set[str] = set()
        for queue in self._waiting:
            known = metadata.find(queue.partition)
            if known is None or known.leader == NO_LEADER:
                leaderless.add(queue.partition.topic)
                continue
            if self._one_by_one and queue.in_flight:
                continue
            first = queue.batches[0]
            due_ms = self._due_ms(queue, first, known.leader_epoch, is_hurried=is_hurried)
            if due_ms > now_ms:
                next_check_ms = min(next_check_ms, due_ms)
                if first.attempts:
                    continue  # it backs off, and what is behind it waits for it
            else:
                ready_nodes.add(known.leader)
            nodes.setdefault(known.leader, []).append(queue)
        ready = {node: queues for node, queues in nodes.items() if node in ready_nodes}
        return Ready(ready, next_check_ms, leaderless)

    def _due_ms(
        self, queue: PartitionQueue, first: ProducerBatch, leader_epoch: int, *, is_hurried: bool
    ) -> float:
        if first.attempts:
            # A new leader is not the one that needs time (KIP-951).
            is_moved = leader_epoch > first.retry_leader_epoch >= 0
            return 0.0 if is_moved else first.not_before_ms
        if is_hurried or first.is_full or first.is_closed or len(queue.batches) > 1:
            return 0.0
        return first.created_ms + self._options.linger_ms

    def drain(self, queues: Iterable[PartitionQueue]) -> list[ProducerBatch]:
        """Take the first batch of each queue, as many as one request has room for."""
        drained: list[ProducerBatch] = []
        size = 0
        for queue in queues:
            if not queue.batches or (self._one_by_one and queue.in_flight):
                continue
            batch = queue.batches[0]
            if drained and size + batch.size > self._options.max_request_size:
                break
            if not self._may_go(batch):
                continue
            self._close(batch)
            queue.batches.popleft()
            queue.in_flight += 1
            # To the end of the line: the next request begins with those that had no room.
            del self._waiting[queue]
            if queue.batches:
                self._waiting[queue] = None
            if self._sequences is not None:
                self._sequences.assign(batch)
            size += len(batch.build())
            batch.is_on_wire = True
            drained.append(batch)
        return drained

    def _may_go(self, batch: ProducerBatch) -> bool:
        if not self._may_send(batch.partition):
            return False
        return self._sequences is None or self._sequences.may_send(batch)

    # And what becomes of them.

    def on_returned(self, batch: ProducerBatch) -> None:
        """The batch is not on the wire any more, answered or not."""
        batch.is_on_wire = False
        self._queue(batch).in_flight -= 1
        if batch.is_done:
            self._release(batch)

    def requeue(self, batch: ProducerBatch, now_ms: float, leader_epoch: int) -> None:
        """Send a batch again, after a while, before all that came after it."""
        exponent = min(batch.attempts, _BACKOFF_EXPONENT_MAX)
        longest_ms = max(self._options.retry_backoff_ms, self._options.retry_backoff_max_ms)
        wait_ms = min(self._options.retry_backoff_ms << exponent, longest_ms)
        batch.attempts += 1
        batch.not_before_ms = now_ms + wait_ms * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        batch.retry_leader_epoch = leader_epoch
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        queue = self._queue(batch)
        queue.batches.insert(in_order(queue.batches, batch), batch)
        self._waiting[queue] = None

    def split(self, batch: ProducerBatch) -> None:
        """Put smaller batches in the place of one that was too large for the broker."""
        self.topic(batch.partition.topic).batches_grow = False
        size_max = max(batch.size // 2, 1) if batch.is_split else self._options.batch_size
        parts = batch.split(min(size_max, batch.size - 1))
        if self._sequences is not None:
            self._sequences.replace(batch, parts)
        self.incomplete.pop(batch)
        # The parts are as old as the whole was: the oldest stay in front.
        self.incomplete = dict.fromkeys(
            sorted([*self.incomplete, *parts], key=lambda each: each.created_ms)
        )
        for part in parts:
            self._insert(part)

    def on_done(self, batch: ProducerBatch) -> None:
        """The batch was delivered or failed."""
        assert batch.is_done
        self.incomplete.pop(batch, None)
        if not batch.is_on_wire:
            self._release(batch)

    def _release(self, batch: ProducerBatch) -> None:
        reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        if reserved_bytes:
            self.pool.release(reserved_bytes)

    def remove(self, batch: ProducerBatch) -> bool:
        """Take a batch out of its queue; False if it is not in there."""
        self._close(batch)
        queue = self._queue(batch)
        if batch not in queue.batches:
            return False
        queue.batches.remove(batch)
        if not queue.batches:
            self._waiting.pop(queue, None)
        return True

    def expired(self, now_ms: float) -> list[ProducerBatch]:
        """Return batches whose time is over, the oldest first."""
        born_before = now_ms - self._options.delivery_timeout_ms
        expired = []
        for batch in self.incomplete:
            if batch.created_ms > born_before:
                break
            expired.append(batch)
        return expired

    def next_expiry_ms(self) -> float:
        for batch in self.incomplete:
            return batch.created_ms + self._options.delivery_timeout_ms
        return NEVER

    def unsent(self) -> list[ProducerBatch]:
        """Return batches that are not on the wire."""
        return [batch for batch in self.incomplete if not batch.is_on_wire]

    def flush(self, done: "asyncio.Future[None]") -> None:
        """Have ``done`` set when all that is here now is done."""
        if not self.incomplete:
            done.set_result(None)
            return
        flush = Flush(len(self.incomplete), done)
        for batch in self.incomplete:
            batch.flushes.append(flush)

    def _queue(self, batch: ProducerBatch) -> PartitionQueue:
        return self.topic(batch.partition.topic).of(batch.partition.partition)

    def check_invariants(self) -> None:
        reserved = sum(batch.reserved_bytes for batch in self.incomplete)
        assert reserved <= self.pool.total_bytes - self.pool.free_bytes
        for topic in self.topics.values():
            for queue in topic.partitions.values():
                orders = [batch.order for batch in queue.batches]
                assert orders == sorted(orders), f"{queue.partition}: {queue.batches}"
                assert bool(queue.batches) == (queue in self._waiting)
                assert queue.in_flight >= 0
