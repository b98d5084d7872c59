"""A partition as this node holds it: its log, whether it leads, and what is committed. Hot path.

What is appended is *written* at once and *committed* when the high watermark has passed it. Only
committed records may be shown to clients, and only ``advance_high_watermark`` commits: it moves the
watermark and wakes all that waits for it, in this order:

- requests that wait for an offset of their own (``when_committed``): produce with acks=all, markers
- the coordinator of an internal topic (``on_advanced``), which holds its replies back
- fetches, which are delayed operations on the key of the partition

A leader that is its partition's only replica commits an append inline, and nothing waits.

A partition is led, or it is not: then appends and reads are refused by ``Replicas.leader``. When
leadership is lost (``resign``) each waiter gets an answer: its records may be taken back by the new
leader, or they may not; the client must ask the new leader.

Benchmark: ``bench/node.py``.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from odradek.broker.delayed import DelayedOperations
from odradek.broker.metrics.traffic import TopicTraffic
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.records.batch import parse_header
from odradek.storage.log import AppendResult, Isolation, Log
from odradek.storage.log_read import ReadResult
from odradek.storage.log_store import LogStore
from odradek.storage.opening import Budget, OpeningDeferredError
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.validation import ValidBatch, WritableBuffer

WAITERS_MAX: Final = 100_000
"""Requests that may wait for one partition's commits; further ones are answered as timed out."""

Outcome = Callable[[ErrorCode], None]
"""Gets NONE when what was waited for is committed, else why it never may be, as far as is known."""


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


class Partition:
    """A local copy of a partition."""

    __slots__ = (
        "_delayed",
        "_is_waking",
        "_store",
        "_verifications",
        "_waiters",
        "are_commits_held",
        "epoch_start_offset",
        "is_leader",
        "key",
        "leader_epoch",
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
        delayed: DelayedOperations,
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.log = log
        self.traffic = traffic
        self.leader_epoch = -1
        self.is_leader = False
        self.epoch_start_offset = 0
        """Where the log ended when this node became leader. Behind it the watermark may be old."""
        self.are_commits_held = False
        """A test's fault holds the high watermark where it is."""
        self.on_advanced: Callable[[], None] | None = None
        """Set by a coordinator while some of what it has written is not committed."""
        self._store = store
        self._delayed = delayed
        self._is_waking = False
        self._waiters: OrderedDict[Outcome, int] = OrderedDict()
        self._verifications: dict[int, Verification] = {}

    # Leadership.

    def become_leader(self, leader_epoch: int) -> None:
        if self.is_leader and leader_epoch == self.leader_epoch:
            return
        self.leader_epoch = leader_epoch
        self.is_leader = True
        self.epoch_start_offset = self.log.log_end_offset
        self.log.begin_epoch(leader_epoch)
        self.commit()

    def resign(self, leader_epoch: int, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Lead no longer: another node does, or none, or the partition is gone.

        Its coordinator, if it has one, must be given up before.
        """
        self.leader_epoch = leader_epoch
        if not self.is_leader:
            return
        self.is_leader = False
        assert self.on_advanced is None, "a coordinator's answers are still held"
        self._verifications.clear()
        self.refuse_waiters(code)
        self._delayed.notify(self.key)

    def on_log_moved(self, log: Log) -> None:
        """Go on with the log in another directory, which took the place of the old one."""
        self.log = log
        if self.is_leader:
            log.begin_epoch(self.leader_epoch)

    # The high watermark.

    def commit(self) -> None:
        """Commit what may be: alone, a leader need not wait for others to have it."""
        if not self.are_commits_held:
            self.advance_high_watermark(self.log.log_end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Commit all before ``offset`` and wake who waits for it; the watermark never goes back."""
        log = self.log
        if offset <= log.high_watermark:
            return
        log.update_high_watermark(offset)
        if self._waiters or self.on_advanced is not None:
            self._wake()
        self._delayed.notify(self.key)

    def when_committed(self, offset: int, outcome: Outcome) -> None:
        """Call ``outcome`` when all before ``offset`` is committed: now, if it is."""
        if offset <= self.log.high_watermark:
            outcome(ErrorCode.NONE)
        elif not self.is_leader:
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
            outcome(ErrorCode.NONE)

    # Records.

    def append(
        self,
        records: WritableBuffer,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        budget: Budget | None = None,
        opened: ValidBatch | ApiError | None = None,
    ) -> AppendResult:
        """Append as the leader; alone, commit it and wake whoever waits for records here.

        Raises:
            ApiError: The batch is refused.
            OpeningDeferredError: The ``budget`` is spent: it is to be ``opened`` elsewhere first.
        """
        log, traffic = self.log, self.traffic
        traffic.total_produce_requests += 1
        try:
            if isinstance(opened, ApiError):
                raise opened
            with self._store.writing_guard(self.key):
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
            raise
        traffic.messages_in += result.last_offset - result.base_offset + 1
        traffic.bytes_in += len(records)
        if self._verifications and origin is AppendOrigin.COORDINATOR:
            self._void_verification(records)
        if not self.are_commits_held:
            self.advance_high_watermark(log.log_end_offset)
        return result

    def read(self, offset: int, bytes_max: int, isolation: Isolation, *, first: bool) -> ReadResult:
        """Read as the leader; only the ``first`` partition of a fetch may overrun its limit."""
        self.traffic.total_fetch_requests += 1
        try:
            with self._store.guard(self.key):
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

    # Transactions.

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer is open here."""
        state = self.log.producer_states.active_producers.get(producer_id)
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
        assert self.is_leader or not (offsets or self._verifications)
        assert all(each.asking > 0 for each in self._verifications.values())
