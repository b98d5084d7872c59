"""Offsets of topic partitions as Spark keeps them, and ranges of them. Pure.

The form in options and checkpoints is that of Spark's Kafka source, ``{"topic":{"0":23}}``, sorted
by topic and partition: Spark compares offsets by their text. An offset is that of the next record.
-1 stands for the end of a log and -2 for its beginning.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from typing import Any, Final, NamedTuple

from odradek.core.ids import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
OFFSET_MAX: Final = 2**63 - 1

Offsets = Mapping[TopicPartition, int]


class Everywhere(NamedTuple):
    """The beginning or the end of every partition."""

    mark: int


class Specific(NamedTuple):
    """An offset or a mark for each partition."""

    offsets: Offsets


class AtTimestamp(NamedTuple):
    """The first record at or after a time, everywhere."""

    timestamp_ms: int
    or_latest: bool


class AtTimestamps(NamedTuple):
    """The first record at or after a time of each partition's own."""

    timestamps: Offsets
    or_latest: bool


OffsetLimit = Everywhere | Specific | AtTimestamp | AtTimestamps


class OffsetRange(NamedTuple):
    """Records of one partition, ``end`` exclusive. Some offsets in it may have none."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class LogRange(NamedTuple):
    """Records of one partition in a folder, ``end`` exclusive; None: all are wanted."""

    partition: TopicPartition
    folder: str
    start: int
    end: int
    aborted: tuple[tuple[int, int], ...] | None


def parse_offsets(given: Mapping[str, Any], *, minimum: int = 0) -> dict[TopicPartition, int]:
    """Read offsets from their JSON form.

    Raises:
        ValueError: That is not what they are.
    """
    offsets = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f"topic {topic!r} has no partitions with offsets")
        for number, offset in partitions.items():
            if not str(number).isdecimal():
                raise ValueError(f"topic {topic!r}: {number!r} is not a partition number")
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise ValueError(f"topic {topic!r}, partition {number}: {offset!r} is no offset")
            if not minimum <= offset <= OFFSET_MAX:
                raise ValueError(f"topic {topic!r}, partition {number}: {offset} is out of range")
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def offsets_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in their JSON form; equal offsets give equal texts."""
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics


def limit_by_rate(limit: int, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """Cut ends so that about ``limit`` offsets are left, each partition by its share.

    A partition with anything new gets one at least, so that large ones do not starve it; that is
    why the sum may exceed the limit by less than the number of partitions.
    """
    sizes = {p: end - starts[p] for p, end in ends.items() if end > starts.get(p, end)}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    limited = dict(ends)
    for partition, size in sizes.items():
        share = limit * (size / total)
        count = ceil(share) if share < 1 else floor(share)
        limited[partition] = min(ends[partition], starts[partition] + count)
    return limited


def split_ranges(
    ranges: Iterable[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Cut ranges into tasks: none larger than ``records_max``, about ``partitions_min`` at least.

    Without either, a partition is a task. Ranges with nothing in them are left out.
    """
    tasks = [each for each in ranges if each.size > 0]
    if records_max is not None:
        tasks = [part for each in tasks for part in _cut(each, -(-each.size // records_max))]
    if partitions_min is None or len(tasks) >= partitions_min:
        return tasks
    return _split_by_share(tasks, partitions_min)


def _split_by_share(ranges: Sequence[OffsetRange], partitions_min: int) -> list[OffsetRange]:
    total = sum(each.size for each in ranges)
    small = {each for each in ranges if _share(each.size, total, partitions_min) == 1}
    large_total = total - sum(each.size for each in small)
    large_min = max(1, partitions_min - len(small))
    tasks: list[OffsetRange] = []
    for each in ranges:
        count = 1 if each in small else _share(each.size, large_total, large_min)
        tasks += _cut(each, min(count, each.size))
    return tasks


def _share(size: int, total: int, parts: int) -> int:
    return max(1, floor(size / total * parts + 0.5))


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    pieces = []
    start, left = whole.start, whole.size
    for number in range(count):
        size = left // (count - number)
        pieces.append(OffsetRange(whole.partition, start, start + size))
        start, left = start + size, left - size
    return pieces
