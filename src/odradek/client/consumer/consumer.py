"""The consumer: reads topics, alone or with a group.

The application's own task runs ``poll`` or ``async for``, and with it everything that must not
happen behind its back: listeners, taking and giving up partitions, automatic commits. Fetching,
heartbeats and looking for positions go on in tasks beside it. Cancelling a call loses nothing: a
record counts as read when it has been handed over.
"""

import os
import re
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, Unpack

from odradek.client.cluster import Cluster
from odradek.client.consumer.committing import CommitCallback
from odradek.client.consumer.errors import is_of_position
from odradek.client.consumer.extensions import (
    ConsumerInterceptor,
    ConsumerInterceptors,
    Deserializer,
    deserialize_with,
)
from odradek.client.consumer.machinery import Machinery
from odradek.client.consumer.offsets import FoundOffset, list_offsets_until, within, worst
from odradek.client.consumer.pattern import SubscriptionPattern
from odradek.client.consumer.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    K,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Offsets,
    RebalanceListener,
    V,
)
from odradek.client.consumer.settings import (
    EARLIEST,
    EARLIEST_TIMESTAMP,
    LATEST,
    LATEST_TIMESTAMP,
    ResetPolicy,
    consumer_settings,
)
from odradek.client.consumer.subscription import Mode, Position, Subscription
from odradek.client.errors import ClosedError, ConfigurationError, KafkaError
from odradek.client.metrics import Metrics
from odradek.client.setting_types import ConsumerKeywords, ConsumerSettings
from odradek.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern
_CLOSE_SECONDS: Final = 30.0
_FAILURES_MAX: Final = 100
_NO_OFFSET: Final = -1

T = TypeVar("T")


class Consumer(AsyncIterator[ConsumerRecord[K, V]], Generic[K, V]):
    """Reads records of topics.

    With ``group_id`` the group's members share the partitions of their topics, and the group keeps
    how far they are; without one this consumer reads all of them. Settings have Kafka's names, with
    underscores or in a mapping with dots::

        async with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as c:
            async for record in c:
                await bill(record.key, record.value)

        async with Consumer(bootstrap_servers="localhost:9092") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.seek_to_beginning()
            table = await consumer.poll_arrow(timeout=1)

    With ``enable.auto.commit`` (the default) a record's offset may be committed when the next one
    is asked for: at least once. To commit before processing is at most once.

    One task at a time may poll. A consumer belongs to the event loop and the process that it was
    started in; a child made by ``fork`` is told so. Keys and values are bytes, or what
    deserializers make of them: functions, or objects with ``deserialize(topic, data)``; type
    checkers see ``Consumer[K, V]``, whose records have keys and values of these types, or None.
    Tables have bytes.
    """

    def __init__(
        self,
        *topics: str,
        settings: ConsumerSettings | None = None,
        listener: RebalanceListener | None = None,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        tls: ssl.SSLContext | None = None,
        random: Random | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        **keywords: Unpack[ConsumerKeywords],
    ) -> None:
        """Check the settings; connect with ``start`` or ``async with``.

        Raises:
            ConfigurationError: A setting is unknown or wrong.
        """
        self._settings = consumer_settings(settings, keywords)
        self._deserialize = deserialize_with(key_deserializer, value_deserializer)
        self._interceptors = ConsumerInterceptors(interceptors) if interceptors else None
        self._tls = tls
        self._random = random
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._subscription = Subscription()
        self._pattern: re.Pattern[str] | SubscriptionPattern | None = None
        self._machinery: Machinery | None = None
        self._failures: deque[KafkaError] = deque(maxlen=_FAILURES_MAX)
        self._is_closing = False
        self._is_closed = False
        self._is_polled = False
        self._process_id = 0
        _check_names(topics)
        if topics:
            self.subscribe(topics, listener)

    # Life.

    async def start(self) -> None:
        """Connect to the cluster.

        Raises:
            KafkaTimeoutError: No bootstrap server answered.
        """
        if self._is_closing or self._machinery is not None:
            raise RuntimeError("a consumer is started once")
        cluster = Cluster(
            self._settings, tls=self._tls, random=self._random, clock=self._monotonic_ms
        )
        cluster.want(self._subscription.topics)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        self._process_id = os.getpid()
        self._machinery = Machinery(
            cluster,
            self._subscription,
            self._failures,
            self._now_ms,
            deserialize=self._deserialize,
            interceptors=self._interceptors,
        )
        self._machinery.on_subscription(self._pattern)

    async def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """Commit if that is automatic, tell the listener, leave the group and disconnect.

        The listener may still commit. Never takes longer than ``timeout`` seconds; what is not done
        by then is not done.
        """
        if self._is_closing:
            return
        self._is_closing = True
        try:
            if self._machinery is not None:
                await self._machinery.close(timeout)
        finally:
            self._is_closed = True
            self._subscription.unsubscribe()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # What to read.

    def subscribe(self, topics: Topics, listener: RebalanceListener | None = None) -> None:
        """Share these topics with the group, instead of those subscribed to before.

        Without a ``group.id`` this consumer reads all of their partitions, and commits nothing.
        A compiled pattern is matched against whole names by this client, whenever it hears of new
        topics; a ``SubscriptionPattern`` by the coordinator (``group.protocol=consumer``).

        Raises:
            RuntimeError: Partitions are assigned by hand: ``unsubscribe`` first.
            ConfigurationError: A ``SubscriptionPattern`` without such a group.
        """
        self._check_open()
        if isinstance(topics, SubscriptionPattern):
            self._check_remote_pattern()
        if isinstance(topics, re.Pattern | SubscriptionPattern):
            self._subscription.subscribe_pattern(listener)
            self._pattern = topics
        else:
            named = [topics] if isinstance(topics, str) else topics
            self._subscription.subscribe(named, listener)
            self._pattern = None
        if self._machinery is not None:
            self._machinery.on_subscription(self._pattern)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without a group's help; those read before go on where they are.

        Raises:
            RuntimeError: Topics are subscribed to: ``unsubscribe`` first.
        """
        self._check_open()
        self._subscription.assign([TopicPartition(*each) for each in partitions])
        if self._machinery is not None:
            self._machinery.on_assigned()

    async def unsubscribe(self) -> None:
        """Read nothing, and leave the group; what is not committed stays so."""
        machinery = self._running()
        await machinery.leave()
        self._subscription.unsubscribe()
        self._pattern = None
        machinery.on_assigned()

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to; with a pattern, what it matches as far as is known."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are read."""
        return frozenset(self._subscription.partitions)

    # Reading.

    async def poll(
        self,
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return records by partition, as soon as there are any; nothing after ``timeout`` seconds.

        Raises:
            KafkaError: Something went wrong that trying again does not help.
        """
        if max_records is not None and max_records < 1:
            raise ValueError("max_records has to be 1 at least")
        machinery = self._running()
        found = await self._poll(lambda: machinery.delivery.take(max_records) or None, timeout)
        return found or {}

    async def poll_arrow(self, timeout: float | None = None) -> "pa.Table":
        """Return all that was fetched as a ``pyarrow.Table``; without rows after ``timeout``.

        Columns: key, value, topic, partition, offset, timestamp, timestampType, headers. There is
        no Python object per record, so this is the fast way to read.

        Raises:
            ImportError: pyarrow is not installed.
            KafkaError: As with ``poll``.
        """
        machinery = self._running()
        bytes_max = self._settings.integer("fetch.max.bytes")
        empty = machinery.delivery.empty_table()
        found = await self._poll(lambda: machinery.delivery.take_table(bytes_max), timeout)
        return empty if found is None else found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        machinery = self._machinery
        if machinery is not None and not machinery.needs_attention:
            record = machinery.delivery.next_ready()
            if record is not None:
                return record
        running = self._running()
        found = await self._poll(running.delivery.next_record, None)
        assert found is not None, "without a timeout there is always a record"
        return found

    async def _poll(self, take: Callable[[], T | None], timeout: float | None) -> T | None:
        machinery = self._running()
        if self._subscription.mode is Mode.NONE:
            raise RuntimeError("nothing to read: subscribe to topics, or assign partitions")
        if self._is_polled:
            raise RuntimeError("another task polls this consumer")
        self._is_polled = True
        try:
            return await machinery.poll(take, timeout)
        finally:
            self._is_polled = False

    # Positions.

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from an offset.

        Raises:
            ValueError: The partition is not assigned to this consumer, or the offset is negative.
        """
        if isinstance(offset, int):
            offset = OffsetAndMetadata(offset)
        if offset.offset < 0:
            raise ValueError(f"{offset.offset} is not an offset")
        state = self._subscription.state(partition)
        self._leave_position(partition)
        state.seek(Position(offset.offset, offset.leader_epoch))
        self._moved()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read on from the first record there is; in all partitions if none are named."""
        self._seek_to(EARLIEST, partitions)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read on behind the last record; in all partitions if none are named."""
        self._seek_to(LATEST, partitions)

    def _seek_to(self, policy: ResetPolicy, partitions: Iterable[TopicPartition] | None) -> None:
        chosen = self._subscription.partitions if partitions is None else partitions
        states = [self._subscription.state(each) for each in chosen]
        for state in states:
            self._leave_position(state.partition)
            state.reset_to(policy)
        self._moved()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until ``resume``; what was fetched is kept if there is room."""
        for state in [self._subscription.state(each) for each in partitions]:
            self._let_go(state.partition)
            state.is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self._subscription.state(each) for each in partitions]:
            state.is_paused = False
        self._moved()

    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(p for p, each in self._subscription.partitions.items() if each.is_paused)

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record to be handed out.

        Raises:
            KafkaTimeoutError: It was not found in time.
        """
        machinery = self._started()
        machinery.delivery.settle()
        self._subscription.state(partition)
        return await within(machinery.position(partition), self._timeout_ms(timeout))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are behind the position; None while that is not known."""
        state = self._subscription.state(partition)
        if self._machinery is None:
            return None
        self._machinery.delivery.settle()
        return self._machinery.metrics.lag_of(state)

    def _leave_position(self, partition: TopicPartition) -> None:
        """Drop what was fetched there, and what the next poll was to raise about it."""
        self._let_go(partition)
        if self._failures:
            left = [each for each in self._failures if not is_of_position(each, partition)]
            self._failures.clear()
            self._failures.extend(left)

    def _let_go(self, partition: TopicPartition) -> None:
        if self._machinery is not None:
            self._machinery.delivery.let_go(partition)

    def _moved(self) -> None:
        if self._machinery is not None:
            self._machinery.on_moved()

    # Offsets of the log.

    async def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int],
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a time (milliseconds), None if there is none."""
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise ValueError("times are milliseconds since 1970")
        found = await self._list_offsets(timestamps, timeout)
        return {
            partition: None
            if each.offset == _NO_OFFSET
            else OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
            for partition, each in found.items()
        }

    async def beginning_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout)
        return {partition: each.offset for partition, each in found.items()}

    async def end_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record that this consumer may see."""
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout)
        return {partition: each.offset for partition, each in found.items()}

    async def _list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        timeout: float | None,
    ) -> dict[TopicPartition, FoundOffset]:
        cluster = self._started().cluster
        return await list_offsets_until(cluster, timestamps, self._timeout_ms(timeout))

    async def partitions_for(self, topic: str) -> frozenset[TopicPartition]:
        """Return the partitions of a topic; none if there is no such topic."""
        cluster = self._started().cluster
        if topic not in cluster.metadata.topics:
            await cluster.refresh([topic])
        known = cluster.metadata.topics.get(topic)
        numbers = () if known is None else known.partitions
        return frozenset(TopicPartition(topic, number) for number in numbers)

    # Offsets of the group.

    async def commit(
        self,
        offsets: Offsets | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit, and return when the group has it; how far this consumer is if nothing is given.

        Raises:
            CommitFailedError: This is not a member of its group (any more): others may read the
                partitions by now. Nothing is committed until ``poll`` has joined it again.
            RebalanceInProgressError: The consumer is just joining: poll, then commit again.
            KafkaTimeoutError: It could not be done in time.
        """
        machinery = self._started()
        await machinery.committer.commit(
            self._to_commit(machinery, offsets), self._timeout_ms(timeout)
        )

    def commit_soon(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting for it; ``callback`` hears how that went."""
        machinery = self._started()
        machinery.committer.commit_soon(self._to_commit(machinery, offsets), callback)

    def _to_commit(self, machinery: Machinery, offsets: Offsets | None) -> Offsets:
        if offsets is not None:
            return dict(offsets)
        machinery.delivery.settle()
        return machinery.committer.consumed()

    async def committed(
        self,
        partitions: Collection[TopicPartition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed, None where it has nothing."""
        machinery = self._started()
        timeout_ms = self._timeout_ms(timeout)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
            topics = {each.topic for each in partitions}
            if any(topic not in machinery.cluster.metadata.topics for topic in topics):
                await machinery.cluster.refresh(topics)
            answered = await machinery.group_offsets.fetch(partitions)
            failures = [each for each in answered.values() if isinstance(each, KafkaError)]
            if failures:
                raise worst(failures)
            return {p: e for p, e in answered.items() if isinstance(e, OffsetAndMetadata)}

        retrying = machinery.cluster.retry(attempt, timeout_ms, about="committed offsets")
        found = await within(retrying, timeout_ms)
        return {partition: found.get(partition) for partition in partitions}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's place in its group, for a producer's transaction.

        After it was expelled that is the place it had: the coordinator refuses what is committed
        with it.
        """
        return self._started().standing().metadata

    def metrics(self) -> Metrics:
        """Return figures under Kafka's names, of the groups ``consumer-…``."""
        machinery = self._machinery
        if machinery is None:
            return {}
        machinery.delivery.settle()
        report = machinery.cluster.report("consumer")
        protocol = self._settings.text("group.protocol")
        machinery.metrics.collect(report, machinery.cluster.network_metrics, protocol)
        return report.values

    # Checks.

    def _check_remote_pattern(self) -> None:
        if not self._settings.text("group.id"):
            raise ConfigurationError("SubscriptionPattern needs a group.id; or compile a pattern")
        if self._settings.text("group.protocol") == "classic":
            raise ConfigurationError("SubscriptionPattern needs group.protocol=consumer")

    def _timeout_ms(self, timeout: float | None) -> float:
        if timeout is None:
            return self._settings.integer("default.api.timeout.ms")
        return timeout * 1000

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClosedError("the consumer is closed")

    def _running(self) -> Machinery:
        self._check_open()
        return self._started()

    def _started(self) -> Machinery:
        """Return what runs, while the consumer is closed too: a listener may commit then."""
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        if self._machinery is None:
            raise RuntimeError("not started: async with Consumer(…), or await consumer.start()")
        if self._process_id != os.getpid():
            raise RuntimeError("a consumer does not outlive fork(): make one in the child")
        return self._machinery


def _check_names(topics: Iterable[object]) -> None:
    """Refuse what is no name: settings are put there, as other clients take them."""
    for each in topics:
        if not isinstance(each, str):
            kind = type(each).__name__
            raise TypeError(f"topics are names, not {kind}; settings are given as settings=…")
