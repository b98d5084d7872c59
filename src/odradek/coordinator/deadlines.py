"""Many deadlines by name, cheap to put off: a heartbeat does it to one of a thousand.

A heap whose entries may be early. Putting a deadline off changes a dict only; when the old entry
comes to the top it is pushed again at its new place. Entries of cancelled names are dropped when
they come up, or all at once when they outnumber the living.
"""

from heapq import heapify, heappop, heappush
from typing import Final

_STALE_MIN: Final = 64


class Deadlines:
    def __init__(self) -> None:
        self._due_ms: dict[str, int] = {}
        self._queued_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, name: str) -> bool:
        return name in self._due_ms

    def due_ms(self, name: str) -> int | None:
        return self._due_ms.get(name)

    def set(self, name: str, due_ms: int) -> None:
        self._due_ms[name] = due_ms
        queued_ms = self._queued_ms.get(name)
        if queued_ms is None or due_ms < queued_ms:
            self._queued_ms[name] = due_ms
            heappush(self._heap, (due_ms, name))
        if len(self._heap) > 2 * len(self._due_ms) + _STALE_MIN:
            self._rebuild()

    def cancel(self, name: str) -> None:
        self._due_ms.pop(name, None)

    def clear(self) -> None:
        self._due_ms.clear()
        self._rebuild()

    def next_ms(self) -> int | None:
        """Return the earliest deadline, exactly."""
        while self._heap:
            queued_ms, name = self._heap[0]
            if self._queued_ms.get(name) != queued_ms:
                heappop(self._heap)
                continue
            due_ms = self._due_ms.get(name)
            if due_ms == queued_ms:
                return due_ms
            heappop(self._heap)
            del self._queued_ms[name]
            if due_ms is not None:
                self._queued_ms[name] = due_ms
                heappush(self._heap, (due_ms, name))
        return None

    def take_next(self) -> str:
        """Return the name that is due first, and forget its deadline."""
        assert self.next_ms() is not None
        _, name = heappop(self._heap)
        del self._due_ms[name], self._queued_ms[name]
        return name

    def take_expired(self, now_ms: int) -> list[str]:
        """Forget and return all names that are due, the earliest first."""
        expired: list[str] = []
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            expired.append(self.take_next())
        return expired

    def _rebuild(self) -> None:
        self._queued_ms = dict(self._due_ms)
        self._heap = [(due_ms, name) for name, due_ms in self._due_ms.items()]
        heapify(self._heap)
