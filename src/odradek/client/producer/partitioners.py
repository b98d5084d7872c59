"""Which partition a record goes to, when its sender does not say.

With a key: murmur2 of the key over the number of partitions, as Java's client does, so that all
clients of a topic put a key in the same place. Without one: a partition is stuck to until a batch
is full, then another is drawn by chance, shorter queues first (KIP-480, KIP-794).

A partitioner of one's own is a function ``(topic, key, value, partitions, available)`` that returns
one of ``partitions``; ``available`` are those that have a leader now, maybe none.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import TypeAlias

from odradek.records.implementation import murmur2

Partitioner: TypeAlias = Callable[
    [str, bytes | None, bytes | None, Sequence[int], Sequence[int]], int
]


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, the same in every client that follows Java's."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class RoundRobin:
    """One after the other, whatever the key: ``Producer(…, partitioner=RoundRobin())``."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(
        self,
        topic: str,
        key: bytes | None,  # noqa: ARG002
        value: bytes | None,  # noqa: ARG002
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        count = self._counts.get(topic, 0)
        self._counts[topic] = count + 1
        choice = available or partitions
        return choice[count % len(choice)]


class StickyPartition:
    """Where records of a topic without a key go now.

    It is left when a batch is full, or as many bytes went there in several: not in between, or a
    batch would be left behind half empty, to be sent when it has lingered (KIP-794 has the story of
    how that made slow brokers slower).
    """

    __slots__ = ("_batch_size", "_produced_bytes", "_random", "current")

    def __init__(self, batch_size: int, random: Random) -> None:
        self._batch_size = batch_size
        self._random = random
        self._produced_bytes = 0
        self.current: int | None = None

    def produced(self, size: int, *, is_full: bool) -> None:
        """Count a batch that went to the current partition, full or not."""
        self._produced_bytes += size
        if is_full or self._produced_bytes >= self._batch_size:
            self.current = None

    def choose(self, partitions: Sequence[int], queue_sizes: Sequence[int] | None) -> int:
        """Draw a new one: any with equal chance, or the more likely the shorter its queue is."""
        self._produced_bytes = 0
        if queue_sizes is None or len(set(queue_sizes)) == 1:
            chosen = self._random.choice(partitions)
        else:
            longest = max(queue_sizes)
            weights = list(accumulate(longest + 1 - size for size in queue_sizes))
            chosen = partitions[bisect_right(weights, self._random.randrange(weights[-1]))]
        self.current = chosen
        return chosen
