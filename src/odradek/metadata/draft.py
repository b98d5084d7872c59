"""A section of the image while records are replayed into it: copied before its first change."""

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Draft(Generic[K, V]):
    """A mapping that leaves the one it started from as it was; ``touched`` gets changed keys.

    ``freeze`` hands out the current entries and gives up the right to change them, so the next
    change copies again. A batch of records therefore copies each section at most once.
    """

    __slots__ = ("_entries", "_owned", "_touched")

    def __init__(self, entries: Mapping[K, V], touched: set[K]) -> None:
        self._entries = entries
        self._owned: dict[K, V] | None = None
        self._touched = touched

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def items(self) -> list[tuple[K, V]]:
        """Return the entries in a list of their own, so that they may be changed meanwhile."""
        return list(self._entries.items())

    def put(self, key: K, value: V) -> None:
        self._own()[key] = value
        self._touched.add(key)

    def remove(self, key: K) -> V | None:
        """Remove ``key`` if it is there, and return what it had."""
        if key not in self._entries:
            return None
        self._touched.add(key)
        return self._own().pop(key)

    def freeze(self) -> Mapping[K, V]:
        self._owned = None
        return self._entries

    def _own(self) -> dict[K, V]:
        if self._owned is None:
            self._owned = dict(self._entries)
            self._entries = self._owned
        return self._owned
