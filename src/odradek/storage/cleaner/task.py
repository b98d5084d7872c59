"""What a cleaning is asked to do and what it did: plain values, for the way between processes."""

from pathlib import PurePath
from typing import NamedTuple

from odradek.core.ids import TopicPartition
from odradek.storage.cleaner.selection import LogToClean
from odradek.storage.config import LogConfig
from odradek.storage.transaction_index import AbortedTransaction

DEDUPE_BUFFER_BYTES: int = 128 * 1024 * 1024
LOAD_FACTOR: float = 0.9


class CleanerSettings(NamedTuple):
    """The broker's ``log.cleaner.*`` settings that a cleaning needs."""

    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES
    load_factor: float = LOAD_FACTOR
    io_bytes_per_second_max: float = float("inf")


class SourceSegment(NamedTuple):
    """A closed segment as it was when the cleaning was planned."""

    base_offset: int
    size: int


class LastRecord(NamedTuple):
    """What tells of a producer: its last data, or where that is not known a marker of its epoch."""

    last_data_offset: int | None
    producer_epoch: int


class CleaningTask(NamedTuple):
    partition: TopicPartition
    folder: PurePath
    config: LogConfig
    segments: tuple[SourceSegment, ...]
    """All closed segments before ``upper_bound_offset``, oldest first."""
    first_dirty_offset: int
    upper_bound_offset: int
    """Where the first segment begins that may not be cleaned."""
    recovery_point: int
    last_records: dict[int, LastRecord]
    """Of each producer that the log knows of, by its id."""
    later_aborted: tuple[AbortedTransaction, ...]
    """Aborted transactions whose marker is behind the upper bound; their data may not be."""
    settings: CleanerSettings
    now_ms: int


class CleanedSegment(NamedTuple):
    """A new segment under ``.cleaned`` names, on stable storage, and what it is made from."""

    base_offset: int
    size: int
    sources: tuple[SourceSegment, ...]


class CleaningStats(NamedTuple):
    mapped_bytes: int = 0
    mapped_keys: int = 0
    map_utilization: float = 0.0
    read_bytes: int = 0
    read_records: int = 0
    written_bytes: int = 0
    written_records: int = 0
    keyless_records: int = 0
    """Records without a key, which no compacted log should hold; they were dropped."""


class CleaningResult(NamedTuple):
    partition: TopicPartition
    segments: tuple[CleanedSegment, ...]
    clean_end_offset: int
    """The first offset that is not clean: the next cleaning begins there."""
    stats: CleaningStats


def plan_cleaning(to_clean: LogToClean, settings: CleanerSettings, *, now_ms: int) -> CleaningTask:
    """Write down all that cleaning a log needs to know. Nothing is changed."""
    log = to_clean.log
    bound = to_clean.upper_bound_offset
    before = [segment for segment in log.segments if segment.base_offset < bound]
    behind = [segment for segment in log.segments if segment.base_offset >= bound]
    producers = log.producer_states.active_producers
    return CleaningTask(
        partition=log.partition,
        folder=log.folder,
        config=log.config,
        segments=tuple(SourceSegment(segment.base_offset, segment.size) for segment in before),
        first_dirty_offset=to_clean.first_dirty_offset,
        upper_bound_offset=bound,
        recovery_point=log.recovery_point,
        last_records={
            producer_id: LastRecord(state.last_data_offset, state.producer_epoch)
            for producer_id, state in producers.items()
        },
        later_aborted=tuple(
            transaction for segment in behind for transaction in segment.transaction_index.all()
        ),
        settings=settings,
        now_ms=now_ms,
    )
