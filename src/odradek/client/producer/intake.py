"""How a record gets into a batch: one that is open, or a new one as soon as there is memory for it.

Open batches belong to the thread of the event loop alone, until ``share_between_threads``; from
then on a blocking producer's threads append to them with ``append_now`` (hot path:
``bench/client_producer.py``), and leave it to the loop to begin one (``begin_now``).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from odradek.client.cluster import Cluster
from odradek.client.errors import BrokerError, KafkaTimeoutError
from odradek.client.producer.accumulator import Accumulator, PartitionQueue
from odradek.client.producer.batch import Headers, Outgoing, ProducerBatch
from odradek.client.producer.interceptors import ProducerRecord
from odradek.client.producer.partitioners import Partitioner, partition_for_key
from odradek.client.producer.record_size import size_of
from odradek.client.producer.routing import Router
from odradek.client.producer.sender import Sender
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import Transaction
from odradek.core.errors import ErrorCode
from odradek.records import HEADER_BYTES
from odradek.records.open_batch import RecordOutcome


class Intake:
    def __init__(
        self,
        options: ProducerOptions,
        accumulator: Accumulator,
        transaction: Transaction | None,
        partitioner: Partitioner | None,
        now_ms: Callable[[], int],
        *,
        sees_every_record: bool,
    ) -> None:
        """``sees_every_record``: the producer does more with records than to send them."""
        self.is_shared = False
        """Whether other threads append as well: then nobody may without the lock."""
        self.refusal: Exception | None = None
        """Why nothing is taken."""
        self.record_size_max = accumulator.record_size_max
        self._options = options
        self._accumulator = accumulator
        self._append = accumulator.append
        self._transaction = transaction
        self._partitioner = partitioner
        self._now_ms = now_ms
        self._is_plain = transaction is None and not sees_every_record
        self._sees_every_record = sees_every_record

    def start(self, cluster: Cluster, router: Router, sender: Sender) -> None:
        self._metadata = cluster.metadata
        self._clock = cluster.network_metrics.clock
        self._router = router
        self._sender = sender

    def check_usable(self) -> None:
        """Raise if nothing may be sent now."""
        if self.refusal is not None:
            raise self.refusal
        if self._transaction is not None:
            self._transaction.check_in_transaction()

    def too_large(self, topic: str, size: int) -> BrokerError:
        """Return what to say of a record that is; in a transaction it may not be passed over."""
        name, limit = "buffer.memory", self._options.buffer_memory
        if self._options.max_request_size <= limit:
            name, limit = "max.request.size", self._options.max_request_size
        problem = f"the record has up to {size + HEADER_BYTES} bytes, more than {name} ({limit})"
        advice = f"raise {name} of the producer, or send less at once"
        error = BrokerError(ErrorCode.MESSAGE_TOO_LARGE, problem, about=topic, advice=advice)
        if self._transaction is not None:
            self._transaction.fail_abortably(error)
        return error

    # On the loop.

    async def begin_batch(self, queue: PartitionQueue, record: Outgoing) -> bool:
        """Append to a batch that has room, or make room; return whether one has become full."""
        if self._append(queue, record):
            return False  # in another partition than the one whose batch was full
        if self._grow(queue, record):
            return True
        reserved_bytes = self._batch_bytes(record[-1])
        if not self._accumulator.pool.try_reserve(reserved_bytes):
            await self._wait_for_memory(reserved_bytes)
            if self._append(queue, record):
                self._accumulator.pool.release(reserved_bytes)  # another send began a batch
                return False
        has_full_batch = bool(queue.batches)
        self._append_first(queue, record, reserved_bytes)
        return has_full_batch

    def _grow(self, queue: PartitionQueue, record: Outgoing) -> bool:
        """Append to a batch that is full but has not gone out yet, if it may grow."""
        if not self._accumulator.grow(queue) or not self._append(queue, record):
            return False
        self._on_room(queue, queue.batches[-1])
        return True

    def _on_room(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        queues = self._accumulator.topic(queue.partition.topic)
        if queue is queues.stuck:
            queues.stuck_batch = batch
        self._sender.wake()

    def _batch_bytes(self, size: int) -> int:
        return min(self._accumulator.batch_bytes(size), self._accumulator.pool.total_bytes)

    def _append_first(self, queue: PartitionQueue, record: Outgoing, reserved_bytes: int) -> None:
        """Begin a batch, in memory that was reserved for it."""
        accumulator = self._accumulator
        try:
            self.check_usable()  # it may have been closed while this waited
            if self._transaction is not None:
                self._transaction.add(queue.partition)
            batch = accumulator.append_first(queue, record, reserved_bytes, self._sender.now_ms())
        except BaseException:
            accumulator.pool.release(reserved_bytes)
            raise
        self._on_room(queue, batch)

    async def reserve(self, size: int) -> None:
        """Take memory, as soon as there is enough.

        Raises:
            KafkaTimeoutError: There was none for ``max.block.ms``.
        """
        if not self._accumulator.pool.try_reserve(size):
            await self._wait_for_memory(size)

    async def _wait_for_memory(self, size: int) -> None:
        pool, limit_ms = self._accumulator.pool, self._options.max_block_ms
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reservation = pool.wait(size, partial(_set_done, granted))
        self._sender.wake()
        began_ms = self._clock()
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await granted
            self._sender.metrics.on_memory_wait(began_ms, is_granted=True)
        except BaseException as error:
            pool.give_up(reservation)
            if not isinstance(error, TimeoutError):
                raise
            self._sender.metrics.on_memory_wait(began_ms, is_granted=False)
            raise KafkaTimeoutError(
                f"buffer.memory ({pool.total_bytes} bytes) was full for {limit_ms}"
                " ms: the brokers do not keep up; send less, or raise buffer.memory"
            ) from error

    # For threads.

    def share_between_threads(self) -> None:
        """Let ``append_now`` be called by any thread from now on."""
        self.is_shared = True
        self._append = self._accumulator.append_shared

    def append_now(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp: int | None,
        future: RecordOutcome,
    ) -> bool:
        """Append a record to a batch that is open; from any thread. False: not so easily.

        A record that is not as it should be is left to ``send``, which says so.
        """
        if not self._is_plain and not self._goes_the_short_way():
            return False
        if value.__class__ is not bytes or (key is not None and key.__class__ is not bytes):
            return False
        try:
            size = size_of(key, value, headers) if headers else 0
        except TypeError:
            return False
        queues = self._accumulator.topics.get(topic)
        if queues is None or self._partitioner is not None or size > self.record_size_max:
            return False
        if partition is not None:
            queue = queues.partitions.get(partition)
        elif key is None or self._options.ignore_keys:
            queue = queues.stuck
        elif (known := self._metadata.topics.get(topic)) is not None:
            queue = queues.partitions.get(partition_for_key(key, len(known.partitions)))
        else:
            return False
        if queue is None or self.refusal is not None:
            return False
        if timestamp is None:
            timestamp = self._now_ms()
        record = (timestamp, key, value, headers or (), future, size)
        return self._accumulator.append_shared(queue, record)

    def begin_now(self, sent: ProducerRecord, future: RecordOutcome) -> bool:
        """Begin a batch with a record, on the loop; False: ``send`` has to wait for something.

        Raises:
            TypeError: Key or value are not bytes.
        """
        if self.refusal is not None or not (self._is_plain or self._goes_the_short_way()):
            return False
        topic, value, key, partition, headers, timestamp = sent
        size = size_of(key, value, headers)
        known = self._metadata.topics.get(topic)
        if known is None or size > self.record_size_max:
            return False
        if partition is None:
            queue = self._router.find(topic, key, value)
            assert queue is not None, "the topic is known"
        elif partition in known.partitions:
            queue = self._accumulator.topic(topic).of(partition)
        else:
            return False
        if timestamp is None:
            timestamp = self._now_ms()
        record = (timestamp, key, value, headers or (), future, size)
        if self._append(queue, record):
            return True
        if self._grow(queue, record):
            return True
        reserved_bytes = self._batch_bytes(size)
        if not self._accumulator.pool.try_reserve(reserved_bytes):
            return False
        self._append_first(queue, record, reserved_bytes)
        return True

    def _goes_the_short_way(self) -> bool:
        """Whether records may be taken though there is a transaction.

        Raises:
            RuntimeError: None has been begun.
            KafkaError: It cannot be committed any more.
        """
        if self._sees_every_record or self.refusal is not None:
            return False
        assert self._transaction is not None
        self._transaction.check_in_transaction()
        return True


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
