"""Whether the replicas of a partition hold the same batches, as far as they have been fetched.

The batches of all replicas are gone through side by side, from an offset that they were all fetched
from. What is above the high watermark that a replica knows, or is not there yet, is compared next
time: replicas may differ there.
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.client.admin.log_dirs import ReplicaBatches
from odradek.core.errors import OdradekError
from odradek.core.ids import TopicPartition
from odradek.storage.scan import iter_batches


class Compared(NamedTuple):
    next_offset: int
    """All replicas have the batches before it."""
    differences: list[str]
    """One sentence for each batch with two checksums."""


class OffsetsDifferError(OdradekError):
    """Two replicas have batches that end at different offsets: what comes after has no order."""

    def __init__(self, message: str, differences: list[str]) -> None:
        super().__init__(message)
        self.differences = differences
        """What was found before that."""


def compare(
    partition: TopicPartition, offset: int, replicas: Mapping[int, ReplicaBatches]
) -> Compared:
    """Compare the batches of all replicas, by broker, that were fetched from ``offset`` on.

    Raises:
        OffsetsDifferError: They cannot be brought side by side.
    """
    differences: list[str] = []
    first, *others = sorted(replicas)
    batches = {broker: iter_batches(each.records) for broker, each in replicas.items()}
    while True:
        row = {broker: next(found, None) for broker, found in batches.items()}
        mine = row[first]
        for broker, batch in row.items():
            if batch is None or batch.last_offset >= replicas[broker].high_watermark:
                return Compared(offset, differences)
        assert mine is not None
        for broker in others:
            theirs = row[broker]
            assert theirs is not None
            if theirs.last_offset != mine.last_offset:
                problem = (
                    f"partition {partition}: replica {first}'s offset {mine.last_offset}"
                    f" doesn't match replica {broker}'s offset {theirs.last_offset}"
                )
                raise OffsetsDifferError(problem, differences)
            if theirs.crc != mine.crc:
                differences.append(
                    f"partition {partition} has unmatched checksum at offset {mine.last_offset};"
                    f" replica {first}'s checksum {mine.crc}; replica {broker}'s checksum"
                    f" {theirs.crc}"
                )
        offset = mine.next_offset
