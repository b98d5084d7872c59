"""The follower's half of a partition: what to fetch next, and what to do with an answer.

A follower fetches at the end of its log and names the epoch of its last record. If the leader's log
has no such record at that place, the answer says where the logs part (KIP-595), and the follower
cuts its own there. Its fetch offset is an acknowledgement: all before it is in its log.

``plan`` gives what to ask, each ``on_…`` gives what to do. An answer counts only for the question
it answers: ``Wanted`` is compared with what would be asked now, so an answer from before the
partition was given another leader, or was cut, is void (KAFKA-13266, KAFKA-18991).

No error ends a follower but that of its own disk. An offset out of the leader's range is normal
after an unclean election, deleted records or retention (KAFKA-7414).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.core.errors import ErrorCode
from odradek.replication.replica_log import ReplicaLog
from odradek.replication.truncation import truncation_offset

NO_EPOCH: Final = -1
RETRY_FIRST_MS: Final = 10
"""After the first refusal of a kind that metadata ends; each further one doubles it."""
REFUSALS_COUNTED_MAX: Final = 16
ENDED_BY_METADATA: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals of a leader that has not applied the metadata that elects it: it will within moments.
With the whole ``replica.fetch.backoff.ms``, as in Kafka, all acks=all writes would stand still for
a second."""


class Wanted(NamedTuple):
    """What is asked of the leader."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Diverged(NamedTuple):
    """Where the leader's records of the greatest epoch that both may have end."""

    epoch: int
    end_offset: int


class Progress(NamedTuple):
    """What a leader says of its log beside records."""

    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records, but none of a later epoch than ``leader_epoch`` (KAFKA-18723)."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log, also if no record goes: an epoch without records may.

    Below the high watermark committed records go: an unclean election let a leader without them
    win.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class TruncateFully:
    """Drop everything and begin again where the leader's log begins."""

    offset: int


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """Ask the leader where its log begins and ends, then ``Following.on_offsets``."""


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


Action = Append | Truncate | TruncateFully | FindOffsets | Nothing
NOTHING: Final = Nothing()


class Following:
    __slots__ = (
        "_backoff_ms",
        "_is_fenced",
        "_is_new",
        "_refusals",
        "_retry_at_ms",
        "has_failed",
        "leader_epoch",
        "leader_id",
        "log",
    )

    def __init__(
        self, log: ReplicaLog, leader_id: int, leader_epoch: int, backoff_ms: int = 1_000
    ) -> None:
        """``backoff_ms`` is how long nothing is asked after an error."""
        self._backoff_ms = backoff_ms
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._begin()

    def _begin(self) -> None:
        self.has_failed = False
        """Its own disk has failed: it asks for nothing more in this epoch."""
        self._is_fenced = False
        """The leader is in a later epoch, of which the metadata will tell."""
        self._is_new = True
        """Nothing has been asked in this epoch."""
        self._retry_at_ms: int | None = None
        self._refusals = 0
        """In this epoch, of a kind that metadata ends."""

    def follow(self, leader_id: int, leader_epoch: int) -> bool:
        """Follow as the metadata says; return whether that is another leader or epoch."""
        if (leader_id, leader_epoch) == (self.leader_id, self.leader_epoch):
            return False
        assert leader_epoch >= self.leader_epoch
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._begin()  # also after a failure: if its disk is to blame, that will say so again
        return True

    # What to ask.

    def plan(self, now_ms: int) -> Wanted | Truncate | None:
        """Return what to ask the leader; None if there is nothing to ask now.

        A log without epochs cannot be compared. It is cut at its high watermark first, as before
        epochs were there; once per epoch, because what is fetched then is not committed either.
        """
        if self._waits_for_metadata:
            return None
        if self._retry_at_ms is not None:
            if now_ms < self._retry_at_ms:
                return None
            self._retry_at_ms = None
        is_new, self._is_new = self._is_new, False
        log = self.log
        has_epochs = log.leader_epochs.latest_epoch is not None
        if is_new and not has_epochs and log.high_watermark < log.log_end_offset:
            return Truncate(log.high_watermark)
        return self.wanted

    @property
    def wanted(self) -> Wanted:
        log = self.log
        latest = log.leader_epochs.latest_epoch
        epoch = NO_EPOCH if latest is None else latest
        return Wanted(self.leader_epoch, log.log_end_offset, epoch, log.log_start_offset)

    @property
    def retry_at_ms(self) -> int | None:
        """When to ask again after an error; None also if only new metadata lets it ask again.

        A delay of the leader as a whole delays partitions that wait for metadata, too. When it is
        over, ``plan`` has nothing to ask: a caller that came back for it would come back for ever.
        """
        return None if self._waits_for_metadata else self._retry_at_ms

    @property
    def _waits_for_metadata(self) -> bool:
        return self.has_failed or self._is_fenced or self.leader_id < 0

    def is_answered_by(self, asked: Wanted) -> bool:
        """Whether what was asked is what would be asked now."""
        return (
            asked.leader_epoch == self.leader_epoch
            and asked.offset == self.log.log_end_offset
            and not self.has_failed
        )

    # What was answered.

    def on_records(self, asked: Wanted) -> Action:
        return Append(asked.leader_epoch) if self.is_answered_by(asked) else NOTHING

    def on_diverged(self, asked: Wanted, diverged: Diverged) -> Action:
        if not self.is_answered_by(asked):
            return NOTHING
        return Truncate(truncation_offset(self.log, diverged.epoch, diverged.end_offset))

    def on_offsets(self, asked: Wanted, leader_start: int, leader_end: int) -> Action:
        """Take where the leader's log begins and ends, asked for after OFFSET_OUT_OF_RANGE."""
        if not self.is_answered_by(asked):
            return NOTHING
        log = self.log
        if leader_end < log.log_end_offset:
            return Truncate(leader_end)
        if log.log_end_offset < leader_start:
            return TruncateFully(leader_start)
        return NOTHING  # the leader has gone on meanwhile; the next fetch will be in range

    def on_error(self, asked: Wanted, code: ErrorCode, now_ms: int) -> Action:
        if not self.is_answered_by(asked):
            return NOTHING
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return FindOffsets()
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            self._is_fenced = True
            return NOTHING
        self.delay(now_ms)
        if code in ENDED_BY_METADATA:
            self._retry_at_ms = now_ms + min(RETRY_FIRST_MS << self._refusals, self._backoff_ms)
            self._refusals = min(self._refusals + 1, REFUSALS_COUNTED_MAX)
        return NOTHING

    def delay(self, now_ms: int) -> None:
        """Ask nothing for a while: the leader cannot be reached, or refuses."""
        self._retry_at_ms = now_ms + self._backoff_ms

    def resume(self) -> None:
        """Ask on: what a delay was for has come."""
        self._retry_at_ms = None

    def fail(self) -> None:
        """Ask nothing more in this epoch: the own disk has failed."""
        self.has_failed = True

    def high_watermark_after(self, progress: Progress) -> int:
        """Return the high watermark to be set after a fetch; on a follower it may go back."""
        log = self.log
        return max(min(progress.high_watermark, log.log_end_offset), log.log_start_offset)

    def check_invariants(self) -> None:
        log = self.log
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
