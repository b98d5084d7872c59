"""Runs the coordinators of an internal topic: one shard of state per partition this node leads.

A shard decides, this carries out: what it wants written is appended to its partition and, if that
succeeds, replayed into it; replies go out when everything the shard had written by then is
committed (``coordinator_outbox``), so no client learns of something that a crash could take back.
The same holds for reads. A new leader's shard is made by replaying its partition
(``coordinator_loading``); meanwhile requests are refused with COORDINATOR_LOAD_IN_PROGRESS.

A partition without followers commits inline: each result is appended as it comes. With followers
the results of one turn of the loop are one batch (``coordinator_turn``).

A shard lives as long as the leader epoch it was loaded in. All here is on the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.coordinator_loading import CoordinatorLoading, Decode
from odradek.broker.coordinator_outbox import NONE_DUE
from odradek.broker.coordinator_shards import Deliver, Led, Refuse, S, Waiting
from odradek.broker.coordinator_turn import Planned, batch_of
from odradek.broker.partition import Partition
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.java_hash import partition_of
from odradek.core.slices import Steps
from odradek.metadata.image import MetadataUpdate
from odradek.metadata.partition import NO_LEADER
from odradek.records import CompressionType
from odradek.storage.producer_state import AppendOrigin

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

NO_PRODUCER_ID: Final = -1
RESULTS_PER_STEP: Final = 50
"""Of a shard that was just loaded, before others have their turn."""
_log = logging.getLogger("odradek.coordinator")

# What a failed append means to the client of a coordinator.
_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}

T = TypeVar("T")
K = TypeVar("K")


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
        self._codec = codec
        self._led: dict[int, Led[S]] = {}
        self._loading: CoordinatorLoading[S] = CoordinatorLoading(
            broker.slices, decode, self._is_led, self._on_loaded, self._on_load_failed
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NONE_DUE

    # Which partitions.

    def on_epoch(self, number: int, leader_epoch: int) -> None:
        """Give up a shard of another epoch, before the partition is led in this one.

        Another leader may have written in between, even if one change of the metadata brings both.
        """
        led = self._led.get(number)
        if led is not None and led.leader_epoch != leader_epoch:
            self.on_resigned(number)

    def on_elected(self, number: int, leader_epoch: int) -> None:
        """Load the shard of a partition that this node leads, if it did not in this epoch yet."""
        self.on_epoch(number, leader_epoch)
        if number in self._led:
            return
        try:
            partition = self._broker.replicas.leader(TopicPartition(self.topic, number))
        except ApiError as error:
            _log.error("%s-%d has no log to load: %s", self.topic, number, error)
            return
        shard = self._make_shard(partition.leader_epoch)
        self._led[number] = led = Led(partition, shard, self._codec, self._on_committed)
        self._loading.load(led)

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
        return TopicPartition(self.topic, self._number_for(key))

    def _number_for(self, key: str) -> int:
        topic = self._broker.image.topics.get(self.topic)
        if topic is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist yet")
        return partition_of(key, len(topic.partitions))

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
        return self._find(key, self.now()).shard

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
        now = self.now()
        for slot, each in enumerate(wanted):
            try:
                led = self._find(key_of(each), now)
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
            now = self.now()
            leds = [self._ready(led, now) for led in list(self._led.values())]
            for led in leds:
                self._flush(led)
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
        *,
        is_blind: bool = False,
    ) -> Answer:
        """Have the shard of ``key`` answer a request, now or when it is time.

        ``refuse`` makes the response if there is no shard, or none any more; ``deliver`` gets the
        response if it is not to go out as it is. For ``is_blind`` see ``coordinator_turn``.
        """
        deliver = deliver or context.reply
        now = self.now()
        try:
            led = self._find(key, now, is_blind=is_blind)
        except ApiError as error:
            deliver(refuse(error.code))
            return PENDING
        waiting = Waiting(deliver, refuse)
        caller = Caller(waiting, context.version, context.client_id or "", f"/{context.peer_host}")
        led.waiting[waiting] = None
        try:
            result = call(led.shard, caller, now)
        except ApiError as error:
            # Why it was refused may be something that is not committed.
            refuse_now = partial(self._refuse, led, waiting)
            self._hold(led, partial(refuse_now, error.code), refuse_now)
            return PENDING
        self._carry_out(led, key, result, is_blind=is_blind)
        return PENDING

    def ask(
        self,
        key: str,
        call: Callable[[S, Instant], tuple[Iterable[CoordinatorRecord], T]],
        then: Callable[[T], None],
        failed: Callable[[ErrorCode], None],
    ) -> None:
        """Have a shard decide something for another part of this node.

        What it decides without records changes nothing. ``then`` gets it when it is committed.
        ``failed`` is called instead if there is no shard for it here, or none any more, or if it
        cannot be written or is not committed in time.
        """
        now = self.now()
        try:
            led = self._find(key, now)
        except ApiError as error:
            failed(error.code)
            return
        records, answer = call(led.shard, now)
        if records:
            planned = Planned(Result(tuple(records)), partial(then, answer), failed)
            self._carry_out_planned(led, key, planned)
        elif led.outbox.is_settled:
            then(answer)
        else:
            self._hold(led, partial(then, answer), failed)

    def tell_all(self, call: Callable[[S, Instant], Iterable[Result]]) -> None:
        """Tell every loaded shard about something that happened."""
        now = self.now()
        for led in list(self._led.values()):
            if led.is_loaded:
                self._apply_each(led, call(led.shard, now))

    def _find(self, key: str, now: Instant, *, is_blind: bool = False) -> Led[S]:
        """Return the shard of a key, which has replayed all that a plan for it depends on."""
        led = self._led.get(self._number_for(key))
        if led is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, key)
        if not led.is_loaded or led.deadline_ms <= now.monotonic_ms:
            self._ready(led, now)
        if led.turn.planned and led.turn.concerns(key, is_blind=is_blind):
            self._flush(led)
        return led

    def _ready(self, led: Led[S], now: Instant) -> Led[S]:
        """Return a shard as it is to be asked: with all done that is due.

        Its timer may be ready in the same turn of the loop as a request, and come second: a member
        whose session is over would be counted, or a transaction committed whose time is over.
        """
        if not led.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(led.partition.key))
        if led.deadline_ms <= now.monotonic_ms:
            self._tick_one(led, now)
        return led

    # Carrying out.

    def _apply_each(self, led: Led[S], results: Iterable[Result]) -> None:
        """Carry out results that may be about any key, one after the other, at once."""
        self._flush(led)
        for result in results:
            self._apply(led, result)
        self._on_applied(led)
        self._arm(led)

    def _on_committed(self, led: Led[S]) -> None:
        """Go on with what waited for commits: decisions whose effects may be seen now."""
        if led.is_loaded and self._is_led(led):
            self._on_applied(led)
            self._arm(led)

    def _on_applied(self, led: Led[S]) -> None:
        """Do what a shard wants besides records and replies; for subclasses."""

    def _carry_out(self, led: Led[S], key: str, result: Result, *, is_blind: bool = False) -> None:
        """Carry out a result about a key: with the rest of the turn, if there are followers.

        Its batch would otherwise have a round trip to them of its own.
        """
        if led.partition.has_followers and result.records and result.producer is None:
            self._plan(led, key, self._answering(led, result), is_blind=is_blind)
        else:
            self._apply(led, result)
            self._on_applied(led)
        self._arm(led)

    def _carry_out_planned(self, led: Led[S], key: str, planned: Planned) -> None:
        """Do the same with records that are not for those who wait for replies."""
        if led.partition.has_followers:
            self._plan(led, key, planned, is_blind=False)
        else:
            self._flush(led)  # what was planned while there were followers comes first
            self._append_each(led, self._batch_of(planned.result), (planned,))
            self._on_applied(led)
        self._arm(led)

    def _plan(self, led: Led[S], key: str, planned: Planned, *, is_blind: bool) -> None:
        """Have something written at the end of this turn of the loop."""
        if not led.turn.has_room_for(planned.result):
            self._flush(led)
        if not led.turn.planned:
            asyncio.get_running_loop().call_soon(self._end_turn, led)
        led.turn.add(key, planned, self._broker.clock.now_ms(), is_blind=is_blind)

    def _answering(self, led: Led[S], result: Result) -> Planned:
        replies = result.replies
        send = partial(self._send, led, replies) if replies else None
        return Planned(result, send, partial(self._refuse_replies, led, replies))

    def _apply(self, led: Led[S], result: Result) -> None:
        """Append a result now, and send its replies when that is committed."""
        replies = result.replies
        if result.records:
            if led.turn.planned:
                self._flush(led)  # that comes first
            code = self._write(led, self._batch_of(result), (result,))
            if code:
                self._refuse_replies(led, replies, code)
                self._on_append_failed(led, result)
                return
        if replies:
            if led.outbox.is_settled:
                self._send(led, replies)
            else:
                self._hold_replies(led, replies)

    def _batch_of(self, result: Result) -> bytearray:
        return batch_of(result, self._codec(), self._broker.clock.now_ms())

    def _end_turn(self, led: Led[S]) -> None:
        if self._is_led(led):  # else all was refused
            self._flush(led)

    def _flush(self, led: Led[S]) -> None:
        """Append what is planned."""
        if led.turn.planned:
            planned, batch = led.turn.take()
            self._append_each(led, batch, planned)
            self._on_applied(led)
            self._arm(led)

    def _append_each(self, led: Led[S], batch: bytearray, planned: Sequence[Planned]) -> None:
        """Append the batch of what is planned: all of it or nothing."""
        code = self._write(led, batch, [each.result for each in planned])
        for each in planned:
            if code:
                each.refuse(code)
                self._on_append_failed(led, each.result)
            elif each.send is not None:
                self._hold(led, each.send, each.refuse)

    def _write(self, led: Led[S], batch: bytearray, results: Iterable[Result]) -> ErrorCode:
        """Append the batch of some results and replay them into the shard; return what went wrong.

        What an append commits must not be answered before the replay. An answer may bring the next
        plan, and that would not know of these records, although they come before its own.
        """
        outbox = led.outbox
        outbox.pause()
        try:
            now_ms = self._broker.clock.now_ms()
            offset, *_ = led.partition.append(batch, now_ms, origin=AppendOrigin.COORDINATOR)
        except ApiError as error:
            outbox.resume()
            return _told(error.code)
        replay = led.shard.replay
        for records, _, producer in results:
            producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
            for record in records:
                replay(record.key, record.value, offset=offset, producer_id=producer_id)
                offset += 1
        outbox.resume()
        return ErrorCode.NONE

    def _on_append_failed(self, led: Led[S], result: Result) -> None:
        # What the shard says to it has replies only: it is not asked to write again.
        for after in led.shard.on_append_failed(result.records, self.now()):
            self._hold_replies(led, after.replies)

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
        self._flush(led)
        led.outbox.pause()
        try:
            partition.append(
                batch,
                self._broker.clock.now_ms(),
                origin=AppendOrigin.COORDINATOR,
                transaction_version=version,
            )
            led.shard.replay_marker(producer_id, is_committed=is_committed)
        finally:
            led.outbox.resume()
        return partition

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
        for planned in led.turn.take_unwritten():
            planned.refuse(code)
        led.outbox.close(code)
        for waiting in list(led.waiting):
            self._refuse(led, waiting, code)

    # Loading.

    def _is_led(self, led: Led[S]) -> bool:
        return self._led.get(led.partition.key.partition) is led

    def _on_loaded(self, led: Led[S]) -> Steps[None]:
        """Let a shard begin, now that its log is replayed; yields after some results."""
        for count, result in enumerate(led.shard.on_loaded(self.now()), 1):
            self._apply(led, result)
            if count % RESULTS_PER_STEP == 0:
                yield
                if not self._is_led(led):
                    return
        led.is_loaded = True
        self._on_applied(led)
        self._arm(led)
        led.outbox.watch()  # what is loaded may have effects as soon as it is committed

    def _on_load_failed(self, led: Led[S]) -> None:
        if self._is_led(led):
            self.on_resigned(led.partition.key.partition)

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
            if led.is_loaded and led.deadline_ms <= now.monotonic_ms and self._is_led(led):
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
