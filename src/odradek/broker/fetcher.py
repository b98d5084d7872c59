"""A fetcher: fetches from one leader what this broker follows; ``fetchers`` has all of them.

It has a lane of its own and one request in flight. With a session (``replica_session``)
a request names only the partitions whose question has changed: its cost does not grow with their
number. What comes back is appended before the next request leaves: the offset of a fetch
acknowledges all before it. For the same reason a log whose ``flush.messages`` is reached is synced
before its next question.

A partition that was refused, or whose leader cannot be reached, is left out until its back-off is
over; new metadata ends it early. With nothing to ask a fetcher sends nothing. While the rate of
throttled replicas is exceeded, those of them that are not in sync are not asked for.

What a partition asks and does with an answer is decided by ``replication.following``. An answer
counts only if the partition is followed as it was when the question left. It is looked at again for
each partition, because a long answer is taken in slices, and metadata may come between two of them.
No error of one partition ends a fetcher.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from odradek.broker import node_events
from odradek.broker.partition import Partition
from odradek.broker.replica_session import (
    SESSION_ERRORS,
    PartitionId,
    Question,
    ReplicaSession,
)
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.slices import Steps
from odradek.protocol.generated.fetch import (
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.message import Message
from odradek.replication.following import (
    Action,
    Append,
    Diverged,
    FindOffsets,
    Nothing,
    Progress,
    Truncate,
    TruncateFully,
    Wanted,
)
from odradek.wire.lane import Lane, LaneError, LaneSettings

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

FETCH_VERSION_MIN: Final = 15
"""Before it a Fetch does not name the follower's broker epoch; it is Kafka 3.5's."""
LIST_OFFSETS_VERSION_MIN: Final = 8
"""Before it a leader cannot be asked for its earliest local offset."""
EARLIEST_LOCAL: Final = -4
LATEST: Final = -1
CHANGES_PER_REQUEST_MAX: Final = 500
"""Questions that one request adds or changes. To make them, and to answer them, takes a turn of the
loop of 10 to 30 ms. When a broker fails there may be thousands: the next requests have the others.
"""
_log: Final = logging.getLogger("odradek.replication")


class Fetcher:
    def __init__(self, broker: "BrokerServer", leader_id: int, number: int) -> None:
        self.leader_id = leader_id
        self.number = number
        self.partitions: dict[TopicPartition, Partition] = {}
        self._broker = broker
        config = broker.config
        timeout_ms = config.integer("replica.socket.timeout.ms")
        settings = LaneSettings(
            client_id=f"broker-{broker.node_id}-fetcher-{number}",
            request_timeout_ms=timeout_ms,
            connect_timeout_ms=timeout_ms,
            backoff_max_ms=config.integer("replica.fetch.backoff.ms"),
        )
        self.lane: Lane = broker.peers.open_lane("replica-fetch", leader_id, settings)
        self._max_wait_ms = config.integer("replica.fetch.wait.max.ms")
        self._timeout_ms = self._max_wait_ms + timeout_ms
        self._min_bytes = config.integer("replica.fetch.min.bytes")
        self._bytes_max = config.integer("replica.fetch.response.max.bytes")
        self._partition_bytes_max = config.integer("replica.fetch.max.bytes")
        self._quota = broker.throttles.follower
        self.session = ReplicaSession()
        self._changed: dict[TopicPartition, None] = {}
        """Partitions to look at before the next request: their question may be another."""
        self._delayed: dict[TopicPartition, int] = {}
        """Partitions that wait out a back-off, the first one to end first."""
        self._held_back: dict[TopicPartition, None] = {}
        """Partitions that wait for the rate of throttled replicas to fall."""
        self._lags: dict[TopicPartition, int] = {}
        """How many records each replica was behind its leader's high watermark."""
        self._out_of_range: list[Question] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False
        """A request is out, its answer is taken, or a log is synced before the next one."""
        self._is_closed = False
        self._is_scheduled = False
        self._is_unreachable = False
        self._has_new_address = False

    # Which partitions.

    def add(self, partition: Partition) -> None:
        """Fetch a partition from now on; also if its leader has another epoch."""
        key = partition.key
        known = self.partitions.get(key)
        if known is not None and known is not partition:
            self.remove(key)  # a topic of the same name: its id makes it another
        self.partitions[key] = partition
        self._delayed.pop(key, None)
        self._changed[key] = None
        self._send_soon()

    def remove(self, key: TopicPartition) -> None:
        partition = self.partitions.pop(key)
        self._changed.pop(key, None)
        self._delayed.pop(key, None)
        self._held_back.pop(key, None)
        self._lags.pop(key, None)
        self.session.forget((partition.topic_id, key.partition))

    @property
    def lag_max(self) -> int:
        """How many records the replica is behind that is furthest, as far as is known."""
        return max(self._lags.values(), default=0)

    def on_leader_changed(self) -> None:
        """Look up where the leader listens, and wait no longer if it could not be reached."""
        self._has_new_address = self._is_busy
        self.lane.on_address_changed()
        if self._is_unreachable and not self._is_busy:
            self._end_delays()
            self._send_soon()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.lane.close()

    # Asking.

    def _send_soon(self) -> None:
        """Send when all of this turn is known: an update brings many partitions."""
        if not (self._is_busy or self._is_scheduled or self._is_closed):
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._is_scheduled = False
        if self._is_busy or self._is_closed:
            return
        self._take_back_delayed()
        if self._quota.is_used or self._held_back:
            self._throttle()
        unsynced = [key for key in self._next_changed() if self.partitions[key].is_flush_due]
        if unsynced:
            self._is_busy = True
            self._broker.call_when_flushed(unsynced, self._on_synced)
            return
        self._ask_questions()
        if not self.session.questions:
            if self._changed:
                self._send_soon()
            else:
                self._arm()
            return
        self._is_busy, self._has_new_address = True, False
        self.lane.send(
            self._request(),
            self._on_answer,
            self._on_failed,
            self._timeout_ms,
            version_min=FETCH_VERSION_MIN,
        )

    def _on_synced(self, failed: Sequence[TopicPartition]) -> None:
        for key in failed:
            partition = self.partitions.get(key)
            if partition is not None and partition.following is not None:
                partition.following.fail()
        self._go_on()

    def _go_on(self) -> None:
        self._is_busy = False
        self._send_soon()

    def _take_back_delayed(self) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        while self._delayed:
            key = next(iter(self._delayed))
            if self._delayed[key] > now_ms:
                return
            del self._delayed[key]
            self._changed[key] = None

    def _throttle(self) -> None:
        """Leave out what is to wait for the rate of throttled replicas, or take it back."""
        quota, before = self._quota, self._held_back
        throttled = [
            partition
            for key, partition in self.partitions.items()
            if quota.is_throttled(*key) and not self._is_in_sync(partition)
        ]
        if not (throttled and quota.is_exceeded(self._broker.clock.monotonic_ms())):
            throttled = []
        self._held_back = {each.key: None for each in throttled}
        self._changed.update(before)
        for each in throttled:
            self._changed.pop(each.key, None)
            self.session.forget((each.topic_id, each.key.partition))

    def _is_in_sync(self, partition: Partition) -> bool:
        """Whether the metadata has this replica in the ISR: it must not leave for a throttle."""
        topic = self._broker.metadata.image.topics_by_id.get(partition.topic_id)
        found = None if topic is None else topic.partitions.get(partition.key.partition)
        return found is not None and self._broker.node_id in found.isr

    def _ask_questions(self) -> None:
        """Bring the session up to date with what has changed since the last request."""
        now_ms = self._broker.clock.monotonic_ms()
        for key in self._next_changed():
            del self._changed[key]
            partition = self.partitions[key]
            at, following = (partition.topic_id, key.partition), partition.following
            plan = None if following is None else following.plan(now_ms)
            if isinstance(plan, Truncate):
                assert following is not None
                self._carry_out(Question(partition, following, following.wanted), plan)
                plan = following.plan(now_ms)
            if isinstance(plan, Wanted):
                assert following is not None
                self.session.ask(at, Question(partition, following, plan))
                continue
            self.session.forget(at)
            retry_at_ms = None if following is None else following.retry_at_ms
            if retry_at_ms is not None:
                assert retry_at_ms > now_ms, "or this would be asked for ever"
                self._delayed.pop(key, None)
                self._delayed[key] = retry_at_ms

    def _next_changed(self) -> list[TopicPartition]:
        """Return what the next request looks at."""
        return list(islice(self._changed, CHANGES_PER_REQUEST_MAX))

    def _request(self) -> FetchRequest:
        topics, forgotten = self.session.take_changes(self._partition_bytes_max)
        broker = self._broker
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=broker.node_id, replica_epoch=broker.broker_epoch
            ),
            max_wait_ms=0 if self._changed else self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._bytes_max,
            session_id=self.session.session_id,
            session_epoch=self.session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    def _arm(self) -> None:
        """Wake up when the first delay is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed:
            return
        now_ms = self._broker.clock.monotonic_ms()
        times = [self._quota.retry_at_ms(now_ms)] if self._held_back else []
        if self._delayed:
            times.append(next(iter(self._delayed.values())))
        if times:
            wait_ms = max(min(times) - now_ms, 0)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._send_soon)

    # Answers.

    def _on_failed(self, error: LaneError) -> None:
        """Ask all again, later, in another session."""
        if self._is_closed:
            return
        _log.info("replicas cannot be fetched from broker %d: %s", self.leader_id, error)
        self.session.on_lost()
        self._ask_all_anew()
        self._is_unreachable = True
        if not self._has_new_address:
            self._delay_all()
        self._go_on()

    def _ask_all_anew(self) -> None:
        """Ask for all partitions again, but for those that wait out a back-off of their own."""
        for key in self.partitions:
            if key not in self._delayed:
                self._changed[key] = None

    def _delay_all(self) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        for key, partition in self.partitions.items():
            if partition.following is not None:
                partition.following.delay(now_ms)
                self._changed[key] = None
        self._delayed.clear()

    def _end_delays(self) -> None:
        for key in self._delayed:
            following = self.partitions[key].following
            if following is not None:
                following.resume()
            self._changed[key] = None
        self._delayed.clear()

    def _on_answer(self, answer: Message) -> None:
        if self._is_closed:
            return
        assert isinstance(answer, FetchResponse)
        self._is_unreachable = False
        if answer.error_code:
            self._on_refused(_known_code(answer.error_code))
            return
        self.session.on_answer(answer.session_id)
        responses = answer.responses
        if len(responses) <= 1 and len(responses[0].partitions if responses else ()) <= 1:
            for _ in self._take(answer):  # a slice has one partition at least
                pass
            self._on_taken(None)
        else:
            self._broker.slices.run(self._take(answer), self._on_taken)

    def _on_refused(self, code: ErrorCode) -> None:
        # A session may be lost at any time. A leader that refuses a request which needs none is
        # not asked again at once.
        if code not in SESSION_ERRORS or self.session.is_full:
            _log.warning("broker %d refuses a fetch of replicas: %s", self.leader_id, code.name)
            self._delay_all()
        self.session.on_refused(code)
        self._ask_all_anew()
        self._go_on()

    def _take(self, answer: FetchResponse) -> Steps[None]:
        for at, data in _partitions_of(answer):
            if self._is_closed:
                return
            question = self.session.questions.get(at)
            if question is not None and self._is_current(question):
                self._take_partition(question, data)
                yield

    def _is_current(self, question: Question) -> bool:
        """Whether the partition is still followed, here, as it was when this was asked."""
        partition = question.partition
        return question.is_current and self.partitions.get(partition.key) is partition

    def _on_taken(self, _outcome: None) -> None:
        if self._out_of_range:
            self._find_offsets()  # on the same lane, ahead of the next fetch
        self._is_busy = False
        if not self._is_closed:
            self._send()  # leaders wait for it: what was appended is acknowledged by it

    def _take_partition(self, question: Question, data: PartitionData) -> None:
        following, wanted = question.following, question.wanted
        diverging = data.diverging_epoch
        if data.error_code:
            now_ms = self._broker.clock.monotonic_ms()
            action = following.on_error(wanted, _known_code(data.error_code), now_ms)
        elif diverging is not None and _is_set(diverging):
            # Without an end the leader knows no epoch at all.
            epoch = diverging.epoch if diverging.end_offset >= 0 else -1
            action = following.on_diverged(wanted, Diverged(epoch, diverging.end_offset))
        else:
            action = following.on_records(wanted)
        self._carry_out(question, action, data)
        self._changed[question.partition.key] = None

    def _carry_out(
        self, question: Question, action: Action, data: PartitionData | None = None
    ) -> None:
        partition, following = question.partition, question.following
        try:
            self._try_action(question, action, data)
        except CorruptionError as error:
            # A bit may have flipped on the way; the leader's copy may be well.
            _log.warning("%s from broker %d: %s", partition.key, self.leader_id, error)
            following.delay(self._broker.clock.monotonic_ms())
        except ApiError as error:
            if partition.is_disk_only_full:
                following.delay(self._broker.clock.monotonic_ms())
            else:
                node_events.partition_offline(partition.key, error)
                following.fail()
            self._broker.look_at_directories()
        except Exception as error:
            following.fail()
            problem = f"{partition.key} is not replicated any more, after an error in this broker"
            context = {"message": problem, "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _count(self, at: TopicPartition, size: int) -> None:
        broker = self._broker
        is_added = broker.image.is_adding(at, broker.node_id)
        broker.replicas.traffic.replicas.on_fetched(size, is_added=is_added)
        if self._quota.is_used and self._quota.is_throttled(*at):
            self._quota.record(size, broker.clock.monotonic_ms())

    def _try_action(self, question: Question, action: Action, data: PartitionData | None) -> None:
        partition, now_ms = question.partition, self._broker.clock.now_ms()
        log = partition.log
        match action:
            case Append(leader_epoch):
                assert data is not None
                if data.records:
                    self._count(partition.key, len(data.records))
                progress = Progress(data.high_watermark, data.log_start_offset)
                partition.append_as_follower(data.records or b"", progress, leader_epoch, now_ms)
                self._lags[partition.key] = max(data.high_watermark - log.log_end_offset, 0)
            case Truncate(offset):
                if offset < log.log_end_offset:  # else an epoch without records goes
                    node_events.replica_truncated(
                        partition.key, offset, log.log_end_offset, log.high_watermark
                    )
                partition.truncate_to(offset, now_ms)
            case TruncateFully(offset):
                node_events.replica_truncated(
                    partition.key, offset, log.log_end_offset, log.high_watermark
                )
                partition.truncate_fully(offset, now_ms)
            case FindOffsets():
                question.following.delay(self._broker.clock.monotonic_ms())
                self._out_of_range.append(question)
            case Nothing():
                pass

    # Offsets out of range.

    def _find_offsets(self) -> None:
        """Ask where the logs of the leader begin and end; the partitions wait meanwhile.

        After an error their next fetch, when the back-off is over, is refused again.
        """
        questions, self._out_of_range = self._out_of_range, []
        starts: dict[TopicPartition, int] = {}

        def failed(_error: LaneError) -> None:
            pass

        def begin(answer: Message) -> None:
            starts.update(_offsets_of(answer))

        def end(answer: Message) -> None:
            if self._is_closed:
                return
            ends = _offsets_of(answer)
            for question in questions:
                key = question.partition.key
                if key in starts and key in ends and self._is_current(question):
                    self._take_offsets(question, starts[key], ends[key])
            self._send_soon()

        for timestamp, then in ((EARLIEST_LOCAL, begin), (LATEST, end)):
            request = _offsets_request(self._broker.node_id, questions, timestamp)
            self.lane.send(request, then, failed, version_min=LIST_OFFSETS_VERSION_MIN)

    def _take_offsets(self, question: Question, start: int, end: int) -> None:
        following, key = question.following, question.partition.key
        action = following.on_offsets(question.wanted, start, end)
        if isinstance(action, Nothing):
            return  # in range by now: the back-off goes on, lest the two of them never stop
        following.resume()
        self._carry_out(question, action)
        self._delayed.pop(key, None)
        self._changed[key] = None


def _partitions_of(answer: FetchResponse) -> Iterator[tuple[PartitionId, PartitionData]]:
    for topic in answer.responses:
        for data in topic.partitions:
            yield (topic.topic_id, data.partition_index), data


def _is_set(diverging: EpochEndOffset) -> bool:
    return diverging.epoch >= 0 or diverging.end_offset >= 0


def _known_code(number: int) -> ErrorCode:
    """Return an error code; the leader may be newer and know others."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _offsets_request(
    node_id: int, questions: Sequence[Question], timestamp: int
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for question in questions:
        key = question.partition.key
        topic = topics.setdefault(key.topic, ListOffsetsTopic(name=key.topic))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=key.partition,
                current_leader_epoch=question.wanted.leader_epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))


def _offsets_of(answer: Message) -> dict[TopicPartition, int]:
    """Return the offsets that an answer has, without those that could not be told."""
    assert isinstance(answer, ListOffsetsResponse)
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code and each.offset >= 0
    }
