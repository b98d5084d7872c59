"""Deadlines by key, of which the earliest is found quickly though most are only ever put off.

A session's deadline moves with every heartbeat. Moving it is one dictionary store: the heap keeps
the old, earlier moment and learns the new one when that has come.
"""

from collections.abc import Hashable
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._queued: dict[K, int] = {}
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def put(self, key: K, deadline_ms: int) -> None:
        """Set or move the deadline of ``key``."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queued[key] = deadline_ms
            self._pushes += 1  # breaks ties, so that keys are never compared
            heappush(self._heap, (deadline_ms, self._pushes, key))

    def drop(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def next_ms(self) -> int | None:
        """Return the earliest deadline, if there is one."""
        while self._heap:
            queued_ms, pushed, key = self._heap[0]
            deadline_ms = self._deadlines.get(key)
            if self._queued.get(key) != queued_ms:
                heappop(self._heap)  # an earlier entry of the same key took its place
            elif deadline_ms is None:
                heappop(self._heap)
                del self._queued[key]
            elif deadline_ms > queued_ms:
                self._queued[key] = deadline_ms
                heapreplace(self._heap, (deadline_ms, pushed, key))
            else:
                return deadline_ms
        return None

    def take_expired(self, now_ms: int) -> list[K]:
        """Remove and return all keys whose deadline has come, the earliest first."""
        expired: list[K] = []
        while True:
            deadline_ms = self.next_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                return expired
            _, _, key = heappop(self._heap)
            del self._queued[key]
            del self._deadlines[key]
            expired.append(key)
