"""What the quorum has to know of the log, and where two logs part.

Records of one epoch are written by one leader, in order. So two logs that have the same epoch
before the same offset are equal up to there (Raft's log matching), and a follower needs to name but
its last offset and epoch for the leader to see whether its log is a prefix of the leader's.

What a snapshot covers may be gone from the log. A follower that is not past the log's start cannot
be compared any more and needs the latest snapshot first.
"""

from typing import Protocol

from odradek.raft.messages import OffsetAndEpoch


class LogView(Protocol):
    """The metadata log, read only. All answers come from memory."""

    @property
    def log_start_offset(self) -> int:
        """Where the records begin; more than 0 only if a snapshot covers what was before."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, be it in a snapshot alone; 0 if there is none."""

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return how many bytes a snapshot has; None if there is no such snapshot."""

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the greatest epoch with records that is at most ``epoch``, and where they end.

        For an epoch beyond the last: the log end offset and the last epoch. For one before the
        first: where the log starts, and the epoch asked for.
        """


def log_end(log: LogView) -> OffsetAndEpoch:
    return OffsetAndEpoch(log.log_end_offset, log.last_epoch)


def is_up_to_date(log: LogView, candidate: OffsetAndEpoch) -> bool:
    """Whether a log that ends at ``candidate`` holds all that this one could have committed."""
    return (candidate.epoch, candidate.offset) >= (log.last_epoch, log.log_end_offset)


def find_needed_snapshot(
    log: LogView, fetch_offset: int, last_fetched_epoch: int
) -> OffsetAndEpoch | None:
    """Return the snapshot without which a follower cannot go on; None if the log is enough.

    At the log's start, what came before it is known from the snapshot that ends there. A follower
    without a log is given the latest snapshot even if the log still reaches back to 0: it is
    shorter. The snapshot at 0 stands for no log; formatting left it, and it is never replicated.
    """
    earliest, start = log.earliest_snapshot, log.log_start_offset
    if earliest is None:
        return None
    if start == fetch_offset == 0:
        latest = log.latest_snapshot
        return latest if latest is not None and latest.offset > 0 else None
    is_at_start = fetch_offset == start and last_fetched_epoch != earliest.epoch
    if fetch_offset < start or is_at_start or last_fetched_epoch < earliest.epoch:
        return log.latest_snapshot
    return None


def find_divergence(
    log: LogView, fetch_offset: int, last_fetched_epoch: int
) -> OffsetAndEpoch | None:
    """Return how far a follower's log may agree with this one; None if it does throughout."""
    if fetch_offset == 0:
        return None
    end = log.end_offset_for_epoch(last_fetched_epoch)
    if end.epoch == last_fetched_epoch and fetch_offset <= end.offset:
        return None
    return end


def truncation_offset(log: LogView, diverging: OffsetAndEpoch) -> int:
    """Return where to cut the local log, given what its leader said of the divergence.

    If the leader's epoch is not in the local log, the greatest one below it is next to be compared,
    and cutting at its end is always right: the leader has nothing of the epochs in between.
    """
    end = log.end_offset_for_epoch(diverging.epoch)
    if end.epoch == diverging.epoch:
        return min(end.offset, diverging.offset)
    return end.offset
