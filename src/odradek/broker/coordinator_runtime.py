"""Runs the coordinators of an internal topic: one shard of state per partition this node leads.

A shard decides, this carries out: what it wants written is appended to its partition as one batch
and replayed into it; replies go out when everything the shard had written by then is committed, so
nobody is told of something that a crash could take back. A new leader's shard is made by replaying
its partition; meanwhile clients hear COORDINATOR_LOAD_IN_PROGRESS.

All on the event loop. Loading gives way to others after every LOAD_BYTES_PER_TURN bytes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.replicas import Replica
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.java_hash import partition_of
from odradek.metadata.image import MetadataUpdate
from odradek.metadata.partition import NO_LEADER
from odradek.protocol.message import Message
from odradek.records import (
    BatchBuilder,
    BatchHeader,
    CompressionType,
    ControlRecordType,
    read_records,
)
from odradek.storage.disk import Buffer
from odradek.storage.producer_replay import read_marker
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.scan import iter_batches

if TYPE_CHECKING:
    from odradek.broker.node import Node

LOAD_BYTES_PER_TURN: Final = 1024 * 1024
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_log = logging.getLogger("odradek.coordinator")
_NONE_DUE: Final = 1 << 62

# What a failed append means to the client of a coordinator.
_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


class Shard(Protocol):
    def replay(
        self, key: Message, value: Message | None, *, offset: int, producer_id: int
    ) -> None: ...

    def replay_marker(self, producer_id: int, *, is_committed: bool) -> None: ...

    def on_append_failed(
        self, records: Iterable[CoordinatorRecord], now: Instant
    ) -> Iterable[Result]:
        """Hear that records of a result are not in the log; its replies were refused."""

    def on_loaded(self, now: Instant) -> Iterable[Result]:
        """All that was written is replayed; from here on requests come."""

    def tick(self, now: Instant) -> Iterable[Result]:
        """Do what is due; each result is carried out before the next is asked for."""

    def next_deadline_ms(self) -> int | None: ...


S = TypeVar("S", bound=Shard)
T = TypeVar("T")

Decode = Callable[[bytes, bytes | None], tuple[Message, Message | None] | None]
"""Makes messages of a record's bytes; None for a type of record that we do not know."""

Deliver = Callable[[Message], None]
Refuse = Callable[[ErrorCode], Message]


class Waiting:
    """A request that a shard has not answered yet."""

    __slots__ = ("deliver", "refuse")

    def __init__(self, deliver: Deliver, refuse: Refuse) -> None:
        self.deliver = deliver
        self.refuse = refuse


class Led(Generic[S]):
    """A partition this node leads, and its shard."""

    __slots__ = (
        "deadline_ms",
        "is_loaded",
        "leader_epoch",
        "loaded_offset",
        "replica",
        "shard",
        "undelivered",
        "waiting",
    )

    def __init__(self, replica: Replica, shard: S) -> None:
        self.replica = replica
        self.shard = shard
        self.leader_epoch = replica.leader_epoch
        self.is_loaded = False
        self.loaded_offset = replica.log.log_start_offset
        self.deadline_ms = _NONE_DUE
        self.waiting: dict[Waiting, None] = {}
        self.undelivered: deque[tuple[int, Callable[[], None]]] = deque()


class CoordinatorRuntime(Generic[S]):
    def __init__(
        self,
        node: "Node",
        topic: str,
        make_shard: Callable[[int], S],
        decode: Decode,
        codec: Callable[[], CompressionType] = lambda: CompressionType.NONE,
    ) -> None:
        self._node = node
        self.topic = topic
        self._make_shard = make_shard
        self._decode = decode
        self._codec = codec
        self._led: dict[int, Led[S]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = _NONE_DUE

    # Which partitions.

    def on_elected(self, number: int, leader_epoch: int) -> None:
        """Load the shard of a partition that this node leads, if it did not in this epoch yet."""
        led = self._led.get(number)
        if led is None or led.leader_epoch != leader_epoch:
            self._load(number)

    def _load(self, number: int) -> None:
        self.on_resigned(number)
        try:
            replica = self._node.replicas.leader(TopicPartition(self.topic, number))
        except ApiError as error:
            _log.error("%s-%d has no log to load: %s", self.topic, number, error)
            return
        self._led[number] = led = Led(replica, self._make_shard(replica.leader_epoch))
        self._load_some(led)

    def on_resigned(self, number: int) -> None:
        """Forget a shard; whoever waits for it shall look for the new coordinator."""
        led = self._led.pop(number, None)
        if led is not None:
            self._refuse_all(led, ErrorCode.NOT_COORDINATOR)

    def on_update(self, update: MetadataUpdate) -> None:
        """Hear of a new image; for subclasses."""

    def stop(self) -> None:
        """Answer everybody who waits; for a node that stops."""
        if self._timer is not None:
            self._timer.cancel()
        leds, self._led = self._led, {}
        for led in leds.values():
            self._refuse_all(led, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def partition_for(self, key: str) -> TopicPartition:
        """Return the partition that keeps a key's state.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE: the topic does not exist yet.
        """
        topic = self._node.image.topics.get(self.topic)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist yet")
        return TopicPartition(self.topic, partition_of(key, len(topic.partitions)))

    def leader_for(self, key: str) -> int | None:
        """Return the broker whose shard looks after a key, if there is one now."""
        topic = self._node.image.topics.get(self.topic)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
        return None if leader == NO_LEADER else leader

    def shards(self) -> Iterator[S]:
        """Iterate over all shards.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS: some cannot say yet what they know.
        """
        for led in self._led.values():
            yield self._loaded(led).shard

    def loaded_shards(self) -> Iterator[S]:
        """Iterate over the shards that are ready, for metrics."""
        return (led.shard for led in self._led.values() if led.is_loaded)

    # Requests.

    def shard_for(self, key: str) -> S:
        """Return the shard that looks after a key, to read from.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._find(key).shard

    def write(
        self,
        context: RequestContext,
        key: str,
        call: Callable[[S, Caller, Instant], Result],
        refuse: Refuse,
        deliver: Deliver | None = None,
    ) -> Answer:
        """Have the shard of ``key`` answer a request, now or when it is time.

        ``refuse`` makes the response if there is no shard, or none any more; ``deliver`` gets the
        response if it is not to go out as it is.
        """
        deliver = deliver or context.reply
        try:
            led = self._find(key)
        except ApiError as error:
            deliver(refuse(error.code))
            return PENDING
        waiting = Waiting(deliver, refuse)
        caller = Caller(waiting, context.version, context.client_id or "", f"/{context.peer_host}")
        led.waiting[waiting] = None
        try:
            result = call(led.shard, caller, self.now())
        except ApiError as error:
            self._refuse(led, waiting, error.code)
            return PENDING
        self._apply_each(led, (result,))
        return PENDING

    def ask(
        self,
        key: str,
        call: Callable[[S, Instant], tuple[Iterable[CoordinatorRecord], T]],
        then: Callable[[T], None],
    ) -> None:
        """Have a shard decide something for another part of this node.

        Raises:
            ApiError: There is no shard for it here, or what it decided cannot be written.
        """
        led = self._find(key)
        records, answer = call(led.shard, self.now())
        self._write(led, Result(tuple(records)))
        self._when_committed(led, lambda: then(answer))
        self._apply_each(led, ())

    def tell_all(self, call: Callable[[S, Instant], Iterable[Result]]) -> None:
        """Tell every loaded shard about something that happened."""
        now = self.now()
        for led in list(self._led.values()):
            if led.is_loaded:
                self._apply_each(led, call(led.shard, now))

    def _find(self, key: str) -> Led[S]:
        led = self._led.get(self.partition_for(key).partition)
        if led is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, key)
        return self._loaded(led)

    def _loaded(self, led: Led[S]) -> Led[S]:
        if not led.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(led.replica.partition))
        return led

    # Carrying out.

    def _apply_each(self, led: Led[S], results: Iterable[Result]) -> None:
        for result in results:
            self._apply(led, result)
        self._on_applied(led)
        self._arm(led)

    def _on_applied(self, led: Led[S]) -> None:
        """Do what a shard wants besides records and replies; for subclasses."""

    def _apply(self, led: Led[S], result: Result) -> None:
        try:
            self._write(led, result)
        except ApiError as error:
            self._on_append_failed(led, result, error.code)
            return
        if result.replies:
            self._when_committed(led, partial(self._send, led, result.replies))

    def _write(self, led: Led[S], result: Result) -> None:
        """Append records as one batch and replay them into the shard."""
        if not result.records:
            return
        producer_id, producer_epoch = result.producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        builder = BatchBuilder(
            codec=self._codec(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=result.producer is not None,
        )
        now_ms = self._node.clock.now_ms()
        for record in result.records:
            builder.append(now_ms, record.key_bytes(), record.value_bytes())
        offset = self._node.replicas.append(
            led.replica, builder.build(), now_ms, origin=AppendOrigin.COORDINATOR
        ).base_offset
        for record in result.records:
            led.shard.replay(record.key, record.value, offset=offset, producer_id=producer_id)
            offset += 1

    def append_marker(
        self, number: int, batch: bytearray, producer_id: int, *, is_committed: bool, version: int
    ) -> None:
        """Append the end of a producer's transaction to a partition, and let its shard know.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION if it is gone, NOT_LEADER_OR_FOLLOWER if there is
                no shard that is ready, or what the log says to the marker.
        """
        replica = self._node.replicas.leader(TopicPartition(self.topic, number))
        led = self._led.get(number)
        if led is None or not led.is_loaded:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(replica.partition))
        self._node.replicas.append(
            led.replica,
            batch,
            self._node.clock.now_ms(),
            origin=AppendOrigin.COORDINATOR,
            transaction_version=version,
        )
        led.shard.replay_marker(producer_id, is_committed=is_committed)

    def _on_append_failed(self, led: Led[S], result: Result, code: ErrorCode) -> None:
        told = _APPEND_ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        for reply in result.replies:
            assert isinstance(reply.waiter, Waiting)
            self._refuse(led, reply.waiter, told)
        # What the shard says to it has replies only: it is not asked to write again.
        for after in led.shard.on_append_failed(result.records, self.now()):
            self._when_committed(led, partial(self._send, led, after.replies))

    def _when_committed(self, led: Led[S], then: Callable[[], None]) -> None:
        """Call ``then`` when all that the shard has written by now is committed."""
        led.undelivered.append((led.replica.log.log_end_offset, then))
        while led.undelivered and led.undelivered[0][0] <= led.replica.log.high_watermark:
            led.undelivered.popleft()[1]()

    def _send(self, led: Led[S], replies: tuple[Reply, ...]) -> None:
        for waiter, message in replies:
            assert isinstance(waiter, Waiting)
            if waiter in led.waiting:  # else it was refused meanwhile
                del led.waiting[waiter]
                waiter.deliver(message)

    def _refuse(self, led: Led[S], waiting: Waiting, code: ErrorCode) -> None:
        if waiting in led.waiting:
            del led.waiting[waiting]
            waiting.deliver(waiting.refuse(code))

    def _refuse_all(self, led: Led[S], code: ErrorCode) -> None:
        for waiting in list(led.waiting):
            self._refuse(led, waiting, code)

    # Loading.

    def _load_some(self, led: Led[S]) -> None:
        if self._led.get(led.replica.partition.partition) is not led:
            return  # resigned meanwhile
        try:
            self._replay_some(led)
        except (ApiError, CorruptionError) as error:
            # Better no coordinator than one that has forgotten half of what it promised.
            _log.error("%s cannot be loaded: %s", led.replica.partition, error)
            self.on_resigned(led.replica.partition.partition)
            return
        if led.loaded_offset < led.replica.log.log_end_offset:
            asyncio.get_running_loop().call_soon(self._load_some, led)
            return
        led.is_loaded = True
        self._apply_each(led, led.shard.on_loaded(self.now()))

    def _replay_some(self, led: Led[S]) -> None:
        log = led.replica.log
        bytes_left = LOAD_BYTES_PER_TURN
        while led.loaded_offset < log.log_end_offset and bytes_left > 0:
            records = log.read(led.loaded_offset, bytes_max=bytes_left).records
            bytes_left -= len(records)
            for header in iter_batches(records):
                self._load_batch(led.shard, records, header)
                led.loaded_offset = header.next_offset

    def _load_batch(self, shard: S, buffer: Buffer, header: BatchHeader) -> None:
        if header.is_control:
            marker = read_marker(buffer, header)
            if marker is not None:
                is_committed = marker.type is ControlRecordType.COMMIT
                shard.replay_marker(header.producer_id, is_committed=is_committed)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in read_records(buffer, header):
            decoded = self._decode(bytes(record.key or b""), record.value)
            if decoded is not None:
                key, value = decoded
                shard.replay(key, value, offset=record.offset, producer_id=producer_id)

    # Time.

    def now(self) -> Instant:
        clock = self._node.clock
        return Instant(clock.now_ms(), clock.monotonic_ms())

    def _arm(self, led: Led[S]) -> None:
        deadline_ms = led.shard.next_deadline_ms()
        led.deadline_ms = _NONE_DUE if deadline_ms is None else deadline_ms
        if led.deadline_ms < self._timer_ms:
            self._set_timer(led.deadline_ms)

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = deadline_ms
        if deadline_ms != _NONE_DUE:
            wait_ms = max(deadline_ms - self._node.clock.monotonic_ms(), 0)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self.tick)

    def tick(self) -> None:
        """Do what is due; by itself, or when somebody moved the clock."""
        now = self.now()
        self._timer_ms = 0  # one timer is set at the end, not one per shard
        for led in list(self._led.values()):
            if led.is_loaded and led.deadline_ms <= now.monotonic_ms:
                self._apply_each(led, led.shard.tick(now))
        self._set_timer(min((led.deadline_ms for led in self._led.values()), default=_NONE_DUE))
