"""The segments of a log in order of their offsets."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from odradek.storage.segment import Segment


class Segments:
    """A sorted list of segments; the last is the active one.

    Each holds the offsets from its base offset up to, not including, the next one's.
    """

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self.check_invariants()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self._segments)

    def __getitem__(self, slot: int) -> Segment:
        return self._segments[slot]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        assert not self._bases or segment.base_offset > self._bases[-1]
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def remove(self, segment: Segment) -> None:
        slot = self._segments.index(segment)
        del self._segments[slot]
        del self._bases[slot]

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put ``new`` in the place of ``old``, a run of neighbours."""
        slot = self._segments.index(old[0])
        assert self._segments[slot : slot + len(old)] == list(old)
        self._segments[slot : slot + len(old)] = new
        self._bases[slot : slot + len(old)] = [segment.base_offset for segment in new]
        self.check_invariants()

    def slot_of(self, offset: int) -> int:
        """Return the slot of the segment that holds ``offset``, -1 if all begin after it."""
        return bisect_right(self._bases, offset) - 1

    def holding(self, offset: int) -> Segment | None:
        slot = bisect_right(self._bases, offset) - 1
        return None if slot < 0 else self._segments[slot]

    def after(self, segment: Segment) -> Segment | None:
        """Return the segment that follows."""
        slot = bisect_right(self._bases, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def check_invariants(self) -> None:
        assert all(a < b for a, b in zip(self._bases, self._bases[1:], strict=False))
