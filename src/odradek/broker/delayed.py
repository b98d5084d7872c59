"""Requests that cannot be answered yet: one mechanism, with deadlines, for every wait.

An operation waits for events on keys (a partition got records, its high watermark moved, a group
changed). On each such event it is asked whether it can complete now; at its deadline it completes
with what there is. Nothing polls and nothing runs per request: the owner arms one timer with
``next_deadline_ms`` and calls ``tick`` when it fires.

Completing may cause further events (a produce wakes a fetch), so events are queued and drained in
a loop: the stack stays flat, and an operation never sees another half-way through.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

WATCHED_MAX: Final = 100_000
"""Operations that may wait at one time; past it new ones complete at once with what there is."""
DONE_KEPT_MAX: Final = 1_000
"""Deadlines of operations that are done and may stay in the heap, however few others there are."""


class DelayedOperation:
    """Something that waits. Subclasses say when it is done and what to do then."""

    __slots__ = ("deadline_ms", "is_done", "keys")

    def __init__(self, deadline_ms: int, keys: Iterable[Hashable]) -> None:
        self.deadline_ms = deadline_ms
        self.keys = tuple(keys)
        self.is_done = False

    def can_complete(self) -> bool:
        """Whether what it waits for has come; cheap, called on every event of its keys."""
        raise NotImplementedError

    def complete(self) -> None:
        """Answer; called exactly once, also at the deadline and when the node stops."""
        raise NotImplementedError


class DelayedOperations:
    def __init__(self, on_deadline_changed: Callable[[int], None] = lambda _deadline: None) -> None:
        """``on_deadline_changed`` hears of an operation that is due before all others."""
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._deadlines: list[tuple[int, int, DelayedOperation]] = []
        self._order = count()
        self._waiting = 0
        self._events: deque[Hashable] = deque()
        self._is_draining = False
        self._on_deadline_changed = on_deadline_changed

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[DelayedOperation]:
        """Iterate over those that wait."""
        return (operation for _, _, operation in self._deadlines if not operation.is_done)

    def wait(self, operation: DelayedOperation) -> None:
        """Complete the operation now if it can, else when its event or its deadline comes."""
        if operation.can_complete() or self._waiting >= WATCHED_MAX:
            self._complete(operation)
            return
        self._waiting += 1
        for key in operation.keys:
            self._watchers.setdefault(key, {})[operation] = None
        is_first = not self._deadlines or operation.deadline_ms < self._deadlines[0][0]
        heappush(self._deadlines, (operation.deadline_ms, next(self._order), operation))
        if is_first:
            self._on_deadline_changed(operation.deadline_ms)

    def finish(self, operation: DelayedOperation) -> None:
        """Complete an operation that learns by itself that it can, unless it is done."""
        if not operation.is_done:
            self._forget(operation)
            self._complete(operation)

    def notify(self, key: Hashable) -> None:
        """Say that something happened to ``key``."""
        if key not in self._watchers:
            return
        self._events.append(key)
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._events:
                self._drain(self._events.popleft())
        finally:
            self._is_draining = False

    def _drain(self, key: Hashable) -> None:
        for operation in list(self._watchers.get(key, ())):
            if not operation.is_done and operation.can_complete():
                self._forget(operation)
                self._complete(operation)

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
        for key in operation.keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
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
        waiting = {op for watchers in self._watchers.values() for op in watchers}
        assert not any(operation.is_done for operation in waiting)
        assert len({op for _, _, op in self._deadlines if not op.is_done}) == self._waiting
