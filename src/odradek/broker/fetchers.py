"""Followers fetch from leaders: one fetcher per leader broker, times ``num.replica.fetchers``.

A fetcher has a lane of its own and one request in flight. With a fetch session (KIP-227) a request
names only the partitions whose question has changed, so its cost does not grow with their number.
What comes back is appended before the next request leaves: the offset of a fetch acknowledges all
before it.

A partition that was refused, or whose leader cannot be reached, is left out until its back-off is
over. With nothing to ask a fetcher sends nothing.

What a partition asks and does with an answer is decided by ``replication.following``. An answer
counts only if the partition is followed as it was when the question left.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker import node_events
from odradek.broker.partition import Partition
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.core.java_hash import java_string_hash
from odradek.core.slices import Steps
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
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
    Following,
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
SESSION_NONE: Final = 0
EPOCH_INITIAL: Final = 0
EPOCH_MAX: Final = 2**31 - 1
EARLIEST_LOCAL: Final = -4
LATEST: Final = -1
_log: Final = logging.getLogger("odradek.replication")

PartitionId = tuple[Uuid, int]


class _Asked(NamedTuple):
    """A question of one partition, and who asked."""

    partition: Partition
    following: Following
    wanted: Wanted

    @property
    def is_current(self) -> bool:
        return self.partition.following is self.following


class Fetchers:
    """All fetchers of a broker."""

    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._where: dict[TopicPartition, Fetcher] = {}
        self._is_closed = False

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader from now on, or from none if it has none."""
        following = partition.following
        assert following is not None
        key, leader_id = partition.key, following.leader_id
        fetcher = self._where.get(key)
        if leader_id < 0 or self._is_closed:
            self.remove(key)
            return
        if fetcher is None or fetcher.leader_id != leader_id:
            self.remove(key)
            fetcher = self._fetcher_for(key, leader_id)
            self._where[key] = fetcher
        fetcher.add(partition)

    def remove(self, key: TopicPartition) -> None:
        fetcher = self._where.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)
            if not fetcher.partitions:
                del self._fetchers[fetcher.leader_id, fetcher.number]
                fetcher.close()

    def close(self) -> None:
        self._is_closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()

    def _fetcher_for(self, key: TopicPartition, leader_id: int) -> "Fetcher":
        count = self._broker.config.integer("num.replica.fetchers")
        number = (31 * java_string_hash(key.topic) + key.partition) % count
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, number] = Fetcher(self._broker, leader_id, number)
        return fetcher


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
        self._min_bytes = config.integer("replica.fetch.min.bytes")
        self._bytes_max = config.integer("replica.fetch.response.max.bytes")
        self._partition_bytes_max = config.integer("replica.fetch.max.bytes")
        self._session_id, self._epoch = SESSION_NONE, EPOCH_INITIAL
        self._in_session: dict[PartitionId, _Asked] = {}
        """What the leader thinks is asked: as of the last request."""
        self._changed: dict[TopicPartition, None] = {}
        """Partitions whose question is to be sent, or taken back."""
        self._forgotten: dict[PartitionId, None] = {}
        self._delayed: dict[TopicPartition, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False
        self._is_closed = False
        self._is_scheduled = False

    # Which partitions.

    def add(self, partition: Partition) -> None:
        """Fetch a partition from now on; also if its leader has another epoch."""
        self.partitions[partition.key] = partition
        self._delayed.pop(partition.key, None)
        self._changed[partition.key] = None
        self._send_soon()

    def remove(self, key: TopicPartition) -> None:
        partition = self.partitions.pop(key)
        self._changed.pop(key, None)
        self._delayed.pop(key, None)
        self._forget((partition.topic_id, key.partition))

    def _forget(self, at: PartitionId) -> None:
        if self._in_session.pop(at, None) is not None:
            self._forgotten[at] = None

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
        asked = self._questions()
        if not self._in_session and not asked:
            self._arm()
            return
        self._is_busy = True
        request = self._request(asked)
        self._forgotten.clear()
        self._in_session.update(asked)
        timeout_ms = self._max_wait_ms + self._broker.config.integer("replica.socket.timeout.ms")
        self.lane.send(
            request, self._on_answer, self._on_failed, timeout_ms, version_min=FETCH_VERSION_MIN
        )

    def _take_back_delayed(self) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        for key, due_ms in list(self._delayed.items()):
            if due_ms <= now_ms:
                del self._delayed[key]
                self._changed[key] = None

    def _questions(self) -> dict[PartitionId, _Asked]:
        """Return what is asked now that was not before."""
        asked: dict[PartitionId, _Asked] = {}
        now_ms = self._broker.clock.monotonic_ms()
        changed, self._changed = self._changed, {}
        for key in changed:
            partition = self.partitions[key]
            at, following = (partition.topic_id, key.partition), partition.following
            plan = None if following is None else following.plan(now_ms)
            if isinstance(plan, Truncate):
                self._carry_out(_Asked(partition, following, following.wanted), plan)  # type: ignore[union-attr, arg-type]
                plan = following.plan(now_ms)  # type: ignore[union-attr]
            if isinstance(plan, Wanted):
                assert following is not None
                asked[at] = _Asked(partition, following, plan)
                self._forgotten.pop(at, None)
                continue
            self._forget(at)
            if following is not None and following.retry_at_ms is not None:
                self._delayed[key] = following.retry_at_ms
        return asked

    def _request(self, asked: dict[PartitionId, _Asked]) -> FetchRequest:
        if self._session_id == SESSION_NONE:
            asked = self._in_session | asked
        topics: dict[Uuid, FetchTopic] = {}
        for (topic_id, number), each in asked.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            wanted = each.wanted
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=wanted.leader_epoch,
                    fetch_offset=wanted.offset,
                    last_fetched_epoch=wanted.last_fetched_epoch,
                    log_start_offset=wanted.log_start_offset,
                    partition_max_bytes=self._partition_bytes_max,
                )
            )
        forgotten: dict[Uuid, ForgottenTopic] = {}
        if self._session_id != SESSION_NONE:
            for topic_id, number in self._forgotten:
                topic_forgotten = forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
                topic_forgotten.partitions.append(number)
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._broker.node_id, replica_epoch=self._broker.broker_epoch
            ),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._bytes_max,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    # Answers.

    def _on_failed(self, error: LaneError) -> None:
        """Ask all again, later, without a session: nobody knows what the leader has heard."""
        if self._is_closed:
            return
        _log.info("replicas cannot be fetched from broker %d: %s", self.leader_id, error)
        self._end_session()
        self._delay_all()
        self._is_busy = False
        self._arm()

    def _end_session(self) -> None:
        """Name everything in the next request."""
        self._session_id, self._epoch = SESSION_NONE, EPOCH_INITIAL
        for asked in self._in_session.values():
            self._changed[asked.partition.key] = None
        self._in_session.clear()
        self._forgotten.clear()

    def _delay_all(self) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        for key in self._changed:
            following = self.partitions[key].following
            if following is not None:
                following.delay(now_ms)
                self._delayed[key] = following.retry_at_ms or now_ms
        self._changed.clear()

    def _on_answer(self, answer: Message) -> None:
        if self._is_closed:
            return
        assert isinstance(answer, FetchResponse)
        if answer.error_code:
            self._on_refused(ErrorCode(answer.error_code))
            return
        if self._session_id == SESSION_NONE:
            self._session_id, self._epoch = answer.session_id, EPOCH_INITIAL
        if self._session_id == SESSION_NONE:  # there is no room for a session
            in_session = dict(self._in_session)
            self._end_session()
            self._in_session = in_session
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        self._broker.slices.run(self._take(answer), self._on_taken)

    def _on_refused(self, code: ErrorCode) -> None:
        self._end_session()
        if code not in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ):
            _log.warning("broker %d refuses a fetch of replicas: %s", self.leader_id, code.name)
            self._delay_all()
        self._on_taken(None)

    def _on_taken(self, _outcome: None) -> None:
        self._is_busy = False
        self._send_soon()

    def _take(self, answer: FetchResponse) -> Steps[None]:
        for at, data in _partitions_of(answer):
            asked = self._in_session.get(at)
            if asked is None or not asked.is_current:
                continue  # followed no more, or otherwise
            if self.partitions.get(asked.partition.key) is not asked.partition:
                continue
            self._take_partition(asked, data)
            yield

    def _take_partition(self, asked: _Asked, data: PartitionData) -> None:
        following, wanted = asked.following, asked.wanted
        if data.error_code:
            now_ms = self._broker.clock.monotonic_ms()
            action = following.on_error(wanted, ErrorCode(data.error_code), now_ms)
        elif data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            at = data.diverging_epoch
            action = following.on_diverged(wanted, Diverged(at.epoch, at.end_offset))
        else:
            action = following.on_records(wanted)
        self._carry_out(asked, action, data)
        self._changed[asked.partition.key] = None

    def _carry_out(self, asked: _Asked, action: Action, data: PartitionData | None = None) -> None:
        partition, now_ms = asked.partition, self._broker.clock.now_ms()
        log = partition.log
        try:
            match action:
                case Append(leader_epoch):
                    assert data is not None
                    progress = Progress(data.high_watermark, data.log_start_offset)
                    partition.append_as_follower(
                        data.records or b"", progress, leader_epoch, now_ms
                    )
                case Truncate(offset) if offset < log.log_end_offset:
                    node_events.replica_truncated(
                        partition.key, offset, log.log_end_offset, log.high_watermark
                    )
                    partition.truncate_to(offset, now_ms)
                case Truncate(offset):
                    partition.truncate_to(offset, now_ms)  # an epoch without records goes
                case TruncateFully(offset):
                    node_events.replica_truncated(
                        partition.key, offset, log.log_end_offset, log.high_watermark
                    )
                    partition.truncate_fully(offset, now_ms)
                case FindOffsets():
                    self._find_offsets(asked)
                case Nothing():
                    pass
        except CorruptionError as error:
            # A bit may have flipped on the way; the leader's copy may be well.
            _log.warning("%s from broker %d: %s", partition.key, self.leader_id, error)
            asked.following.delay(self._broker.clock.monotonic_ms())
        except ApiError as error:
            node_events.partition_offline(partition.key, error)
            asked.following.fail()
            self._broker.look_at_directories()

    # Offsets out of range.

    def _find_offsets(self, asked: _Asked) -> None:
        """Ask where the leader's log begins and ends; the partition waits meanwhile."""
        asked.following.delay(self._broker.clock.monotonic_ms())

        def begins(start: int) -> None:
            self._ask_offset(asked, LATEST, lambda end: ends(start, end))

        def ends(start: int, end: int) -> None:
            self._carry_out(asked, asked.following.on_offsets(asked.wanted, start, end))
            asked.following.resume()
            self._delayed.pop(asked.partition.key, None)
            self._changed[asked.partition.key] = None
            self._send_soon()

        self._ask_offset(asked, EARLIEST_LOCAL, begins)

    def _ask_offset(self, asked: _Asked, timestamp: int, then: Callable[[int], None]) -> None:
        """Ask the leader for an offset; after an error the next fetch is refused again."""
        key = asked.partition.key
        query = ListOffsetsPartition(
            partition_index=key.partition,
            current_leader_epoch=asked.wanted.leader_epoch,
            timestamp=timestamp,
        )

        def answered(answer: Message) -> None:
            assert isinstance(answer, ListOffsetsResponse)
            found = [each for topic in answer.topics for each in topic.partitions]
            if self._is_closed or not asked.is_current or key not in self.partitions:
                return
            if len(found) == 1 and not found[0].error_code:
                then(found[0].offset)

        request = ListOffsetsRequest(
            replica_id=self._broker.node_id,
            topics=[ListOffsetsTopic(name=key.topic, partitions=[query])],
        )
        self.lane.send(request, answered, lambda _error: None)

    def _arm(self) -> None:
        """Wake up when the first delay is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._delayed and not self._is_closed:
            wait_ms = max(min(self._delayed.values()) - self._broker.clock.monotonic_ms(), 0)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._send_soon)


def _partitions_of(answer: FetchResponse) -> Iterator[tuple[PartitionId, PartitionData]]:
    for topic in answer.responses:
        for data in topic.partitions:
            yield (topic.topic_id, data.partition_index), data
