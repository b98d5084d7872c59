"""What replication has to know of a log; ``storage.log.Log`` has all of it."""

from typing import Protocol


class EpochHistory(Protocol):
    """Which leader epoch wrote which part of a log."""

    @property
    def latest_epoch(self) -> int | None: ...

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the greatest epoch up to ``epoch`` and the offset at which its records end.

        (-1, -1) for an epoch beyond the latest; for one before the first, the epoch asked for and
        the offset at which the first one begins.
        """


class ReplicaLog(Protocol):
    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def leader_epochs(self) -> EpochHistory: ...
