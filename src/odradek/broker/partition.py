"""A partition as this node holds it: its log, whether it leads, and what is committed. Hot path.

What is appended is *written* at once and *committed* when the high watermark has passed it. Only
committed records may be shown to clients, and only ``advance_high_watermark`` commits: it moves the
watermark and wakes all that waits for it, in this order:

- requests that wait for an offset of their own (``when_committed``): produce with acks=all, markers
- the coordinator of an internal topic (``on_advanced``), which holds its replies back
- fetches that watch the partition (``Watch``), which are looked at in the next turn of the loop

A leader that is its partition's only replica commits an append inline, and nothing waits. With
followers an append wakes their fetches, and what they fetch moves the watermark (``Leadership``).
Fetches of followers watch the end of the log, those of consumers what is committed.

A partition is led here, followed, or neither: it is only led if ``leadership`` is there, and only
followed if ``following`` is. Otherwise appends and reads are refused by ``Replicas.leader``. When
leadership is lost (``resign``) each waiter gets an answer: its records may be taken back by the new
leader, or they may not; the client must ask the new leader.

Benchmark: ``bench/node.py``.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.broker.metrics.traffic import TopicTraffic
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.records.batch import HEADER_BYTES, parse_header
from odradek.replication.leadership import (
    Enough,
    FindBroker,
    LeaderSettings,
    Leadership,
    Proposal,
    Registration,
)
from odradek.storage.disk import Buffer
from odradek.storage.log import AppendResult, Isolation, Log
from odradek.storage.log_read import ReadResult
from odradek.storage.log_store import LogStore
from odradek.storage.opening import Budget, OpeningDeferredError
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.validation import ValidBatch, WritableBuffer

if TYPE_CHECKING:
    from odradek.replication.following import Following, Progress

WAITERS_MAX: Final = 100_000
"""Requests that may wait for one partition's commits; further ones are answered as timed out."""

Outcome = Callable[[ErrorCode], None]
"""Gets NONE when what was waited for is committed, else why it never may be, as far as is known."""


class Watch(Protocol):
    """Somebody's interest in a partition: what a fetch or a session of fetches wants of it."""

    @property
    def follower_id(self) -> int:
        """-1 for a consumer."""

    @property
    def settled_ms(self) -> int | None:
        """When it last was told, or asked, and there was nothing new; None if there may be."""

    def on_moved(self, log: Log) -> None:
        """Offsets of the log have moved."""

    def on_changed(self) -> None:
        """The partition is led otherwise, or not at all, or cannot be read."""


class Verification:
    """A question to a transaction coordinator that is under way (KIP-890).

    Its identity is the guard: an answer counts only while the partition still holds this object. A
    flag would not do. A marker may end the transaction, and another question begin, in between.
    """

    __slots__ = ("asking", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.asking = 0


class ReplicaPorts(NamedTuple):
    """What a partition needs of its broker to be replicated."""

    node_id: int
    monotonic_ms: Callable[[], int]
    find_broker: FindBroker
    propose: "Callable[[Partition, Proposal], None]"
    """Has the controller confirm a new ISR."""
    fetch_backoff_ms: int
    """``replica.fetch.backoff.ms``"""
    flush: "Callable[[Partition], None]"
    """Has what the log holds now synced, and commits it then."""


class Partition:
    """A local copy of a partition."""

    __slots__ = (
        "_deletions",
        "_directory",
        "_end_watches",
        "_is_waking",
        "_ports",
        "_settings",
        "_store",
        "_verifications",
        "_waiters",
        "_watches",
        "are_commits_held",
        "following",
        "has_followers",
        "key",
        "leader_epoch",
        "leadership",
        "log",
        "on_advanced",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        key: TopicPartition,
        topic_id: Uuid,
        log: Log,
        traffic: TopicTraffic,
        store: LogStore,
        ports: ReplicaPorts,
        settings: LeaderSettings,
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.log = log
        self.traffic = traffic
        self.leader_epoch = -1
        self.leadership: Leadership | None = None
        self.following: Following | None = None
        self.has_followers = False
        """Whether it is led here and has other replicas."""
        self.are_commits_held = False
        """A test's fault holds the high watermark where it is."""
        self.on_advanced: Callable[[], None] | None = None
        """Set by a coordinator while some of what it has written is not committed."""
        self._store = store
        self._directory = store.directory_of(key)
        self._ports = ports
        self._settings = settings
        self._is_waking = False
        self._waiters: OrderedDict[Outcome, int] = OrderedDict()
        self._verifications: dict[int, Verification] = {}
        self._deletions: dict[Outcome, int] = {}
        self._watches: dict[Watch, None] = {}
        self._end_watches: dict[Watch, None] = {}
        log.on_log_start_moved = self._on_offsets_moved

    # Leadership.

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    def lead(self, registration: Registration) -> None:
        """Lead, or go on leading, as the metadata says."""
        self.following = None
        leadership = self.leadership
        if leadership is None:
            ports = self._ports
            leadership = Leadership(ports.node_id, self.log, self._settings, ports.find_broker)
        if leadership.take(registration, self._ports.monotonic_ms()):
            self.leader_epoch = registration.leader_epoch
            self.log.begin_epoch(registration.leader_epoch)
        self.leadership = leadership
        self.has_followers = bool(leadership.followers)
        self.commit()
        self.on_changed()
        if self._deletions:
            self._end_deletions()  # a replica that has died counts no more

    def follow(self, leader_id: int, leader_epoch: int) -> bool:
        """Follow another node, or none if it is -1; return whether that is news.

        Its coordinator, if it has one, must be given up before.
        """
        self.resign(leader_epoch)
        if self.following is None:
            from odradek.replication.following import Following  # a node that is alone needs none

            backoff_ms = self._ports.fetch_backoff_ms
            self.following = Following(self.log, leader_id, leader_epoch, backoff_ms)
            return True
        is_news = self.following.follow(leader_id, leader_epoch)
        if is_news:
            self.on_changed()
        return is_news

    def resign(self, leader_epoch: int, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Lead no longer: another node does, or none, or the partition is gone.

        Its coordinator, if it has one, must be given up before.
        """
        self.leader_epoch = leader_epoch
        if self.leadership is None:
            return
        self.leadership = None
        self.has_followers = False
        assert self.on_advanced is None, "a coordinator's answers are still held"
        self._verifications.clear()
        self.refuse_waiters(code)
        self.on_changed()

    def on_log_moved(self, log: Log) -> None:
        """Go on with the log in another directory, which took the place of the old one."""
        self.log = log
        self._directory = self._store.directory_of(self.key)
        log.on_log_start_moved = self._on_offsets_moved
        if self.leadership is not None:
            self.leadership.log = log
            log.begin_epoch(self.leader_epoch)
        if self.following is not None:
            self.following.log = log
        self.on_changed()

    def on_settings_changed(self, settings: LeaderSettings) -> None:
        self._settings = settings
        if self.leadership is not None:
            self.leadership.update_settings(settings)
            self.commit()

    # The high watermark.

    def commit(self) -> None:
        """Commit what may be: what is in the log of everybody who counts."""
        self._commit(self._ports.monotonic_ms() if self.has_followers else 0)

    def _commit(self, now_ms: int) -> None:
        leadership = self.leadership
        if leadership is not None and not self.are_commits_held:
            end = leadership.high_watermark(now_ms)
            if end > self.log.high_watermark and self.has_followers and self.is_flush_due:
                # The followers synced what they asked behind, and this leader's disk counts as
                # theirs do: were all to lose their power, it might be the one that leads again.
                end = min(end, self.log.recovery_point)
                self._ports.flush(self)
            self.advance_high_watermark(end)

    def advance_high_watermark(self, offset: int) -> None:
        """Commit all before ``offset`` and wake who waits for it; the watermark never goes back."""
        log = self.log
        if offset <= log.high_watermark:
            return
        log.update_high_watermark(offset)
        if self._waiters or self.on_advanced is not None:
            self._wake()
        if self._watches or self._end_watches:
            self._on_offsets_moved()

    def find_outcome(self, offset: int) -> ErrorCode | None:
        """Return what ``when_committed`` would tell now, None if all is not committed yet."""
        return self._committed(offset) if offset <= self.log.high_watermark else None

    def when_committed(self, offset: int, outcome: Outcome) -> None:
        """Call ``outcome`` when all before ``offset`` is committed: now, if it is."""
        if offset <= self.log.high_watermark:
            outcome(self._committed(offset))
        elif self.leadership is None:
            outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif len(self._waiters) >= WAITERS_MAX:
            outcome(ErrorCode.REQUEST_TIMED_OUT)
        else:
            assert offset <= self.log.log_end_offset
            # In the order of their offsets. A duplicate may ask for an earlier one than the last
            # waiter; it waits for that one's.
            last = next(reversed(self._waiters.values()), offset)
            self._waiters[outcome] = max(offset, last)

    def forget(self, outcome: Outcome) -> None:
        """Call ``outcome`` no more: whoever waited has given up."""
        self._waiters.pop(outcome, None)

    def refuse_waiters(self, code: ErrorCode) -> None:
        """Answer all that wait for commits, as this node may never hear of them."""
        while self._waiters:
            outcome, _ = self._waiters.popitem(last=False)
            outcome(code)
        while self._deletions:
            outcome, _ = self._deletions.popitem()
            outcome(code)

    def _wake(self) -> None:
        # An answer may bring the next request of its connection, and that another append. If each
        # woke the next waiter from inside, the stack would be as deep as there are waiters.
        if self._is_waking:
            return
        self._is_waking = True
        try:
            reached = -1
            while reached < self.log.high_watermark:
                reached = self.log.high_watermark
                self._wake_up_to(reached)
                if self.on_advanced is not None:
                    self.on_advanced()
        finally:
            self._is_waking = False

    def _wake_up_to(self, offset: int) -> None:
        waiters = self._waiters
        while waiters:
            outcome = next(iter(waiters))
            if waiters[outcome] > offset:
                return
            del waiters[outcome]
            outcome(self._committed(offset))

    def _committed(self, offset: int) -> ErrorCode:
        """Return what to say of committed records: enough replicas have them, or too few."""
        leadership = self.leadership
        if leadership is None or not self.has_followers:
            return ErrorCode.NONE
        if leadership.enough(offset) is Enough.YES:
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # Records.

    def append(
        self,
        records: WritableBuffer,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        budget: Budget | None = None,
        opened: ValidBatch | ApiError | None = None,
        *,
        needs_all: bool = True,
    ) -> AppendResult:
        """Append as the leader; alone, commit it and wake whoever waits for records here.

        ``needs_all``: nothing is appended unless ``min.insync.replicas`` are in sync, since the
        caller will wait for all of them.

        Raises:
            ApiError: The batch is refused; NOT_ENOUGH_REPLICAS.
            OpeningDeferredError: The ``budget`` is spent: it is to be ``opened`` elsewhere first.
        """
        log, traffic = self.log, self.traffic
        traffic.total_produce_requests += 1
        try:
            if opened is not None and isinstance(opened, ApiError):
                raise opened
            if self.has_followers and needs_all:
                self._refuse_under_min_isr()
            with self._directory.writing_guard:
                result = log.append_as_leader(
                    records,
                    leader_epoch=self.leader_epoch,
                    now_ms=now_ms,
                    origin=origin,
                    transaction_version=transaction_version,
                    budget=budget,
                    valid=opened,
                )
        except OpeningDeferredError:
            traffic.total_produce_requests -= 1  # it comes again
            raise
        except ApiError as error:
            traffic.on_append_refused(error.code, len(records))
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.on_changed()
            raise
        traffic.messages_in += result.last_offset - result.base_offset + 1
        traffic.bytes_in += len(records)
        if self._verifications and origin is AppendOrigin.COORDINATOR:
            self._void_verification(records)
        if self.has_followers:
            self._on_end_moved()
            self.commit()
        elif not self.are_commits_held:
            self.advance_high_watermark(log.log_end_offset)
        return result

    def _refuse_under_min_isr(self) -> None:
        leadership = self.leadership
        if leadership is not None and leadership.is_under_min_isr:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.key}: the replicas in sync are {sorted(leadership.isr.committed)}, fewer "
                f"than min.insync.replicas ({leadership.min_isr})",
            )

    def read(self, offset: int, bytes_max: int, isolation: Isolation, *, first: bool) -> ReadResult:
        """Read as the leader; only the ``first`` partition of a fetch may overrun its limit."""
        self.traffic.total_fetch_requests += 1
        try:
            with self._directory.guard:
                return self.log.read(
                    offset, bytes_max=bytes_max, isolation=isolation, at_least_one_batch=first
                )
        except Exception as error:
            self.traffic.on_read_failed(error)
            raise

    def bytes_available(self, offset: int, isolation: Isolation) -> int:
        """Return about how many bytes from ``offset`` on a reader may see."""
        log = self.log
        end_offset = log.end_offset(isolation)
        if end_offset <= offset:
            return 0
        count = log.bytes_from(offset)
        # What is written but not committed is rare, or little: looked up only then.
        return count if end_offset == log.log_end_offset else count - log.bytes_from(end_offset)

    # Who watches.

    def watch(self, watch: Watch) -> None:
        """Tell a fetch what happens here, until ``unwatch``."""
        (self._watches if watch.follower_id < 0 else self._end_watches)[watch] = None

    def unwatch(self, watch: Watch) -> None:
        self._note_caught_up(watch)
        del (self._watches if watch.follower_id < 0 else self._end_watches)[watch]

    def _note_caught_up(self, watch: Watch) -> None:
        """Learn until when a follower was caught up that has asked for nothing new since."""
        at_ms, leadership = watch.settled_ms, self.leadership
        if at_ms is None or leadership is None:
            return
        follower = leadership.followers.get(watch.follower_id)
        # One that has been taken out of the ISR since may not fetch any more (``on_removed``).
        if follower is not None and watch.follower_id in leadership.isr.committed:
            follower.on_still_caught_up(at_ms)

    def _on_end_moved(self) -> None:
        log = self.log
        for watch in self._end_watches:
            self._note_caught_up(watch)
            watch.on_moved(log)

    def _on_offsets_moved(self) -> None:
        log = self.log
        for watch in self._watches:
            watch.on_moved(log)
        for watch in self._end_watches:
            watch.on_moved(log)

    def on_changed(self) -> None:
        """Have all who read here look again: it is led otherwise, or its disk has failed."""
        for watches in (self._watches, self._end_watches):
            for watch in watches:
                watch.on_changed()

    # Replication.

    def on_follower_fetch(
        self, node_id: int, offset: int, log_start_offset: int, broker_epoch: int
    ) -> None:
        """Take note of what a follower has; commit what all have now, have the ISR grow."""
        leadership = self.leadership
        assert leadership is not None
        now_ms = self._ports.monotonic_ms()
        proposal = leadership.on_fetch(node_id, offset, log_start_offset, broker_epoch, now_ms)
        self._commit(now_ms)
        if self._deletions:
            self._end_deletions()
        if proposal is not None:
            self._ports.propose(self, proposal)

    @property
    def low_watermark(self) -> int:
        """Return from where on the leader and all living followers have records."""
        leadership = self.leadership
        return self.log.log_start_offset if leadership is None else leadership.low_watermark()

    def when_deleted(self, offset: int, outcome: Outcome) -> None:
        """Call ``outcome`` when all living replicas begin at ``offset`` or later: now, if so."""
        if self.leadership is None:
            outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.low_watermark >= offset:
            outcome(ErrorCode.NONE)
        elif len(self._deletions) >= WAITERS_MAX:
            outcome(ErrorCode.REQUEST_TIMED_OUT)
        else:
            self._deletions[outcome] = offset

    def forget_deletion(self, outcome: Outcome) -> None:
        """Call ``outcome`` no more, but now if what it waits for has come unnoticed."""
        offset = self._deletions.pop(outcome, None)
        if offset is not None and self.low_watermark >= offset:
            outcome(ErrorCode.NONE)

    def _end_deletions(self) -> None:
        reached = self.low_watermark
        for outcome in [each for each, offset in self._deletions.items() if offset <= reached]:
            if self._deletions.pop(outcome, None) is not None:
                outcome(ErrorCode.NONE)

    def shrink_isr(self) -> None:
        """Propose an ISR without the followers that lag."""
        if self.leadership is None or not self.has_followers:
            return
        proposal = self.leadership.shrink(self._ports.monotonic_ms())
        if proposal is not None:
            self._ports.propose(self, proposal)

    def append_as_follower(
        self, records: Buffer, progress: "Progress", leader_epoch: int, now_ms: int
    ) -> None:
        """Append what the leader has sent, and follow its watermark and log start.

        Raises:
            CorruptionError: The records are damaged, or do not follow on.
            ApiError: KAFKA_STORAGE_ERROR.
        """
        following, log = self.following, self.log
        assert following is not None
        if records:
            self._begin_within_a_batch(records, now_ms)
            with self._directory.writing_guard:
                log.append_as_follower(records, now_ms=now_ms, leader_epoch=leader_epoch)
        with self._directory.guard:
            log.update_high_watermark(following.high_watermark_after(progress))
            if log.log_start_offset < progress.log_start_offset <= log.high_watermark:
                log.advance_log_start_offset(progress.log_start_offset)
        self._on_offsets_moved()  # consumers may read from followers

    def _begin_within_a_batch(self, records: Buffer, now_ms: int) -> None:
        """Let an empty log begin where the batch does that holds its end.

        The leader's records were deleted up to an offset within a batch, and this log was made to
        begin there. What it gets is the whole batch.
        """
        log = self.log
        if log.log_start_offset != log.log_end_offset or len(records) < HEADER_BYTES:
            return
        header = parse_header(records)
        if header.base_offset < log.log_end_offset <= header.last_offset:
            self.truncate_fully(header.base_offset, now_ms)

    @property
    def is_flush_due(self) -> bool:
        """Whether ``flush.messages`` is reached: it is synced before it is acknowledged."""
        log = self.log
        return log.log_end_offset - log.recovery_point >= log.config.flush_messages

    @property
    def is_disk_only_full(self) -> bool:
        """Whether its directory refuses writes for want of space, and may take them again."""
        return self._directory.is_full

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cut the log of a follower where it parts from its leader's."""
        self._store.truncate_to(self.key, offset, now_ms)
        self.on_changed()

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Drop all that a follower has; its log begins again where its leader's does."""
        self._store.truncate_fully_and_start_at(self.key, offset, now_ms)
        self.on_changed()

    # Transactions.

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer is open here."""
        state = self.log.producer_states.find(producer_id)
        return (
            state is not None
            and state.current_txn_first_offset is not None
            and state.producer_epoch == producer_epoch
        )

    def begin_verification(self, producer_id: int, producer_epoch: int) -> Verification:
        """Note that a coordinator is asked whether this partition is part of a transaction."""
        verification = self._verifications.get(producer_id)
        if verification is None or verification.producer_epoch < producer_epoch:
            verification = Verification(producer_id, producer_epoch)
            self._verifications[producer_id] = verification
        elif verification.producer_epoch > producer_epoch:
            return Verification(producer_id, producer_epoch)  # of a fenced producer: void
        verification.asking += 1
        return verification

    def end_verification(self, verification: Verification) -> bool:
        """Return whether its answer holds still; appends must follow in the same turn.

        It does not if meanwhile a marker ended a transaction of this producer here, if one of a
        later epoch has asked, or if this node stopped leading.
        """
        producer_id = verification.producer_id
        if self._verifications.get(producer_id) is not verification:
            return False
        verification.asking -= 1
        if not verification.asking:
            del self._verifications[producer_id]
        return True

    def _void_verification(self, records: WritableBuffer) -> None:
        header = parse_header(records)
        if header.is_control:
            self._verifications.pop(header.producer_id, None)

    def check_invariants(self) -> None:
        offsets = list(self._waiters.values())
        assert offsets == sorted(offsets)
        assert self.is_leader or not (offsets or self._verifications or self._deletions)
        assert self.leadership is None or self.following is None
        if self.leadership is not None:
            self.leadership.check_invariants()
            assert self.has_followers == bool(self.leadership.followers)
        assert all(each.asking > 0 for each in self._verifications.values())
