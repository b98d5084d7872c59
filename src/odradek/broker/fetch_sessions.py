"""Incremental fetch sessions (KIP-227): what a client wants, kept from one fetch to the next.

A client that fetches from many partitions would name all of them in every request and get all of
them in every response, though most have nothing new. With a session it names what changed and
hears of what changed. Hot path; benchmark: ``bench/fetch.py``.

::

    session id   epoch   what it asks for
    0            0       everything is named; make a session if there is room
    id           0       the same, instead of that session
    any          -1      everything is named, no session; one that is named is closed
    id           n       epoch n of that session: only what changed is named

An epoch is used once: after the largest int32 comes 1. A request with another epoch than the next
is a duplicate or the answer to it was lost; the client then starts over.

A session belongs to no connection and to no principal, as in Kafka: whoever knows its id may use
it, and sees no more than what it may fetch without.

A fetch costs what has changed, however many partitions its session has. Once a partition was read
and there was nothing that the client does not know, it is *settled*: the session watches the
partition (``Partition.watch``), and it is read again when that has news. ``Interest.changed`` has
the others, in the order in which they are read; one that had records goes to the back, so that all
get their turn when ``max_bytes`` does not suffice for all.

Topics are known by name, from version 13 on by id; an
id that is not known (yet) stays in the session and is looked up anew each time. (Kafka remembers
the name of an id, and answers for a topic that is deleted with another error code: here a session
never sees anything that a fetch without one would not.)

Room is short. When all slots are taken a new session may drive out one that was not used for two
minutes, or, if it is a follower's, that of a consumer, or a smaller one that is two minutes old.
Whoever gets no session is answered with session id 0 and goes on naming everything.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, Protocol, TypeAlias

from odradek.broker.partition import Partition
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import ZERO_UUID, TopicPartition, Uuid
from odradek.protocol.generated.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.replication.follower_state import NO_BROKER_EPOCH
from odradek.storage.log import Isolation, Log

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
SESSION_ID_MAX: Final = 2**31 - 1

EVICTION_MS: Final = 120_000
"""How long a session is safe from being driven out by its equals."""

PARTITIONS_MAX: Final = 1_000_000
"""Of all sessions together. Kafka has no such limit; one client could fill the memory."""

NOT_TOLD: Final = -1

PartitionKey: TypeAlias = tuple[str | Uuid, int]
Answers: TypeAlias = Sequence[tuple["CachedPartition", PartitionData]]


class Waiting(Protocol):
    """A fetch that waits for records."""

    @property
    def isolation(self) -> Isolation: ...

    def wake(self) -> None:
        """Look soon whether there are enough."""


class Interest:
    """What may have something new of what a fetch or a session wants, and who waits for it."""

    __slots__ = ("changed", "follower_id", "is_closed", "last_used_ms", "waiting")

    def __init__(self, follower_id: int, now_ms: int) -> None:
        self.follower_id = follower_id
        self.last_used_ms = now_ms
        self.changed: dict[CachedPartition, None] = {}
        self.waiting: Waiting | None = None
        self.is_closed = False

    def take(self, partitions: Iterable["CachedPartition"]) -> None:
        """Be told of these from now on."""
        for cached in partitions:
            cached.interest = self

    def close(self, partitions: Iterable["CachedPartition"]) -> None:
        """Watch no more; a fetch that waits still is to be answered."""
        self.is_closed = True
        for cached in partitions:
            cached.unwatch()
        if self.waiting is not None:
            self.waiting.wake()


class CachedPartition:
    """One partition of a fetch: what is wanted of it, and what the client was last told.

    It watches the partition for the fetch or session whose ``interest`` it is.
    """

    __slots__ = (
        "high_watermark",
        "interest",
        "is_found",
        "led",
        "log_start_offset",
        "partition",
        "topic",
        "topic_id",
        "wanted",
    )

    def __init__(self, topic: FetchTopic, wanted: FetchPartition) -> None:
        self.topic = topic.topic
        self.topic_id = topic.topic_id
        self.wanted = wanted
        self.partition: TopicPartition | None = None
        """For whoever looks up the name of a topic to keep the result."""
        self.high_watermark = NOT_TOLD
        self.log_start_offset = NOT_TOLD
        self.interest: Interest | None = None
        self.led: Partition | None = None
        """What is watched."""
        self.is_found = False
        """Whether ``led`` was found to be readable as it is wanted, and was not changed since."""

    # As a watch.

    @property
    def follower_id(self) -> int:
        return -1 if self.interest is None else self.interest.follower_id

    @property
    def settled_ms(self) -> int | None:
        interest = self.interest
        return None if interest is None or self in interest.changed else interest.last_used_ms

    def on_moved(self, log: Log) -> None:
        interest = self.interest
        assert interest is not None
        interest.changed[self] = None
        waiting = interest.waiting
        if waiting is None:
            return
        offset = self.wanted.fetch_offset
        if log.end_offset(waiting.isolation) > offset or log.log_start_offset > offset:
            waiting.wake()

    def on_changed(self) -> None:
        interest = self.interest
        assert interest is not None
        self.is_found = False
        interest.changed[self] = None
        if interest.waiting is not None:
            interest.waiting.wake()

    def watch(self, led: Partition) -> None:
        """Watch a partition, and no other."""
        if self.led is not led:
            self.unwatch()
            self.led = led
            led.watch(self)
        self.is_found = True

    def unwatch(self) -> None:
        if self.led is not None:
            self.led.unwatch(self)
            self.led = None
            self.is_found = False

    # What the client knows.

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client must hear of the partition, even if there are no records for it."""
        return high_watermark != self.high_watermark or log_start_offset != self.log_start_offset

    def on_told(self, data: PartitionData) -> None:
        # After an error the client must hear that it is over, whatever the offsets are then. With
        # a diverging epoch it cuts its log, and takes nothing else from the answer.
        is_void = data.error_code or data.diverging_epoch is not None
        self.high_watermark = NOT_TOLD if is_void else data.high_watermark
        self.log_start_offset = data.log_start_offset

    def on_asked_again(self) -> None:
        """Take nothing for granted: a follower that asks anew may not have used the last answer."""
        self.high_watermark = NOT_TOLD


class SessionlessFetch:
    """The partitions of one fetch, and how its response is made."""

    __slots__ = ("_interest", "_named", "follower_id")

    keeps_watching = False
    """Whether a later fetch needs to be told only what has changed since this one."""
    is_any_settled = False
    """Whether there are partitions that need not be read and may be waited for."""

    def __init__(self, partitions: list[CachedPartition], follower_id: int) -> None:
        self._named = partitions
        self.follower_id = follower_id
        self._interest: Interest | None = None

    @property
    def partitions(self) -> list[CachedPartition]:
        """To be read in this order."""
        return self._named

    @property
    def is_closed(self) -> bool:
        return False

    def begin_waiting(self, waiting: Waiting, available: Iterable[CachedPartition]) -> None:
        """Be woken when there is news; of these partitions there is some."""
        interest = self._interest = Interest(self.follower_id, 0)
        interest.waiting = waiting
        interest.take(self._named)
        interest.changed.update(dict.fromkeys(available))

    def end_waiting(self) -> None:
        if self._interest is not None:
            self._interest.waiting = None
            self._interest.close(self._named)

    @property
    def changed(self) -> Iterable[CachedPartition]:
        """What may have something new, of a fetch that waits."""
        return () if self._interest is None else self._interest.changed

    def respond(self, answers: Answers) -> FetchResponse:
        """Make the response; of a session, partitions without news may be left out."""
        return _response(NO_SESSION, answers)


class FullFetch(SessionlessFetch):
    """A fetch that names everything and would like to have a session."""

    __slots__ = ("_by_id", "_isolation_level", "_sessions")

    def __init__(
        self,
        sessions: "FetchSessions",
        partitions: list[CachedPartition],
        follower_id: int,
        isolation_level: int,
        *,
        by_id: bool,
    ) -> None:
        super().__init__(partitions, follower_id)
        self._sessions = sessions
        self._by_id = by_id
        self._isolation_level = isolation_level

    def respond(self, answers: Answers) -> FetchResponse:
        for cached, data in answers:
            cached.on_told(data)
        session_id = self._sessions.create(
            self._named, self.follower_id, self._isolation_level, by_id=self._by_id
        )
        return _response(session_id, answers)


class IncrementalFetch(SessionlessFetch):
    """A fetch within a session."""

    __slots__ = ("_epoch", "_session")

    keeps_watching = True

    def __init__(self, session: "FetchSession") -> None:
        super().__init__([], session.follower_id)
        self._session = session
        self._epoch = session.epoch

    @property
    def partitions(self) -> list[CachedPartition]:
        return list(self._session.changed)

    @property
    def is_any_settled(self) -> bool:  # type: ignore[override]
        return len(self._session.changed) < len(self._session.partitions)

    @property
    def is_closed(self) -> bool:
        return self._session.is_closed

    def begin_waiting(self, waiting: Waiting, available: Iterable[CachedPartition]) -> None:  # noqa: ARG002
        self._session.waiting = waiting

    def end_waiting(self) -> None:
        if self._session.epoch == self._epoch:
            self._session.waiting = None

    @property
    def changed(self) -> Iterable[CachedPartition]:
        return self._session.changed

    def respond(self, answers: Answers) -> FetchResponse:
        session = self._session
        if session.epoch != self._epoch:  # the client did not wait for this response
            return FetchResponse(
                error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id
            )
        for cached, data in answers:
            cached.on_told(data)
            if data.records and cached in session.changed:
                del session.changed[cached]
                session.changed[cached] = None  # at the back
        return _response(session.session_id, answers)


class FetchSession(Interest):
    __slots__ = (
        "by_id",
        "created_ms",
        "epoch",
        "is_old",
        "is_privileged",
        "isolation_level",
        "partitions",
        "session_id",
        "size",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, CachedPartition],
        follower_id: int,
        isolation_level: int,
        *,
        by_id: bool,
        now_ms: int,
    ) -> None:
        super().__init__(follower_id, now_ms)
        self.session_id = session_id
        self.partitions = partitions
        self.isolation_level = isolation_level
        self.by_id = by_id
        self.is_privileged = follower_id >= 0
        self.created_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        # As the cache last saw them; see FetchSessions._touch.
        self.size = len(partitions)
        self.is_old = False
        self.take(partitions.values())
        self.changed = dict.fromkeys(partitions.values())

    @property
    def eviction_key(self) -> tuple[bool, int, int]:
        """Sessions with a lower one are driven out first."""
        return self.is_privileged, self.size, self.session_id

    def update(self, request: FetchRequest) -> None:
        """Take note of what a request names and what it forgets."""
        partitions = self.partitions
        for topic in request.topics:
            name: str | Uuid = topic.topic_id if self.by_id else topic.topic
            for wanted in topic.partitions:
                cached = partitions.get((name, wanted.partition))
                if cached is None:
                    cached = partitions[name, wanted.partition] = CachedPartition(topic, wanted)
                    cached.interest = self
                else:
                    cached.wanted = wanted
                    cached.is_found = False
                    if self.is_privileged:
                        cached.on_asked_again()
                self.changed[cached] = None
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.by_id else forgotten.topic
            for number in forgotten.partitions:
                cached = partitions.pop((name, number), None)
                if cached is not None:
                    cached.unwatch()
                    self.changed.pop(cached, None)

    def look_again(self) -> None:
        """Settle nothing: what is wanted is seen otherwise now."""
        self.changed.update(dict.fromkeys(self.partitions.values()))


class FetchSessions:
    """The cache of sessions. ``sessions``, ``partitions`` and ``evictions`` are for metrics."""

    def __init__(self, slots_max: int, monotonic_ms: Callable[[], int], random: Random) -> None:
        self.partitions = 0
        """How many partitions all sessions hold together."""
        self.evictions = 0
        """How many sessions were driven out since the start."""
        self._slots_max = slots_max
        self._monotonic_ms = monotonic_ms
        self._random = random
        self._sessions: dict[int, FetchSession] = {}  # the one that was used last comes last
        # Keys of those that a consumer may drive out, and those that a follower may; sorted.
        self._evictable_by_all: list[tuple[bool, int, int]] = []
        self._evictable_by_privileged: list[tuple[bool, int, int]] = []

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, *, by_id: bool) -> SessionlessFetch:
        """Return what a request is about, with the help of its session if it has one.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR: for the response as a whole.
        """
        epoch = request.session_epoch
        if epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._open_incremental(request, by_id)
        old = self._sessions.get(request.session_id)
        if old is not None:
            self._remove(old)
        partitions = _named_partitions(request, by_id)
        follower_id = follower_of(request)
        if epoch == FINAL_EPOCH:
            return SessionlessFetch(partitions, follower_id)
        return FullFetch(self, partitions, follower_id, request.isolation_level, by_id=by_id)

    def _open_incremental(self, request: FetchRequest, by_id: bool) -> SessionlessFetch:
        session = self._sessions.get(request.session_id)
        follower_id = follower_of(request)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"{request.session_id}")
        if session.epoch != request.session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"{request.session_epoch} where {session.epoch} is next",
            )
        if session.follower_id != follower_id:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "it is of another kind")
        if session.by_id != by_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session began otherwise")
        if request.topics or request.forgotten_topics_data:
            session.update(request)
            if not session.partitions:
                self._remove(session)
                return SessionlessFetch(_named_partitions(request, by_id), follower_id)
        self._touch(session, self._monotonic_ms())
        if self.partitions > PARTITIONS_MAX:
            self._remove(session)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "too large to be kept")
        session.epoch = next_epoch(session.epoch)
        if session.isolation_level != request.isolation_level:
            session.isolation_level = request.isolation_level
            session.look_again()
        return IncrementalFetch(session)

    def create(
        self,
        partitions: Sequence[CachedPartition],
        follower_id: int,
        isolation_level: int,
        *,
        by_id: bool,
    ) -> int:
        """Make a session if there is room for it; return its id, or NO_SESSION."""
        now_ms, is_privileged = self._monotonic_ms(), follower_id >= 0
        size = len(partitions)
        if self.partitions + size > PARTITIONS_MAX:
            return NO_SESSION
        if len(self._sessions) >= self._slots_max and not self._evict(is_privileged, size, now_ms):
            return NO_SESSION
        session = FetchSession(
            self._new_id(),
            {_key(cached, by_id): cached for cached in partitions},
            follower_id,
            isolation_level,
            by_id=by_id,
            now_ms=now_ms,
        )
        self._sessions[session.session_id] = session
        self._enlist(session)
        return session.session_id

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randint(1, SESSION_ID_MAX)
            if session_id not in self._sessions:
                return session_id

    def _evict(self, is_privileged: bool, size: int, now_ms: int) -> bool:
        """Drive out a session that is worth less than a new one of this kind; whether one was."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            victim = oldest
        else:
            keys = self._evictable_by_privileged if is_privileged else self._evictable_by_all
            if not keys or (is_privileged, size, NO_SESSION) < keys[0]:
                return False
            victim = self._sessions[keys[0][2]]
        self._remove(victim)
        self.evictions += 1
        return True

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        """Take note that a session was used, and how large it is now."""
        session.last_used_ms = now_ms
        sessions = self._sessions
        sessions[session.session_id] = sessions.pop(session.session_id)
        is_old = now_ms - session.created_ms > EVICTION_MS
        size = len(session.partitions)
        if size != session.size or is_old != session.is_old:
            self._delist(session)
            session.size, session.is_old = size, is_old
            self._enlist(session)

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._delist(session)
        session.close(session.partitions.values())

    def _enlist(self, session: FetchSession) -> None:
        self.partitions += session.size
        if session.is_old or not session.is_privileged:
            insort(self._evictable_by_privileged, session.eviction_key)
        if session.is_old:
            insort(self._evictable_by_all, session.eviction_key)

    def _delist(self, session: FetchSession) -> None:
        self.partitions -= session.size
        key = session.eviction_key
        for keys in (self._evictable_by_privileged, self._evictable_by_all):
            slot = bisect_left(keys, key)
            if slot < len(keys) and keys[slot] == key:
                del keys[slot]

    def check_invariants(self) -> None:
        sessions = list(self._sessions.values())
        assert len(sessions) <= self._slots_max
        assert self.partitions == sum(len(each.partitions) for each in sessions) <= PARTITIONS_MAX
        assert all(each.size == len(each.partitions) for each in sessions)
        used = [each.last_used_ms for each in sessions]
        assert used == sorted(used)
        by_all = sorted(each.eviction_key for each in sessions if each.is_old)
        assert by_all == self._evictable_by_all
        by_privileged = sorted(
            each.eviction_key for each in sessions if each.is_old or not each.is_privileged
        )
        assert by_privileged == self._evictable_by_privileged
        for each in sessions:
            assert all(_key(cached, each.by_id) == key for key, cached in each.partitions.items())
            partitions = set(each.partitions.values())
            assert set(each.changed) <= partitions
            assert all(cached.interest is each for cached in partitions)
            assert all(cached.led is not None for cached in partitions - set(each.changed))


def next_epoch(epoch: int) -> int:
    return 1 if epoch == EPOCH_MAX else epoch + 1


def _key(cached: CachedPartition, by_id: bool) -> PartitionKey:
    return cached.topic_id if by_id else cached.topic, cached.wanted.partition


def follower_of(request: FetchRequest) -> int:
    """Return the id of the broker that fetches; -1 for a consumer."""
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return state.replica_id
    return max(request.replica_id, -1)


def broker_epoch_of(request: FetchRequest) -> int:
    """Return the epoch of the broker that fetches, where it says so."""
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return state.replica_epoch
    return NO_BROKER_EPOCH


def _named_partitions(request: FetchRequest, by_id: bool) -> list[CachedPartition]:
    """Return the partitions that a request names; of one that it names twice, the last."""
    found: dict[PartitionKey, CachedPartition] = {}
    for topic in request.topics:
        name: str | Uuid = topic.topic_id if by_id else topic.topic
        for wanted in topic.partitions:
            found[name, wanted.partition] = CachedPartition(topic, wanted)
    return list(found.values())


def _response(session_id: int, answers: Answers) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    topic_id, name = ZERO_UUID, ""
    partitions: list[PartitionData] = []
    for cached, data in answers:
        if not topics or cached.topic_id != topic_id or cached.topic != name:
            topic_id, name, partitions = cached.topic_id, cached.topic, []
            topics.append(
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
            )
        partitions.append(data)
    return FetchResponse(session_id=session_id, responses=topics)
