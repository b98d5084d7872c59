"""Requests that cannot be answered yet: one mechanism, with deadlines, for every wait.

An operation learns from elsewhere that what it waits for may have come (``wake``): from a
partition that got records, say. It is asked soon afterwards whether it can complete now, once,
however often it was woken meanwhile; at its deadline it completes with what there is. An operation
that knows by itself that it can complete is ``finish``ed. Nothing polls and nothing runs per
request: the owner arms one timer with ``next_deadline_ms`` and calls ``tick`` when it fires.

What is woken is looked at in the next turn of the loop. So all appends of a turn wake a fetch once,
and the stack stays flat although completing may cause further events: an operation never sees
another half-way through.
"""

import asyncio
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

WAITING_MAX: Final = 100_000
"""Operations that may wait at one time; past it new ones complete at once with what there is."""
DONE_KEPT_MAX: Final = 1_000
"""Deadlines of operations that are done and may stay in the heap, however few others there are."""
LOOKED_AT_MAX: Final = 100
"""Operations that are woken in one turn of the loop; the others have to wait for the next one."""


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


class DelayedOperation:
    """Something that waits. Subclasses say when it is done and what to do then."""

    __slots__ = ("deadline_ms", "is_done")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.is_done = False

    def can_complete(self) -> bool:
        """Whether what it waits for has come; cheap, called in each turn in which it is woken."""
        raise NotImplementedError

    def complete(self) -> None:
        """Answer; called exactly once, also at the deadline and when the node stops."""
        raise NotImplementedError


class DelayedOperations:
    def __init__(
        self,
        on_deadline_changed: Callable[[int], None] = lambda _deadline: None,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """``on_deadline_changed`` is called for an operation that is due before all others.

        ``call_soon`` calls back in the next turn of the loop: of the one that runs, by itself.
        """
        self._deadlines: list[tuple[int, int, DelayedOperation]] = []
        self._order = count()
        self._waiting = 0
        self._woken: dict[DelayedOperation, None] = {}
        self._is_scheduled = False
        self._on_deadline_changed = on_deadline_changed
        self._call_soon = call_soon or _call_soon

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[DelayedOperation]:
        """Iterate over those that wait."""
        return (operation for _, _, operation in self._deadlines if not operation.is_done)

    def wait(self, operation: DelayedOperation) -> None:
        """Complete the operation now if it can, else when it is woken or its deadline comes."""
        if operation.can_complete() or self._waiting >= WAITING_MAX:
            self._complete(operation)
            return
        self._waiting += 1
        is_first = not self._deadlines or operation.deadline_ms < self._deadlines[0][0]
        heappush(self._deadlines, (operation.deadline_ms, next(self._order), operation))
        if is_first:
            self._on_deadline_changed(operation.deadline_ms)

    def finish(self, operation: DelayedOperation) -> None:
        """Complete an operation that learns by itself that it can, unless it is done."""
        if not operation.is_done:
            self._forget(operation)
            self._complete(operation)

    def wake(self, operation: DelayedOperation) -> None:
        """Look soon whether an operation can complete."""
        self._woken[operation] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.look)

    def look(self) -> None:
        """Complete what can be of what was woken; of many, some in each turn."""
        self._is_scheduled = False
        woken = self._woken
        for _ in range(min(len(woken), LOOKED_AT_MAX)):
            operation = next(iter(woken))
            del woken[operation]
            if not operation.is_done and operation.can_complete():
                self.finish(operation)
        if woken and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.look)

    def tick(self, now_ms: int) -> None:
        """Complete what is due."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            operation = self._deadlines[0][2]
            self.finish(operation)
            if self._deadlines and self._deadlines[0][2] is operation:
                heappop(self._deadlines)

    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][2].is_done:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def complete_all(self) -> None:
        """Answer everybody; for a node that stops."""
        for _, _, operation in sorted(self._deadlines):
            self.finish(operation)
        self._deadlines.clear()

    def _forget(self, operation: DelayedOperation) -> None:
        self._waiting -= 1
        # Its entry in the heap goes when it comes up, or with the others that are done once they
        # are more than those that wait: a produce may be answered within a millisecond and have a
        # deadline of minutes.
        if len(self._deadlines) > 2 * self._waiting + DONE_KEPT_MAX:
            operation.is_done = True
            self._deadlines = [each for each in self._deadlines if not each[2].is_done]
            heapify(self._deadlines)

    def _complete(self, operation: DelayedOperation) -> None:
        operation.is_done = True
        operation.complete()

    def check_invariants(self) -> None:
        waiting = [op for _, _, op in self._deadlines if not op.is_done]
        assert len(set(waiting)) == len(waiting) == self._waiting
