"""Runs the coordinators of an internal topic: one shard of state per partition this node leads.

A shard decides, this carries out: what it wants written is appended to its partition as one batch
and replayed into it; replies go out when everything the shard had written by then is committed
(``coordinator_outbox``), so no client learns of something that a crash could take back. The same
holds for reads. A new leader's shard is made by replaying its partition; meanwhile requests are
refused with COORDINATOR_LOAD_IN_PROGRESS.

All on the event loop. Loading gives way to others after every LOAD_BYTES_PER_TURN bytes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.coordinator_outbox import NONE_DUE, CoordinatorOutbox
from odradek.broker.partition import Partition
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
    from odradek.broker.broker_server import BrokerServer

LOAD_BYTES_PER_TURN: Final = 1024 * 1024
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_log = logging.getLogger("odradek.coordinator")

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
K = TypeVar("K")

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
        "is_ticking",
        "leader_epoch",
        "loaded_offset",
        "outbox",
        "partition",
        "shard",
        "waiting",
    )

    def __init__(
        self, partition: Partition, shard: S, on_committed: "Callable[[Led[S]], None]"
    ) -> None:
        self.partition = partition
        self.shard = shard
        self.leader_epoch = partition.leader_epoch
        self.is_loaded = False
        self.is_ticking = False
        self.loaded_offset = partition.log.log_start_offset
        self.deadline_ms = NONE_DUE
        self.waiting: dict[Waiting, None] = {}
        self.outbox = CoordinatorOutbox(partition, lambda: on_committed(self))


class CoordinatorRuntime(Generic[S]):
    def __init__(
        self,
        broker: "BrokerServer",
        topic: str,
        make_shard: Callable[[int], S],
        decode: Decode,
        codec: Callable[[], CompressionType] = lambda: CompressionType.NONE,
    ) -> None:
        self._broker = broker
        self.topic = topic
        self._make_shard = make_shard
        self._decode = decode
        self._codec = codec
        self._led: dict[int, Led[S]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NONE_DUE

    # Which partitions.

    def on_elected(self, number: int, leader_epoch: int) -> None:
        """Load the shard of a partition that this node leads, if it did not in this epoch yet."""
        led = self._led.get(number)
        if led is None or led.leader_epoch != leader_epoch:
            self._load(number)

    def _load(self, number: int) -> None:
        self.on_resigned(number)
        try:
            partition = self._broker.replicas.leader(TopicPartition(self.topic, number))
        except ApiError as error:
            _log.error("%s-%d has no log to load: %s", self.topic, number, error)
            return
        shard = self._make_shard(partition.leader_epoch)
        self._led[number] = led = Led(partition, shard, self._on_committed)
        self._load_some(led)

    def on_resigned(self, number: int) -> None:
        """Forget a shard; clients that wait for it must look for the new coordinator."""
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
        topic = self._broker.image.topics.get(self.topic)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist yet")
        return TopicPartition(self.topic, partition_of(key, len(topic.partitions)))

    def leader_for(self, key: str) -> int | None:
        """Return the broker whose shard looks after a key, if there is one now."""
        topic = self._broker.image.topics.get(self.topic)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
        return None if leader == NO_LEADER else leader

    def loaded_shards(self) -> Iterator[S]:
        """Iterate over the shards that are ready, for metrics."""
        return (led.shard for led in self._led.values() if led.is_loaded)

    # Requests.

    def shard_for(self, key: str) -> S:
        """Return the shard that looks after a key, to plan with: it may know what is uncommitted.

        Raises:
            ApiError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._find(key).shard

    def read_each(
        self,
        wanted: Sequence[K],
        key_of: Callable[[K], str],
        read: Callable[[S, K], T],
        refuse: Callable[[K, ErrorCode], T],
        then: Callable[[list[T]], None],
        timed_out: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ) -> None:
        """Have shards answer for each that is wanted, from what they know.

        ``then`` gets the answers when all they rest on is committed, now or later; ``refuse`` makes
        one where there is no shard, or none any more, or it is not committed in time.
        """
        answers: list[T | None] = [None] * len(wanted)
        left = len(wanted)

        def answered(slot: int, answer: T) -> None:
            nonlocal left
            answers[slot] = answer
            left -= 1
            if left == 0:
                then(answers)  # type: ignore[arg-type]  # all are there

        def refused(slot: int, each: K, code: ErrorCode) -> None:
            answered(slot, refuse(each, code))

        if not wanted:
            then([])
        for slot, each in enumerate(wanted):
            try:
                led = self._find(key_of(each))
            except ApiError as error:
                refused(slot, each, error.code)
                continue
            answer = read(led.shard, each)
            if led.outbox.is_settled:  # as nearly always
                answered(slot, answer)
            else:
                send, refuse_it = partial(answered, slot, answer), partial(refused, slot, each)
                self._hold(led, send, refuse_it, timed_out)

    def read_all(
        self,
        read: Callable[[S], Iterable[T]],
        then: Callable[[list[T]], None],
        failed: Callable[[ErrorCode], None],
    ) -> None:
        """Have all shards answer from what they know, as ``read_each``; all or none."""
        try:
            leds = [self._ready(led) for led in list(self._led.values())]
        except ApiError as error:
            failed(error.code)
            return
        answers = [answer for led in leds for answer in read(led.shard)]
        left = len(leds)

        def answered(code: ErrorCode = ErrorCode.NONE) -> None:
            nonlocal left
            if left > 0:  # else one has failed before
                left = -1 if code else left - 1
                if code:
                    failed(code)
                elif left == 0:
                    then(answers)

        if not leds:
            then(answers)
        for led in leds:
            self._hold(led, answered, answered)

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
            # Why it was refused may be something that is not committed.
            refuse_now = partial(self._refuse, led, waiting)
            self._hold(led, partial(refuse_now, error.code), refuse_now)
            return PENDING
        self._apply_each(led, (result,))
        return PENDING

    def ask(
        self,
        key: str,
        call: Callable[[S, Instant], tuple[Iterable[CoordinatorRecord], T]],
        then: Callable[[T], None],
        failed: Callable[[ErrorCode], None],
    ) -> None:
        """Have a shard decide something for another part of this node.

        ``then`` gets it when it is committed. ``failed`` is called instead if there is no shard for
        it here, or none any more, or if it cannot be written or is not committed in time.
        """
        try:
            led = self._find(key)
        except ApiError as error:
            failed(error.code)
            return
        records, answer = call(led.shard, self.now())
        result = Result(tuple(records))
        try:
            self._write(led, result)
        except ApiError as error:
            failed(_told(error.code))
            self._on_append_failed(led, result, error.code)
        else:
            self._hold(led, partial(then, answer), failed)
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
        return self._ready(led)

    def _ready(self, led: Led[S]) -> Led[S]:
        """Return a shard as it is to be asked: with all done that is due.

        Its timer may be ready in the same turn of the loop as a request, and come second: a member
        whose session is over would be counted, or a transaction committed whose time is over.
        """
        if not led.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(led.partition.key))
        if led.deadline_ms <= self._broker.clock.monotonic_ms():
            self._tick_one(led, self.now())
        return led

    # Carrying out.

    def _apply_each(self, led: Led[S], results: Iterable[Result]) -> None:
        for result in results:
            self._apply(led, result)
        self._on_applied(led)
        self._arm(led)

    def _on_committed(self, led: Led[S]) -> None:
        """Go on with what waited for commits: decisions whose effects may be seen now."""
        if led.is_loaded and self._led.get(led.partition.key.partition) is led:
            self._apply_each(led, ())

    def _on_applied(self, led: Led[S]) -> None:
        """Do what a shard wants besides records and replies; for subclasses."""

    def _apply(self, led: Led[S], result: Result) -> None:
        try:
            self._write(led, result)
        except ApiError as error:
            self._on_append_failed(led, result, error.code)
            return
        if result.replies:
            self._hold_replies(led, result.replies)

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
        now_ms = self._broker.clock.now_ms()
        for record in result.records:
            builder.append(now_ms, record.key_bytes(), record.value_bytes())
        offset = led.partition.append(
            builder.build(), now_ms, origin=AppendOrigin.COORDINATOR
        ).base_offset
        for record in result.records:
            led.shard.replay(record.key, record.value, offset=offset, producer_id=producer_id)
            offset += 1
        led.outbox.watch()

    def append_marker(
        self, number: int, batch: bytearray, producer_id: int, *, is_committed: bool, version: int
    ) -> Partition:
        """Append the end of a producer's transaction to a partition, and let its shard know.

        What becomes of the transaction's offsets is shown only when the marker is committed.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION if it is gone, NOT_LEADER_OR_FOLLOWER if there is
                no shard that is ready, or what the log says to the marker.
        """
        partition = self._broker.replicas.leader(TopicPartition(self.topic, number))
        led = self._led.get(number)
        if led is None or not led.is_loaded:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(partition.key))
        partition.append(
            batch,
            self._broker.clock.now_ms(),
            origin=AppendOrigin.COORDINATOR,
            transaction_version=version,
        )
        led.shard.replay_marker(producer_id, is_committed=is_committed)
        return partition

    def _on_append_failed(self, led: Led[S], result: Result, code: ErrorCode) -> None:
        self._refuse_replies(led, result.replies, _told(code))
        # What the shard says to it has replies only: it is not asked to write again.
        for after in led.shard.on_append_failed(result.records, self.now()):
            self._hold_replies(led, after.replies)

    def _hold(
        self,
        led: Led[S],
        send: Callable[[], None],
        refuse: Callable[[ErrorCode], None],
        timed_out: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ) -> None:
        """Call ``send`` when all that the shard has written by now is committed, else ``refuse``.

        That gets NOT_COORDINATOR when leadership is lost, or ``timed_out``.
        """
        outbox = led.outbox
        if outbox.is_settled:
            send()
            return
        deadline_ms = self._broker.clock.monotonic_ms() + self._commit_timeout_ms()
        outbox.put(
            deadline_ms,
            send,
            lambda code: refuse(timed_out if code is ErrorCode.REQUEST_TIMED_OUT else code),
        )
        self._arm(led)

    def _commit_timeout_ms(self) -> int:
        """Return how long an answer may wait for its commit."""
        return self._broker.config.integer("offsets.commit.timeout.ms")

    def _hold_replies(self, led: Led[S], replies: tuple[Reply, ...]) -> None:
        self._hold(
            led,
            partial(self._send, led, replies),
            partial(self._refuse_replies, led, replies),
        )

    def _refuse_replies(self, led: Led[S], replies: tuple[Reply, ...], code: ErrorCode) -> None:
        for reply in replies:
            assert isinstance(reply.waiter, Waiting)
            self._refuse(led, reply.waiter, code)

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
        led.outbox.close(code)
        for waiting in list(led.waiting):
            self._refuse(led, waiting, code)

    # Loading.

    def _load_some(self, led: Led[S]) -> None:
        if self._led.get(led.partition.key.partition) is not led:
            return  # resigned meanwhile
        try:
            self._replay_some(led)
        except (ApiError, CorruptionError) as error:
            # Better no coordinator than one that has forgotten half of what it promised.
            _log.error("%s cannot be loaded: %s", led.partition.key, error)
            self.on_resigned(led.partition.key.partition)
            return
        if led.loaded_offset < led.partition.log.log_end_offset:
            asyncio.get_running_loop().call_soon(self._load_some, led)
            return
        led.is_loaded = True
        led.outbox.watch()  # a new leader may have loaded what is not committed yet
        self._apply_each(led, led.shard.on_loaded(self.now()))

    def _replay_some(self, led: Led[S]) -> None:
        log = led.partition.log
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
        clock = self._broker.clock
        return Instant(clock.now_ms(), clock.monotonic_ms())

    def _arm(self, led: Led[S]) -> None:
        deadline_ms = led.shard.next_deadline_ms()
        commit_ms = led.outbox.next_deadline_ms()
        led.deadline_ms = commit_ms if deadline_ms is None else min(deadline_ms, commit_ms)
        if led.deadline_ms < self._timer_ms:
            self._set_timer(led.deadline_ms)

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = deadline_ms
        if deadline_ms != NONE_DUE:
            wait_ms = max(deadline_ms - self._broker.clock.monotonic_ms(), 0)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self.tick)

    def tick(self) -> None:
        """Do what is due; by itself, or when somebody moved the clock."""
        now = self.now()
        self._timer_ms = 0  # one timer is set at the end, not one per shard
        for led in list(self._led.values()):
            if led.is_loaded and led.deadline_ms <= now.monotonic_ms:
                self._tick_one(led, now)
        self._set_timer(min((led.deadline_ms for led in self._led.values()), default=NONE_DUE))

    def _tick_one(self, led: Led[S], now: Instant) -> None:
        # What it wants done may ask the shard again, before it is through.
        if not led.is_ticking:
            led.is_ticking = True
            try:
                led.outbox.expire(now.monotonic_ms)
                self._apply_each(led, led.shard.tick(now))
            finally:
                led.is_ticking = False


def _told(code: ErrorCode) -> ErrorCode:
    """Return what a failed append means to a client of the coordinator."""
    return _APPEND_ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
