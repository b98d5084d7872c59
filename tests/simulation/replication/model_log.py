"""A log that is a list, with the leader epochs of its records and a disk that may forget a suffix.

Each record is a batch of its own. Nothing here corrects what a replica does wrong: a high watermark
beyond the log's end is kept, and a hole is an error.
"""

from bisect import bisect_left, bisect_right
from random import Random
from typing import NamedTuple

UNDEFINED = (-1, -1)


class Record(NamedTuple):
    epoch: int
    value: int


class ModelEpochs:
    """The epochs of a log with the offsets of their first records, ascending."""

    __slots__ = ("epochs", "starts")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs[-1] if self.epochs else None

    def begin(self, epoch: int, offset: int) -> None:
        if self.epochs and self.epochs[-1] == epoch:
            return
        self.truncate_from_end(offset)
        self.epochs.append(epoch)
        self.starts.append(offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        epochs = self.epochs
        if epoch < 0 or not epochs or epoch > epochs[-1]:
            return UNDEFINED
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(epochs, epoch)
        return (epochs[above - 1] if above else epoch), self.starts[above]

    def truncate_from_end(self, offset: int) -> None:
        keep = bisect_left(self.starts, offset)
        del self.epochs[keep:], self.starts[keep:]

    def truncate_from_start(self, offset: int) -> None:
        above = bisect_right(self.starts, offset)
        if above:
            del self.epochs[: above - 1], self.starts[: above - 1]
            self.starts[0] = offset


class ModelLog:
    """What ``ReplicaLog`` asks for, and what a broker does to a log."""

    __slots__ = (
        "checkpointed_high_watermark",
        "flushed_offset",
        "high_watermark",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "records",
    )

    def __init__(self) -> None:
        self.records: list[Record] = []
        """From ``log_start_offset`` on."""
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.flushed_offset = self.checkpointed_high_watermark = 0
        self.leader_epochs = ModelEpochs()

    def __getitem__(self, offset: int) -> Record:
        assert offset >= self.log_start_offset
        return self.records[offset - self.log_start_offset]

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the record before ``offset``; None if the log does not have it."""
        return self[offset - 1].epoch if offset > self.log_start_offset else None

    def read(self, offset: int, count: int) -> list[Record]:
        at = offset - self.log_start_offset
        return self.records[at : at + count]

    def begin_epoch(self, epoch: int) -> None:
        self.leader_epochs.begin(epoch, self.log_end_offset)

    def append(self, offset: int, records: list[Record], *, leader_epoch: int) -> list[Record]:
        """Append, but none of a later epoch; return what was."""
        assert offset == self.log_end_offset, f"a hole from {self.log_end_offset} to {offset}"
        taken = [each for each in records if each.epoch <= leader_epoch]
        for record in taken:
            self.leader_epochs.begin(record.epoch, self.log_end_offset)
            self.records.append(record)
            self.log_end_offset += 1
        return taken

    def truncate_to(self, offset: int) -> None:
        self.leader_epochs.truncate_from_end(offset)
        if offset < self.log_start_offset:
            self.truncate_fully(offset)
        elif offset < self.log_end_offset:
            del self.records[offset - self.log_start_offset :]
            self._end_at(offset)

    def truncate_fully(self, offset: int) -> None:
        self.records.clear()
        self.leader_epochs.truncate_from_end(0)
        self.log_start_offset = self.high_watermark = offset
        self._end_at(offset)

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.flushed_offset = min(self.flushed_offset, offset)

    def advance_log_start(self, offset: int) -> None:
        if self.log_start_offset < offset <= min(self.high_watermark, self.log_end_offset):
            del self.records[: offset - self.log_start_offset]
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def flush(self) -> None:
        self.flushed_offset = self.log_end_offset

    def restart(self, random: Random, *, loses: bool) -> int:
        """Come back after a crash, or a loss of power; return how many records were lost."""
        end = self.log_end_offset
        if loses:
            kept = random.randint(min(self.flushed_offset, end), end)
            self.truncate_to(max(kept, self.log_start_offset))
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        checkpointed = min(self.checkpointed_high_watermark, self.log_end_offset)
        self.high_watermark = max(checkpointed, self.log_start_offset)
        return end - self.log_end_offset
