"""Fetch (key 1), versions 4-18: read record batches, waiting for them if asked to. Hot path.

v4   isolation level, aborted transactions.  v5  log start offset.  v7  fetch sessions (KIP-227),
     see ``fetch_sessions``.  v9  current leader epoch.  v11  rack id, preferred read replica.
v12  flexible; last fetched epoch, diverging epoch (KIP-595).  v13  topics by id.  v15  replica
     state.  v16  current leader and its endpoint with errors about leadership.  v17  replica
     directory id.  v18  high watermark of the follower.

A fetch waits for ``min_bytes``, but not when the client must hear of something: a partition that
is led elsewhere, an offset out of range, a diverging epoch. A topic that does not exist is no
reason not to wait for the others, as in Kafka: clients would ask for it again in a tight loop.
Consumers that know of rack ids (v11) may read from followers, up to the high watermark there. With
``replica.selector.class`` a leader sends those that name their rack to a follower in it: they get
its id at once, and no records (``near_replicas``).
A follower that is not in sync gets no records of a partition that is throttled, while the rate of
these is exceeded (``throttles``). Its fetch waits until the rate may be down, and no longer.
Followers read to the end of the log. Where one has got to is taken from its request, when what it
asks for has been read without an error: not when a parked fetch is answered (KAFKA-8400).
Benchmark: ``bench/fetch.py``.

Not implemented: throttling of clients. Kafka takes a fetch of replica -3,
its own name for a log that moves between directories, for one of its own, and shows it records that
are not committed; here it is a consumer.
"""

from struct import Struct
from typing import Final

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.current_leader import find_current_leader
from odradek.broker.delayed import DelayedOperation
from odradek.broker.fetch_sessions import (
    Answers,
    CachedPartition,
    SessionlessFetch,
    broker_epoch_of,
)
from odradek.broker.near_replicas import find_near_replica
from odradek.broker.partition import Partition
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.storage.disk import Buffer
from odradek.storage.leader_epochs import UNDEFINED, UNDEFINED_EPOCH
from odradek.storage.log import Isolation, Log

VERSION_STORAGE_ERRORS: Final = 6
VERSION_FROM_FOLLOWERS: Final = 11
VERSION_TOPIC_IDS: Final = 13
VERSION_CURRENT_LEADER: Final = 16

_ISOLATIONS: Final = {0: Isolation.HIGH_WATERMARK, 1: Isolation.LAST_STABLE_OFFSET}
_DOES_NOT_EXIST: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LED_ELSEWHERE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_BATCH_PREFIX: Final = Struct(">qi")  # base offset, length of the rest


def handle(context: RequestContext, request: FetchRequest) -> Answer:
    if request.isolation_level not in _ISOLATIONS:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        scope = context.broker.fetch_sessions.open(
            request, by_id=context.version >= VERSION_TOPIC_IDS
        )
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    fetch = (_Fetch if scope.follower_id < 0 else _FollowerFetch)(context, request, scope)
    answers = fetch.read(is_first=True)
    if fetch.is_enough or request.max_wait_ms <= 0:
        return fetch.respond(answers)
    waiting = _DelayedFetch(fetch, answers)
    waiting.begin(answers)
    context.broker.delayed.wait(waiting)
    return PENDING


class _Fetch:
    """One request of a consumer while it is served."""

    __slots__ = (
        "_by_id",
        "_bytes_max",
        "_find",
        "_may_wait",
        "_node_endpoints",
        "_rack_id",
        "context",
        "is_enough",
        "isolation",
        "max_wait_ms",
        "min_bytes",
        "scope",
    )

    follower_id = -1

    def __init__(
        self, context: RequestContext, request: FetchRequest, scope: SessionlessFetch
    ) -> None:
        broker = context.broker
        self.scope = scope
        self.isolation = _ISOLATIONS[request.isolation_level]
        self.max_wait_ms = request.max_wait_ms
        self.is_enough = False
        self.context = context
        self._find = broker.replicas.leader
        self._rack_id = ""
        if context.version >= VERSION_FROM_FOLLOWERS:
            self._find = broker.replicas.replica
            if request.rack_id and broker.sends_to_near_replicas:
                self._rack_id = request.rack_id
        self._by_id = context.version >= VERSION_TOPIC_IDS
        self._bytes_max = min(request.max_bytes, broker.config.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self._bytes_max)
        self._node_endpoints: dict[int, NodeEndpoint] = {}
        self._may_wait = False

    def read(self, *, is_first: bool = False) -> Answers:
        """Read what there is, without what a session's client knows; set ``is_enough``.

        What was in a session and has nothing new is not read again until it does.
        """
        keeps_watching = self.scope.keeps_watching
        left, total = self._bytes_max, 0
        is_final, is_waiting = False, self.scope.is_any_settled
        answers: list[tuple[CachedPartition, PartitionData]] = []
        news: list[tuple[int, Partition]] = []
        self._may_wait = is_first and self.max_wait_ms > 0
        for cached in self.scope.partitions:
            try:
                replica = self.find(cached) if is_first else self.find_again(cached)
                data = self._read_partition(cached, replica, left, first=total == 0)
                if keeps_watching:
                    cached.watch(replica)
                    if data is None:
                        self._settle(cached, replica)
                if is_first and self.follower_id >= 0:
                    self._on_first_read(cached, replica, data)
            except ApiError as error:  # one bad partition must not fail its neighbours
                cached.is_found = False
                answers.append((cached, self._refused(cached, error.code)))
                is_final = is_final or error.code not in _DOES_NOT_EXIST
                continue
            is_waiting = True
            if data is None:
                continue
            answers.append((cached, data))
            if data.records:
                total += len(data.records)
                left = max(self._bytes_max - total, 0)
            elif data is _NEWS:
                news.append((len(answers) - 1, replica))
            elif data.diverging_epoch is not None or data.preferred_read_replica >= 0:
                is_final = True
        self.is_enough = is_final or not is_waiting or total >= self.min_bytes
        if news and self.is_enough:
            for slot, replica in news:
                cached, _ = answers[slot]
                answers[slot] = cached, _answer_of(cached.wanted, replica.log)
        return answers

    def respond(self, answers: Answers) -> FetchResponse:
        """Make the response, and count what it takes out.

        Not where it is read: a fetch that has to wait reads again when it is answered.
        """
        response = self.scope.respond(answers)
        if not response.error_code:
            self._count(answers)
        if self._node_endpoints:
            response.node_endpoints = list(self._node_endpoints.values())
        return response

    def _count(self, answers: Answers) -> None:
        traffic = self.context.broker.replicas.traffic
        for cached, data in answers:
            at = cached.partition
            if data.records and at is not None:
                traffic.on_consumed(at.topic, len(data.records))

    def deadline_ms(self) -> int:
        """Return until when it waits."""
        return self.context.broker.clock.monotonic_ms() + self.max_wait_ms

    def find(self, cached: CachedPartition) -> Partition:
        """Return the partition to read.

        Raises:
            ApiError: It is not here, or the client knows another epoch.
        """
        partition = cached.partition
        if self._by_id:  # looked up each time: a topic that is deleted loses its id
            name = self.context.broker.replicas.topic_name(cached.topic_id)
            if partition is None:
                partition = cached.partition = TopicPartition(name, cached.wanted.partition)
        elif partition is None:
            partition = cached.partition = TopicPartition(cached.topic, cached.wanted.partition)
        return self._find(partition, cached.wanted.current_leader_epoch)

    def find_again(self, cached: CachedPartition) -> Partition:
        """As ``find``, for a partition that this request has asked for before.

        What is watched is as it was unless the watch says otherwise. Whether a follower has been
        started again is a question of where it has got to, which is taken from its request once.
        """
        led = cached.led
        return led if led is not None and cached.is_found else self.find(cached)

    def _settle(self, cached: CachedPartition, led: Partition) -> None:
        """Leave a partition alone until it has news, unless more is to be had or decided."""
        if cached.wanted.fetch_offset < led.log.end_offset(self.isolation):
            return  # there was no room for it in the response
        assert cached.interest is not None
        cached.interest.changed.pop(cached, None)

    def _on_first_read(
        self, cached: CachedPartition, led: Partition, data: PartitionData | None
    ) -> None:
        """Take note of where a follower has got to."""

    def is_held_back(self, led: Partition) -> bool:  # noqa: ARG002
        """Whether no records of a partition may be sent now; those of consumers may."""
        return False

    def _read_partition(
        self, cached: CachedPartition, replica: Partition, left: int, *, first: bool
    ) -> PartitionData | None:
        """Read a partition; None if there is nothing that its client does not know.

        Raises:
            ApiError: For the client.
        """
        wanted, log = cached.wanted, replica.log
        if self._rack_id and replica.has_followers:
            near = self._find_near(replica, wanted.fetch_offset)
            if near is not None:
                return _sent_to(near, wanted, log)
        if wanted.last_fetched_epoch != UNDEFINED_EPOCH:
            diverging = find_diverging_epoch(log, wanted)
            if diverging is not None:
                return _diverging(wanted, log, diverging)
        result = replica.read(
            wanted.fetch_offset,
            min(left, wanted.partition_max_bytes),
            self.isolation,
            first=first,
        )
        records = result.records
        if records and not first and _is_cut(records):
            records = b""
        if not records:
            if not cached.is_news(log.high_watermark, log.log_start_offset):
                return None
            if self._may_wait and result.aborted_transactions is None:
                return _NEWS
        aborted = None
        if result.aborted_transactions is not None:
            aborted = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in result.aborted_transactions
            ]
        return _answer_of(wanted, log, records, aborted)

    def _find_near(self, led: Partition, offset: int) -> int | None:
        context = self.context
        led.traffic.total_fetch_requests += 1
        return find_near_replica(context.broker.image, led, offset, self._rack_id, context.listener)

    def _refused(self, cached: CachedPartition, code: ErrorCode) -> PartitionData:
        version = self.context.version
        if code == ErrorCode.KAFKA_STORAGE_ERROR and version < VERSION_STORAGE_ERRORS:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # old clients do not know the other
        data = PartitionData(
            partition_index=cached.wanted.partition,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=[] if code in _DOES_NOT_EXIST else None,  # as in Kafka
            records=b"",
        )
        if code in _LED_ELSEWHERE and version >= VERSION_CURRENT_LEADER and cached.partition:
            data.current_leader = self._current_leader(cached.partition)
        return data

    def _current_leader(self, at: TopicPartition) -> LeaderIdAndEpoch:
        """Return who leads a partition; a consumer's response also says where that is.

        Followers know the brokers' addresses from the metadata log.
        """
        leader = find_current_leader(self.context.broker.image, at, self.context.listener)
        if leader is None:
            return LeaderIdAndEpoch()
        if leader.endpoint is not None and self.follower_id < 0:
            self._node_endpoints[leader.leader_id] = NodeEndpoint(**leader.endpoint._asdict())
        return LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)


class _FollowerFetch(_Fetch):
    """One request of another broker, which reads to the end of the log and acknowledges by it."""

    __slots__ = ("_broker_epoch", "_is_throttled", "_quota", "follower_id")

    def __init__(
        self, context: RequestContext, request: FetchRequest, scope: SessionlessFetch
    ) -> None:
        super().__init__(context, request, scope)
        context.count_apart(context.broker.metrics.follower_fetches)
        self.follower_id = scope.follower_id
        self.isolation = Isolation.LOG_END
        self._find = context.broker.replicas.leader
        self._rack_id = ""
        self._broker_epoch = broker_epoch_of(request)
        quota = context.broker.throttles.leader
        self._quota = quota if quota.is_used else None
        self._is_throttled = False

    def find(self, cached: CachedPartition) -> Partition:
        replica = super().find(cached)
        self._check_follower(replica, cached.wanted.current_leader_epoch)
        return replica

    def _check_follower(self, led: Partition, claimed_epoch: int) -> None:
        """Refuse a broker that is not a replica of the partition, or an earlier run of one.

        Raises:
            ApiError: UNKNOWN_LEADER_EPOCH: it may know of an assignment that is news here, so that
                it will ask again; NOT_LEADER_OR_FOLLOWER.
        """
        assert led.leadership is not None
        follower_id = self.follower_id
        if follower_id not in led.leadership.followers:
            is_ahead = claimed_epoch == led.leader_epoch
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if is_ahead else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise ApiError(code, f"{led.key}: broker {follower_id} has no replica")
        if led.leadership.is_overtaken(follower_id, self._broker_epoch):
            problem = f"{led.key}: broker {follower_id} has been started again since"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, problem)

    def _settle(self, cached: CachedPartition, led: Partition) -> None:
        """As of a consumer; but one that is not in sync may join, and is looked at each time."""
        leadership = led.leadership
        if leadership is not None and self.follower_id in leadership.isr.committed:
            super()._settle(cached, led)

    def _on_first_read(
        self, cached: CachedPartition, led: Partition, data: PartitionData | None
    ) -> None:
        if data is None or data.diverging_epoch is None:
            # It may commit, which is news again.
            wanted = cached.wanted
            led.on_follower_fetch(
                self.follower_id, wanted.fetch_offset, wanted.log_start_offset, self._broker_epoch
            )

    # Throttles.

    def _read_partition(
        self, cached: CachedPartition, replica: Partition, left: int, *, first: bool
    ) -> PartitionData | None:
        if self.is_held_back(replica):
            left, first = 0, False
            self._is_throttled = True
        return super()._read_partition(cached, replica, left, first=first)

    def is_held_back(self, led: Partition) -> bool:
        """Whether it gets no records of a partition now, because others have had enough."""
        quota, leadership, at = self._quota, led.leadership, led.key
        return (
            quota is not None
            and leadership is not None
            and self.follower_id not in leadership.isr.committed
            and quota.is_throttled(at.topic, at.partition)
            and quota.is_exceeded(self.context.broker.clock.monotonic_ms())
        )

    def _count(self, answers: Answers) -> None:
        throttled, quota, broker = 0, self._quota, self.context.broker
        for cached, data in answers:
            at = cached.partition
            if not data.records or at is None:
                continue
            size = len(data.records)
            is_added = broker.image.is_adding(at, self.follower_id)
            broker.replicas.traffic.replicas.on_sent(size, is_added=is_added)
            if quota is not None and quota.is_throttled(at.topic, at.partition):
                throttled += size
        if quota is not None and throttled:
            quota.record(throttled, broker.clock.monotonic_ms())

    def deadline_ms(self) -> int:
        """Return until when it waits: a throttled partition is looked at again before the end."""
        deadline_ms = super().deadline_ms()
        if self._quota is not None and self._is_throttled:
            now_ms = self.context.broker.clock.monotonic_ms()
            deadline_ms = min(deadline_ms, self._quota.retry_at_ms(now_ms))
        return deadline_ms


_NEWS: Final = PartitionData()
"""Stands for an answer without records. It is made if its request does not wait: most do."""


def _answer_of(
    wanted: FetchPartition,
    log: Log,
    records: Buffer = b"",
    aborted: list[AbortedTransaction] | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=aborted,
        records=records,
    )


class _DelayedFetch(DelayedOperation):
    """A fetch that waits for ``min_bytes``, at most ``max_wait_ms``."""

    __slots__ = ("_fetch", "_refused", "isolation")

    def __init__(self, fetch: _Fetch, answers: Answers) -> None:
        # Whoever may wait was refused nothing but topics that do not exist.
        self._refused = {cached for cached, data in answers if data.error_code}
        self._fetch = fetch
        self.isolation = fetch.isolation
        super().__init__(fetch.deadline_ms())

    def begin(self, answers: Answers) -> None:
        """Watch the partitions; those of a session are watched already."""
        fetch = self._fetch
        fetch.scope.begin_waiting(self, [cached for cached, data in answers if data.records])
        if not fetch.scope.keeps_watching:
            for cached in fetch.scope.partitions:
                if cached not in self._refused:
                    cached.watch(fetch.find(cached))

    def wake(self) -> None:
        if not self.is_done:  # a client that did not wait for this one may have left it behind
            self._fetch.context.broker.delayed.wake(self)

    def can_complete(self) -> bool:
        """Whether enough has come; from offsets and sizes, without reading."""
        fetch, available = self._fetch, 0
        if fetch.scope.is_closed:
            return True
        for cached in fetch.scope.changed:
            if cached in self._refused:
                continue
            wanted, led = cached.wanted, cached.led
            if led is not None and cached.is_found:
                # It was sound when it was read, and only its end may have moved.
                end_offset = led.log.end_offset(fetch.isolation)
                if end_offset == wanted.fetch_offset:
                    continue
                # Not of a consumer: compaction may have left nothing before what is committed.
                if fetch.follower_id >= 0 and fetch.min_bytes <= 1 and wanted.partition_max_bytes:
                    if not fetch.is_held_back(led):
                        return True
                    continue
            try:
                replica = fetch.find_again(cached)
                log = replica.log
                if wanted.last_fetched_epoch != UNDEFINED_EPOCH and find_diverging_epoch(
                    log, wanted
                ):
                    return True
            except ApiError:
                return True  # the client must hear of it
            if fetch.is_held_back(replica):
                continue
            if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                return True
            count = replica.bytes_available(wanted.fetch_offset, fetch.isolation)
            available += min(count, wanted.partition_max_bytes)
        return available >= fetch.min_bytes

    def complete(self) -> None:
        fetch = self._fetch
        del self._fetch  # done operations are kept for a while
        fetch.scope.end_waiting()
        fetch.context.reply(fetch.respond(fetch.read()))


def find_diverging_epoch(log: Log, wanted: FetchPartition) -> EpochEndOffset | None:
    """Find where the log of somebody who fetched up to here parts from this one, if it does.

    Raises:
        ApiError: OFFSET_OUT_OF_RANGE: it cannot be told, or is before the start of the log.
    """
    is_within = log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset
    if is_within and wanted.last_fetched_epoch == log.leader_epochs.latest_epoch:
        return None  # nearly always
    end = log.leader_epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
    if end == UNDEFINED or wanted.fetch_offset < log.log_start_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.partition}: {wanted.fetch_offset} after epoch {wanted.last_fetched_epoch}",
        )
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
    return None


def _diverging(wanted: FetchPartition, log: Log, epoch: EpochEndOffset) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=epoch,
        aborted_transactions=None,
        records=b"",
    )


def _sent_to(replica_id: int, wanted: FetchPartition, log: Log) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        preferred_read_replica=replica_id,
        aborted_transactions=None,
        records=b"",
    )


def _is_cut(records: bytes | bytearray | memoryview) -> bool:
    """Whether not even the first batch is whole: a reader could do nothing with it."""
    if len(records) < _BATCH_PREFIX.size:
        return True
    _, length = _BATCH_PREFIX.unpack_from(records)
    return _BATCH_PREFIX.size + int(length) > len(records)
