"""Requests that wait for several partitions: until appends are committed, or deletions replicated.

Such a request is answered once for all of them: when the last one has an outcome, or when its time
is over. What is not committed by then stays in the log, and may be committed later.
"""

from collections.abc import Callable, Sequence
from functools import partial

from odradek.broker.delayed import DelayedOperation, DelayedOperations
from odradek.broker.partition import Outcome, Partition
from odradek.core.errors import ErrorCode

Appended = tuple[Partition, int]
"""A partition, and the offset behind what was appended to it."""


class _OffsetWait(DelayedOperation):
    __slots__ = ("_delayed", "_is_delayed", "_left", "_outcomes", "_then", "_waiting")

    def __init__(
        self,
        delayed: DelayedOperations,
        deadline_ms: int,
        wanted: Sequence[tuple[Partition, int]],
        then: Callable[[list[ErrorCode]], None],
    ) -> None:
        """``then`` gets a code for each of ``wanted``: NONE if its offset was reached."""
        super().__init__(deadline_ms)
        self._delayed = delayed
        self._is_delayed = False
        self._then = then
        self._left = len(wanted)
        self._outcomes = [ErrorCode.REQUEST_TIMED_OUT] * len(wanted)
        self._waiting: list[tuple[Partition, Outcome]] = []
        for slot, (partition, offset) in enumerate(wanted):
            outcome = partial(self._on_outcome, slot)
            self._waiting.append((partition, outcome))
            self._begin(partition, offset, outcome)
        delayed.wait(self)
        self._is_delayed = not self.is_done

    def _begin(self, partition: Partition, offset: int, outcome: Outcome) -> None:
        raise NotImplementedError

    def _end(self, partition: Partition, outcome: Outcome) -> None:
        raise NotImplementedError

    def _on_outcome(self, slot: int, code: ErrorCode) -> None:
        self._outcomes[slot] = code
        self._left -= 1
        if self._left == 0 and self._is_delayed:
            self._delayed.finish(self)

    def can_complete(self) -> bool:
        return self._left == 0

    def complete(self) -> None:
        waiting, self._waiting = self._waiting, []  # which refer to this one
        self._is_delayed = False
        for partition, outcome in waiting:
            self._end(partition, outcome)
        then = self._then
        del self._then  # done operations are kept for a while
        then(self._outcomes)


class CommitWait(_OffsetWait):
    """Until what was appended is committed."""

    __slots__ = ()

    def _begin(self, partition: Partition, offset: int, outcome: Outcome) -> None:
        partition.when_committed(offset, outcome)

    def _end(self, partition: Partition, outcome: Outcome) -> None:
        partition.forget(outcome)


class DelayedDeleteRecords(_OffsetWait):
    """Until all living replicas have deleted what is before an offset."""

    __slots__ = ()

    def _begin(self, partition: Partition, offset: int, outcome: Outcome) -> None:
        partition.when_deleted(offset, outcome)

    def _end(self, partition: Partition, outcome: Outcome) -> None:
        partition.forget_deletion(outcome)
