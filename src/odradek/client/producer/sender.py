"""Sends what the accumulator has ready, and hands what came back to ``Delivery``.

There is no loop and no task per request: ``wake`` has ``_run`` called soon, once; ``_run`` decides
and sends, and sets a timer for what becomes due by itself. All else (an answer, new metadata, a
connection, an id) is an event that wakes it. What has to be awaited runs as a task of its own, at
most one of each kind: one per broker that is being connected to, one for metadata, one for an id
or for partitions of a transaction.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from odradek.client.cluster import Cluster
from odradek.client.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedError,
)
from odradek.client.metadata import NO_EPOCH, NO_LEADER, BrokerAddress
from odradek.client.producer.accumulator import NEVER, Accumulator
from odradek.client.producer.batch import NO_OFFSET, ProducerBatch
from odradek.client.producer.coordination import Coordination
from odradek.client.producer.delivery import STALE_METADATA, Delivery, Refusal
from odradek.client.producer.metrics import ProducerMetrics
from odradek.client.producer.produce_requests import (
    PRODUCE,
    answers_in,
    make_request,
    newest_version,
    topic_ids_of,
)
from odradek.client.producer.sequences import Sequences
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import Transaction
from odradek.client.producer.transaction import TransactionState as State
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.produce import PartitionProduceResponse, ProduceResponse
from odradek.protocol.message import Message
from odradek.wire.connection import Connection

_log: Final = logging.getLogger(__name__)
_RUNS_AT_ONCE_MAX: Final = 64
"""Requests sent before others get a turn on the event loop."""
_BACKOFF_EXPONENT_MAX: Final = 30


class _Sent(NamedTuple):
    """A request on the wire."""

    batches: list[ProducerBatch]
    leader_epochs: dict[TopicPartition, int]
    topic_names: dict[bytes, str]
    deadline_ms: float


class _Node:
    """One broker, as far as the sender is concerned."""

    __slots__ = (
        "blocked_since_ms",
        "connection",
        "in_flight",
        "is_opening",
        "not_before_ms",
        "problem",
    )

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.in_flight: deque[_Sent] = deque()
        self.is_opening = False
        self.not_before_ms = 0.0
        self.blocked_since_ms: float | None = None
        """Since when it has records to send that it cannot be sent."""
        self.problem: KafkaError | None = None
        """Why it could not be connected to, the last time."""


class Sender:
    def __init__(
        self,
        options: ProducerOptions,
        cluster: Cluster,
        accumulator: Accumulator,
        sequences: Sequences | None,
        transaction: Transaction | None,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._accumulator = accumulator
        self._sequences = sequences
        self._transaction = transaction
        self.coordination = Coordination(cluster, options)
        self.metrics = ProducerMetrics(cluster.network_metrics.clock, accumulator.pool)
        self.delivery = Delivery(options, accumulator, sequences, transaction, self.metrics)
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[int, _Node] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = NEVER
        self._not_before_ms: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._problems: dict[str, KafkaError] = {}
        self._metadata_at_ms = self.now_ms()
        self._wants_metadata = False
        self._is_closed = False
        cluster.on_metadata = self._on_metadata

    def now_ms(self) -> float:
        return self._loop.time() * 1000

    def wake(self) -> None:
        """Have a look soon at what there is to do."""
        if self._scheduled is None and not self._is_closed:
            self._scheduled = self._loop.call_soon(self._run)

    def close(self) -> None:
        """Do nothing more; what is not done yet has to be given up by the caller."""
        self._is_closed = True
        for handle in (self._scheduled, self._timer):
            if handle is not None:
                handle.cancel()
        for task in self._tasks.values():
            task.cancel()

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return sum(len(node.in_flight) for node in self._nodes.values())

    def is_unavailable(self, node_id: int) -> bool:
        """Whether a broker has kept records waiting for too long to be given more (KIP-794)."""
        limit_ms = self._options.availability_timeout_ms
        node = self._nodes.get(node_id)
        if not limit_ms or node is None or node.blocked_since_ms is None:
            return False
        return self.now_ms() - node.blocked_since_ms > limit_ms

    # One turn.

    def _run(self) -> None:
        self._scheduled = None
        now_ms = self.now_ms()
        self._not_before_ms = {n: at for n, at in self._not_before_ms.items() if at > now_ms}
        self.delivery.expire(now_ms, self._problem_of)
        self.delivery.resolve_sequences()
        self._look_after_ids()
        self._give_up_late(now_ms)
        next_ms = self._send_ready(now_ms)
        self._look_after_metadata(now_ms)
        self._set_timer(min(next_ms, self._next_deadline_ms()))

    def _send_ready(self, now_ms: float) -> float:
        """Send until nothing more is ready, or can go; return when more will be."""
        ready = self._accumulator.ready(self._cluster.metadata, now_ms)
        for _ in range(_RUNS_AT_ONCE_MAX):
            has_sent = False
            for node_id, queues in ready.nodes.items():
                node = self._node(node_id)
                if not self._can_send(node_id, node, now_ms):
                    if node.blocked_since_ms is None:
                        node.blocked_since_ms = now_ms
                    continue
                node.blocked_since_ms = None
                batches = self._accumulator.drain(queues)
                if batches:
                    self._send(node_id, node, batches, now_ms)
                    has_sent = True
            if not has_sent:
                break
            ready = self._accumulator.ready(self._cluster.metadata, now_ms)
        else:
            self.wake()
        if ready.leaderless:
            self._cluster.want(ready.leaderless)
            self._wants_metadata = True
        return ready.next_check_ms

    def _can_send(self, node_id: int, node: _Node, now_ms: float) -> bool:
        connection = node.connection
        if connection is None or not connection.is_open:
            if not node.is_opening and now_ms >= node.not_before_ms:
                self._start(f"connect {node_id}", partial(self._open, node_id, node))
            return False
        if not connection.is_writable:
            self._start(f"write {node_id}", connection.wait_writable)
            return False
        return len(node.in_flight) < self._options.in_flight_max

    def _send(self, node_id: int, node: _Node, batches: list[ProducerBatch], now_ms: float) -> None:
        connection = node.connection
        assert connection is not None
        metadata = self._cluster.metadata
        epochs = {}
        for batch in batches:
            known = metadata.find(batch.partition)
            epochs[batch.partition] = NO_EPOCH if known is None else known.leader_epoch
        sent = _Sent(batches, epochs, {}, now_ms + self._options.request_timeout_ms)
        try:
            version = newest_version(connection.versions, batches, metadata, self._transaction)
            request = make_request(batches, version, metadata, self._options)
            self.metrics.on_sent(batches)
            if self._options.acks == 0:
                connection.post_unanswered(request, PRODUCE, version)
                for batch in batches:
                    self.delivery.on_delivered(batch, NO_OFFSET, -1)
                return
            sent.topic_names.update(topic_ids_of(request, batches))
            answered = connection.post(request, PRODUCE, version)
        except KafkaError as error:
            self._on_failure(sent, error)
            return
        node.in_flight.append(sent)
        answered.add_done_callback(partial(self._on_answer, node_id, node, sent))

    # Answers.

    def _on_answer(
        self, node_id: int, node: _Node, sent: _Sent, answered: "asyncio.Future[Message]"
    ) -> None:
        node.in_flight.remove(sent)
        self.wake()
        if answered.cancelled():
            self._on_failure(sent, ConnectionLostError("the client is closing"))
            return
        error = answered.exception()
        if error is not None:
            assert isinstance(error, KafkaError), error
            self._on_failure(sent, error)
            return
        response = answered.result()
        assert isinstance(response, ProduceResponse)
        self._on_response(node_id, sent, response)

    def _on_response(self, node_id: int, sent: _Sent, response: ProduceResponse) -> None:
        metadata, now_ms = self._cluster.metadata, self.now_ms()
        answers = answers_in(response, sent.topic_names)
        is_stale = False
        for endpoint in response.node_endpoints:
            address = BrokerAddress(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            metadata.brokers.setdefault(endpoint.node_id, address)
        for batch in sent.batches:
            answer = answers.get(batch.partition)
            if answer is None:
                refusal = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer of broker {node_id}")
            elif not answer.error_code:
                self.delivery.on_delivered(batch, answer.base_offset, answer.log_append_time_ms)
                continue
            else:
                refusal = _refusal_of(answer)
                leader = answer.current_leader
                if leader is not None and leader.leader_id >= 0:
                    metadata.on_leader(batch.partition, leader.leader_id, leader.leader_epoch)
            self.delivery.on_refused(batch, refusal, now_ms, sent.leader_epochs[batch.partition])
            is_stale = is_stale or refusal.code in STALE_METADATA
        if is_stale:
            self._wants_metadata = True

    def _on_failure(self, sent: _Sent, error: KafkaError) -> None:
        """Nobody knows what became of the request."""
        if isinstance(error, KafkaTimeoutError):
            code = ErrorCode.REQUEST_TIMED_OUT
        elif isinstance(error, ConnectionLostError | AuthenticationError):
            code = ErrorCode.NETWORK_EXCEPTION  # a login that was not renewed ends a connection
        elif isinstance(error, UnsupportedError):
            code = ErrorCode.UNSUPPORTED_VERSION
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        now_ms = self.now_ms()
        for batch in sent.batches:
            epoch = sent.leader_epochs[batch.partition]
            self.delivery.on_refused(batch, Refusal(code, str(error)), now_ms, epoch)
        self._wants_metadata = True
        self.wake()

    def _give_up_late(self, now_ms: float) -> None:
        for node in self._nodes.values():
            if node.in_flight and node.in_flight[0].deadline_ms <= now_ms and node.connection:
                # Answers come in order: those behind this one would wait as well.
                limit_ms = self._options.request_timeout_ms
                node.connection.give_up(KafkaTimeoutError(f"no answer in {limit_ms} ms"))

    def _problem_of(self, partition: TopicPartition) -> KafkaError | None:
        """Return what keeps the records of a partition from being sent, as far as is known."""
        known = self._cluster.metadata.find(partition)
        if known is not None and known.leader == NO_LEADER:
            return BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about=str(partition))
        node = None if known is None else self._nodes.get(known.leader)
        if node is not None and node.problem is not None:
            return node.problem
        return self._problems.get("producer id") or self._problems.get("metadata")

    # What has to be awaited.

    def _look_after_ids(self) -> None:
        transaction, sequences = self._transaction, self._sequences
        if transaction is not None:
            if transaction.state is State.FATAL_ERROR:
                assert transaction.error is not None
                self.delivery.give_up_all(transaction.error)
            elif transaction.state in (State.ABORTABLE_ERROR, State.ABORTING):
                self.delivery.on_transaction_lost()
            elif transaction.to_add:
                self._start("add partitions", partial(self._add_partitions, transaction))
        elif sequences is not None and sequences.needs_producer_id and self._accumulator.incomplete:
            self._start("producer id", partial(self._init_producer_id, sequences))

    async def _init_producer_id(self, sequences: Sequences) -> None:
        try:
            sequences.set_producer(await self.coordination.init_idempotent())
        except KafkaError as error:
            if not error.retriable:
                self.delivery.give_up_all(error)
            raise

    async def _add_partitions(self, transaction: Transaction) -> None:
        assert self._sequences is not None
        partitions = transaction.take_to_add()
        try:
            await self.coordination.add_partitions(
                transaction.transactional_id, self._sequences.producer, partitions
            )
            transaction.on_added(partitions)
        except KafkaTimeoutError as error:
            transaction.fail_abortably(error)
        except KafkaError as error:
            transaction.on_refused(error)

    async def _open(self, node_id: int, node: _Node) -> None:
        node.is_opening = True
        try:
            node.connection = await self._cluster.connection(node_id)
            node.problem = None
        except KafkaError as error:
            node.problem = error
            # The cluster has its own back-off; this one is for brokers that it does not know.
            node.not_before_ms = self.now_ms() + self._options.retry_backoff_ms
            self._wants_metadata = True
        finally:
            node.is_opening = False

    def _look_after_metadata(self, now_ms: float) -> None:
        if now_ms - self._metadata_at_ms >= self._options.metadata_max_age_ms:
            self._wants_metadata = True
        if self._wants_metadata:
            self._start("metadata", self._cluster.refresh)

    def _on_metadata(self) -> None:
        self._metadata_at_ms = self.now_ms()
        self._wants_metadata = False
        self.wake()

    def _start(self, name: str, call: Callable[[], Awaitable[None]]) -> None:
        """Run it unless it runs already, or ran so recently that it should not yet again."""
        if name in self._tasks or self._is_closed or name in self._not_before_ms:
            return
        task = self._loop.create_task(_awaited(call), name=f"odradek producer: {name}")
        self._tasks[name] = task
        task.add_done_callback(partial(self._on_task, name))

    def _on_task(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._tasks[name]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._failures.pop(name, None)
            self._problems.pop(name, None)
            if name == "metadata":  # what it did not mend it will not mend at once
                self._not_before_ms[name] = self.now_ms() + self._options.retry_backoff_ms
        elif isinstance(error, KafkaError):
            failures = self._failures.get(name, 0)
            self._failures[name] = min(failures + 1, _BACKOFF_EXPONENT_MAX)
            self._problems[name] = error
            wait_ms = min(
                self._options.retry_backoff_ms << failures, self._options.retry_backoff_max_ms
            )
            self._not_before_ms[name] = self.now_ms() + wait_ms
            _log.debug("%s: %s; again in %d ms", name, error, wait_ms)
        else:
            _log.error("%s failed", name, exc_info=error)
        self.wake()

    async def settle(self) -> None:
        """Wait until the coordinator has answered whether partitions were added."""
        task = self._tasks.get("add partitions")
        if task is not None:
            await asyncio.wait([task])

    # Time.

    def _next_deadline_ms(self) -> float:
        next_ms = self._accumulator.next_expiry_ms()
        if not self._wants_metadata:
            next_ms = min(next_ms, self._metadata_at_ms + self._options.metadata_max_age_ms)
        for node in self._nodes.values():
            if node.in_flight:
                next_ms = min(next_ms, node.in_flight[0].deadline_ms)
            elif node.not_before_ms > self.now_ms():
                next_ms = min(next_ms, node.not_before_ms)
        return min([next_ms, *self._not_before_ms.values()])

    def _set_timer(self, at_ms: float) -> None:
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return  # it comes in time and looks again: one for each request would cost more
            self._timer.cancel()
            self._timer = None
        if at_ms != NEVER:
            # A timer may fire a little early; a millisecond late is never twice.
            wait = max(at_ms - self.now_ms(), 0.0) / 1000 + 0.0005
            self._timer = self._loop.call_later(wait, self._on_timer)
            self._timer_at_ms = at_ms

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    def _node(self, node_id: int) -> _Node:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node()
        return node


async def _awaited(call: Callable[[], Awaitable[None]]) -> None:
    await call()


def _refusal_of(answer: PartitionProduceResponse) -> Refusal:
    by_record = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
    return Refusal(
        BrokerError(answer.error_code).code,
        answer.error_message,
        answer.log_start_offset,
        by_record,
    )
