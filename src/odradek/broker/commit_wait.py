"""A request that waits until what it appended is committed, in each of its partitions.

It is answered once for all of them: when the last one is committed or can no longer be, or when its
time is over. What is not committed by then stays in the log, and may be committed later.
"""

from collections.abc import Callable, Sequence
from functools import partial

from odradek.broker.delayed import DelayedOperation, DelayedOperations
from odradek.broker.partition import Outcome, Partition
from odradek.core.errors import ErrorCode

Appended = tuple[Partition, int]
"""A partition, and the offset behind what was appended to it."""


class CommitWait(DelayedOperation):
    __slots__ = ("_delayed", "_is_delayed", "_left", "_outcomes", "_then", "_waiting")

    def __init__(
        self,
        delayed: DelayedOperations,
        deadline_ms: int,
        appended: Sequence[Appended],
        then: Callable[[list[ErrorCode]], None],
    ) -> None:
        """``then`` gets a code for each of ``appended``: NONE if it is committed."""
        super().__init__(deadline_ms, ())
        self._delayed = delayed
        self._is_delayed = False
        self._then = then
        self._left = len(appended)
        self._outcomes = [ErrorCode.REQUEST_TIMED_OUT] * len(appended)
        self._waiting: list[tuple[Partition, Outcome]] = []
        for slot, (partition, end_offset) in enumerate(appended):
            outcome = partial(self._on_outcome, slot)
            self._waiting.append((partition, outcome))
            partition.when_committed(end_offset, outcome)
        delayed.wait(self)
        self._is_delayed = not self.is_done

    def _on_outcome(self, slot: int, code: ErrorCode) -> None:
        self._outcomes[slot] = code
        self._left -= 1
        if self._left == 0 and self._is_delayed:
            self._delayed.finish(self)

    def can_complete(self) -> bool:
        return self._left == 0

    def complete(self) -> None:
        waiting, self._waiting = self._waiting, []  # which refer to this one
        for partition, outcome in waiting:
            partition.forget(outcome)
        self._then(self._outcomes)
