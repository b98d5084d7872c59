"""The producer as applications see it. Hot path (``bench/client_producer.py``): ``send``."""

import asyncio
import logging
import os
import ssl
import time
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from weakref import WeakSet

from odradek.client.cluster import Cluster
from odradek.client.errors import ClosedError, KafkaError, KafkaTimeoutError
from odradek.client.metrics import Metrics
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.batch import Headers, Outgoing, RecordMetadata
from odradek.client.producer.coordination import Offsets
from odradek.client.producer.intake import Intake
from odradek.client.producer.interceptors import (
    Interceptor,
    Interceptors,
    ProducerRecord,
    Serializer,
    as_function,
)
from odradek.client.producer.partitioners import Partitioner
from odradek.client.producer.record_size import size_of
from odradek.client.producer.routing import Router
from odradek.client.producer.row_batch import ColumnNames, RowsMetadata
from odradek.client.producer.sender import Sender
from odradek.client.producer.sequences import Sequences
from odradek.client.producer.settings import DEFINITIONS, options_from
from odradek.client.producer.transaction import GroupMetadata, Transaction
from odradek.client.producer.transaction import TransactionState as State
from odradek.client.producer.transaction_control import TransactionControl
from odradek.client.setting_types import ProducerKeywords, ProducerSettings
from odradek.client.settings import Settings
from odradek.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.producer.arrow_sending import ArrowSending

_log: Final = logging.getLogger(__name__)
_BUDGET: Final = 2000
"""What may be sent before others get a turn on the event loop; a record costs 1."""
_BATCH_COST: Final = 450
"""What a batch that is ready to go out costs: some four of them and their records are a turn."""
_INTERRUPTED_SECONDS_MAX: Final = 2.0
_producers: Final["WeakSet[Producer]"] = WeakSet()


class Producer:
    """Sends records to topics.

    >>> async with Producer(bootstrap_servers="localhost:9092") as producer:
    ...     future = await producer.send("greetings", b"hello", key=b"world")
    ...     print((await future).offset)

    ``await send`` waits only until there is room for the record; its future is done when the record
    is, with the ``RecordMetadata`` or with what went wrong. Settings have Kafka's names
    (``{"linger.ms": 0}``) or Python's (``linger_ms=0``), and Kafka's defaults: acks=all and
    idempotence. Keys and values are bytes, or what the serializers make bytes of. A batch that is
    full but cannot go out yet grows up to four times its size, unless ``batch.size`` is set.

    With a ``transactional_id``:

    >>> await producer.init_transactions()
    >>> async with producer.transaction():
    ...     await producer.send("greetings", b"all or nothing")

    Not thread-safe, as nothing in asyncio is, and of no use in a forked child; ``BlockingProducer``
    is its twin for programs without a loop. A table of records goes out faster with ``send_arrow``.
    Not there yet: two-phase commit (KIP-939).
    """

    def __init__(
        self,
        settings: ProducerSettings | None = None,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[Interceptor] = (),
        tls: ssl.SSLContext | None = None,
        random: Random | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        """Check the settings; connect with ``start`` or ``async with``.

        Raises:
            ConfigurationError: A setting is unknown or wrong.
        """
        self._settings = Settings(DEFINITIONS, settings, **keywords)
        self.options = options_from(self._settings)
        self._tls = tls
        self._random = random or Random()  # noqa: S311  # jitter, and which partition is next
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._serialize_key = as_function(key_serializer)
        self._serialize_value = as_function(value_serializer)
        self._partitioner = partitioner
        self._interceptors = Interceptors(interceptors) if interceptors else None
        extras = (self._interceptors, self._serialize_key, self._serialize_value)
        self._sees_every_record = extras != (None, None, None)
        self._sequences: Sequences | None = None
        self._transaction: Transaction | None = None
        if self.options.transactional_id is not None:
            self._transaction = Transaction(self.options.transactional_id)
        if self.options.idempotent:
            self._sequences = Sequences(is_transactional=self._transaction is not None)
        may_send = (lambda _: True) if self._transaction is None else self._transaction.may_send
        self._accumulator = Accumulator(self.options, self._random, self._sequences, may_send)
        self.intake = Intake(
            self.options,
            self._accumulator,
            self._transaction,
            partitioner,
            now_ms,
            sees_every_record=self._sees_every_record,
        )
        """For a twin whose threads send without the loop."""
        self._budget = _BUDGET
        self._refusal: Exception | None = None
        self._refuse(RuntimeError("not started: async with Producer(…), or await start()"))

    # Life.

    async def start(self) -> None:
        """Connect to the cluster; takes no longer than ``max.block.ms``.

        Raises:
            KafkaTimeoutError: No bootstrap server answered.
        """
        if not isinstance(self._refusal, RuntimeError):
            raise self._refusal or RuntimeError("started already")
        self._loop = asyncio.get_running_loop()
        self._cluster = Cluster(
            self._settings, tls=self._tls, random=self._random, clock=self._monotonic_ms
        )
        try:
            await self._cluster.start(self._start_ms_max())
        except BaseException:
            await self._cluster.close()
            raise
        self._sender = Sender(
            self.options, self._cluster, self._accumulator, self._sequences, self._transaction
        )
        if self._transaction is not None:
            assert self._sequences is not None
            self._control = TransactionControl(
                self.options,
                self._cluster,
                self._transaction,
                self._sequences,
                self._sender,
                self._flush,
            )
        self._router = Router(
            self.options, self._cluster, self._accumulator, self._sender, self._partitioner
        )
        self.intake.start(self._cluster, self._router, self._sender)
        self._refuse(None)
        self._sender.wake()
        _producers.add(self)

    def _start_ms_max(self) -> int:
        """Return the deadline that the user has set; Java's producer has ``max.block.ms`` only."""
        limits = [self._settings.integer("max.block.ms")]
        if "default.api.timeout.ms" in self._settings.given:
            limits.append(self._settings.integer("default.api.timeout.ms"))
        return min(limits)

    def _refuse(self, why: Exception | None) -> None:
        """Refuse all calls from now on, or take them."""
        self._refusal = self.intake.refusal = why
        is_simple = self._transaction is None and not self._sees_every_record
        self._is_plain = why is None and is_simple

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Deliver what was sent, abort what is not committed, and disconnect.

        Never takes longer than ``timeout_seconds``, or ``delivery.timeout.ms`` without it; records
        that are not delivered by then fail with ``ClosedError``.
        """
        if self._refusal is not None:
            return
        self._refuse(ClosedError("the producer is closed"))
        if timeout_seconds is None:
            timeout_seconds = self.options.delivery_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._finish()
        except TimeoutError:
            _log.warning("closed after %.1f s with records undelivered", timeout_seconds)
        finally:
            closed = ClosedError("the producer was closed before the record was delivered")
            self._sender.close()
            self._sender.delivery.give_up_all(closed)
            # With the connections goes what they still held of memory: sends that wait for it wake
            # up, and see that it is over.
            await self._cluster.close()
            await asyncio.sleep(0)  # for callbacks, as after a flush

    async def _finish(self) -> None:
        transaction = self._transaction
        if transaction is None or not transaction.is_open:
            await self._flush()
        elif transaction.state is not State.COMMITTING:
            try:
                await self._control.abort()
            except KafkaTimeoutError:
                raise
            except KafkaError as error:
                _log.warning("the open transaction could not be aborted: %s", error)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Who is interrupted wants to get out; others want what they sent to arrive.
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        await self.close(_INTERRUPTED_SECONDS_MAX if is_interrupted else None)

    # Sending.

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers | None = (),
        timestamp: int | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Hand over a record; wait for room for it, up to ``max.block.ms``, not for its delivery.

        Raises:
            KafkaTimeoutError: Memory is full, or the topic unknown, for ``max.block.ms``.
            BrokerError: The topic cannot be written to, or MESSAGE_TOO_LARGE.
            TypeError: Key or value are not bytes, or headers not pairs of a key and bytes.
        """
        if not self._is_plain:
            topic, value, key, partition, headers, timestamp = self._prepare(
                ProducerRecord(topic, value, key, partition, headers or (), timestamp)
            )
        queue = None
        queues = self._accumulator.topics.get(topic)
        if queues is None:
            pass
        elif partition is not None:
            queue = queues.partitions.get(partition)
        elif key is None and self._partitioner is None:
            queue = queues.stuck
        elif key.__class__ is bytes and self._partitioner is None:
            queue = self._router.find(topic, key, value)
        if timestamp is None:
            timestamp = self._now_ms()
        size = size_of(key, value, headers) if headers else 0
        future: asyncio.Future[RecordMetadata] = Future(loop=self._loop)
        if (
            queue is None
            or not queue.batches
            or self.intake.is_shared
            or size > self.intake.record_size_max
            or not queue.batches[-1].try_append(timestamp, key, value, headers or (), future, size)
        ):
            size = size or size_of(key, value, headers)
            record = (timestamp, key, value, headers or (), future, size)
            await self._send_elsewhere(topic, partition, record)
        if self._interceptors is not None:
            future.add_done_callback(self._interceptors.on_done)
        self._budget -= 1
        if self._budget < 0:
            await self._pause()
        return future

    async def _send_elsewhere(self, topic: str, partition: int | None, record: Outgoing) -> None:
        """Send a record that cannot simply be appended to the batch that is open."""
        _, key, value, _, _, size = record
        if size > self.intake.record_size_max:
            raise self.intake.too_large(topic, size)
        queue = await self._router.queue_for(topic, partition, key, value)
        if await self.intake.begin_batch(queue, record):
            self._budget -= _BATCH_COST

    # Tables.

    async def send_arrow(
        self,
        topic: str,
        rows: "pa.Table | pa.RecordBatch",
        *,
        partition: int | None = None,
        value_column: str = "value",
        key_column: str | None = "key",
        headers_column: str | None = "headers",
        timestamp_column: str | None = "timestamp",
        partition_column: str | None = "partition",
    ) -> "asyncio.Future[RowsMetadata]":
        """Hand over the rows of an Arrow table as records, much faster than one by one.

        Takes what ``Consumer.poll_arrow`` gives. Keys and values are columns of bytes or text,
        headers lists of key and value, timestamps timestamps or milliseconds. A row goes to the
        ``partition`` given here, else to that in its column, else to that of its key. Columns that
        are not there are not needed, but for the values and those that are named here; None leaves
        one out. Rows of a partition stay in order.

        Waits until all rows are in memory, so for most of a large table's delivery; each time for
        room up to ``max.block.ms``. What is wrong with the rows is raised before any is sent. What
        happens later is told by the future: the ``RowsMetadata`` with the offsets of all rows, or
        a ``RowsNotDeliveredError``, which has the numbers of those that were not delivered.
        Batches have 512 KiB, or a quarter of ``buffer.memory``, unless ``batch.size`` was set.

        Raises:
            ImportError: pyarrow is not installed.
            KafkaTimeoutError: Memory is full, or the topic unknown, for ``max.block.ms``.
            BrokerError: The topic cannot be written to, or a row is too large.
            TypeError: Not a table, or a column of a type that cannot be sent.
            ValueError: A column is missing, a header has no key, a partition is negative.
            RuntimeError: The producer has serializers or interceptors: they see no rows.
        """
        self.intake.check_usable()
        if self._sees_every_record:
            raise RuntimeError("send_arrow: serializers and interceptors cannot be used with it")
        names = ColumnNames(
            value_column, key_column, headers_column, timestamp_column, partition_column
        )
        return await self._arrow_sending().send(topic, rows, names, partition, self._now_ms())

    def _arrow_sending(self) -> "ArrowSending":
        try:
            from odradek.client.producer import arrow_sending
        except ImportError as error:
            raise ImportError("send_arrow needs pyarrow: pip install odradek[arrow]") from error
        is_chosen = "batch.size" in self._settings.given
        parts = arrow_sending.Parts(
            self.options,
            self._accumulator,
            self.intake,
            self._router,
            self._sender,
            self._transaction,
            self._partitioner,
        )
        batch_bytes = self.options.batch_size if is_chosen else None
        return arrow_sending.ArrowSending(parts, batch_bytes=batch_bytes)

    def _prepare(self, record: ProducerRecord) -> ProducerRecord:
        """Do what most producers have no need of, and see whether it may be sent at all."""
        if self._refusal is not None:
            raise self._refusal
        if self._interceptors is not None:
            record = self._interceptors.on_send(record)
        if self._transaction is not None:
            self._transaction.check_in_transaction()
        if self._serialize_key is not None:
            record = record._replace(key=self._serialize_key(record.topic, record.key))
        if self._serialize_value is not None:
            record = record._replace(value=self._serialize_value(record.topic, record.value))
        return record

    async def _pause(self) -> None:
        """Let what was sent go out: whoever sends in a tight loop never waits for anything else.

        Not after each batch, because a turn of the loop costs as much as two of them.
        """
        self._budget = _BUDGET
        await asyncio.sleep(0)

    async def flush(self) -> None:
        """Wait until every record sent so far was delivered or has failed; without lingering.

        Takes no longer than ``delivery.timeout.ms``. Failures are told by the records' futures.
        """
        if self._refusal is not None:
            raise self._refusal
        await self._flush()

    async def _flush(self) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._accumulator.flush(done)
        self._accumulator.hurry(+1)
        self._sender.wake()
        try:
            await done
        finally:
            self._accumulator.hurry(-1)
        # A record that is done has its callbacks called by the loop, which may not have come to it.
        await asyncio.sleep(0)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic."""
        if self._refusal is not None:
            raise self._refusal
        known = await self._router.learn(topic)
        return [TopicPartition(topic, partition) for partition in sorted(known.partitions)]

    def metrics(self) -> Metrics:
        """Return figures under Kafka's names, of the groups ``producer-…``."""
        if isinstance(self._refusal, RuntimeError):
            return {}  # not started
        report = self._cluster.report("producer")
        self._sender.metrics.collect(report, self._cluster.network_metrics, self._sender.in_flight)
        return report.values

    # Transactions.

    async def init_transactions(self) -> None:
        """Become the only producer of this ``transactional.id``; once, before all else.

        Raises:
            KafkaTimeoutError: No coordinator answered within ``max.block.ms``; try again.
        """
        await self._transactional().init()

    async def begin_transaction(self) -> None:
        self._transactional()
        assert self._transaction is not None
        self._transaction.begin()

    async def commit_transaction(self) -> None:
        """Deliver and commit all that was sent since ``begin_transaction``.

        Raises:
            TransactionFailedError: Some of it could not be delivered: abort.
            ProducerFencedError: Another producer has taken over: close.
            KafkaTimeoutError: No answer of the coordinator: call it again.
        """
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """Have consumers skip what was sent since ``begin_transaction``."""
        await self._transactional().abort()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction: consume, transform, produce, exactly once.

        Offsets are those of the next records to read, as numbers or with metadata.
        """
        await self._transactional().send_offsets(offsets, group_metadata)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin; commit at the end of the block, or abort if it raises or cannot be committed."""
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        transaction = self._transaction
        assert transaction is not None
        if transaction.state not in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            return
        try:
            await self._control.abort()
        except KafkaError as failure:
            error.add_note(f"the transaction could not be aborted either: {failure}")

    def _transactional(self) -> TransactionControl:
        if self._refusal is not None:
            raise self._refusal
        if self._transaction is None:
            raise RuntimeError("for transactions give the producer a transactional.id")
        return self._control


def _on_fork() -> None:
    """Refuse to work in a child, which shares its parent's sockets and would garble them."""
    for producer in _producers:
        producer._refuse(ClosedError("made before a fork: make a producer in each process"))


os.register_at_fork(after_in_child=_on_fork)
