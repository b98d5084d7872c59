"""The order in which a Java HashMap walks over its keys.

Where two members have the same right to a partition, Java's assignors let the first one have it
that a HashMap gives them. Any order would do, but with another one partitions would move whenever
the lead of a group passes from a Java client to ours or back.

A map has a power of two of buckets, at least 16 and more than 4/3 of its entries; an entry's bucket
is the low bits of its hash, and within a bucket the older entry comes first.
"""

from collections.abc import Callable, Collection
from typing import Final, TypeVar

from odradek.core.ids import TopicPartition

_BUCKETS_MIN: Final = 16
_UINT32: Final = 0xFFFFFFFF

T = TypeVar("T")


def string_hash(text: str) -> int:
    """Return ``String.hashCode`` as an unsigned number."""
    number = 0
    units = text.encode("utf-16-be")
    for index in range(0, len(units), 2):
        number = (31 * number + (units[index] << 8 | units[index + 1])) & _UINT32
    return number


def partition_hash(partition: TopicPartition) -> int:
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _UINT32


def java_order(keys: Collection[T], hashed: Callable[[T], int]) -> list[T]:
    """Return keys, given in the order they were put in, as a HashMap would."""
    buckets = _BUCKETS_MIN
    while len(keys) > buckets * 3 // 4:
        buckets *= 2

    def bucket(key: T) -> int:
        number = hashed(key)
        return (number ^ number >> 16) & (buckets - 1)

    return sorted(keys, key=bucket)
