"""From a time to an offset: what ListOffsets asks for.

The time index finds the segment and the neighbourhood; then headers are scanned for the first
batch whose largest timestamp is late enough, and only that batch is opened.
"""

from collections.abc import Iterator
from typing import NamedTuple

from odradek.records import BatchHeader, Record, read_records
from odradek.records.batch import MAGIC
from odradek.records.legacy import read_legacy
from odradek.storage.disk import Buffer
from odradek.storage.log import Log
from odradek.storage.segment import Segment


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int
    """-1 where the record is of a format that has none."""


def find_offset_at(log: Log, timestamp: int) -> FoundOffset | None:
    """Return the first record at or after ``timestamp``, None if all are older."""
    for segment in log.segments:
        if segment.largest().timestamp >= timestamp:
            found = _find_in(segment, timestamp, log.log_start_offset)
            if found is not None:
                return found
    return None


def find_largest_timestamp(log: Log) -> FoundOffset | None:
    """Return the first record with the largest timestamp in the log, None if there is none."""
    best: Segment | None = None
    for segment in log.segments:
        timestamp = segment.largest().timestamp
        if timestamp >= 0 and (best is None or timestamp > best.largest().timestamp):
            best = segment
    if best is None:
        return None
    return _find_in(best, best.largest().timestamp, log.log_start_offset)


def _find_in(segment: Segment, timestamp: int, start_offset: int) -> FoundOffset | None:
    for header in segment.find_by_timestamp(timestamp, start_offset):
        batch = segment.read(header.position, header.size)
        for record in _records(batch, header._replace(position=0)):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return FoundOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None


def _records(batch: Buffer, header: BatchHeader) -> Iterator[Record]:
    if header.magic == MAGIC:
        return read_records(batch, header)
    return iter(read_legacy(batch).records)
