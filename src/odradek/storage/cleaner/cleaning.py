"""Cleaning one log: reads segments, writes ``.cleaned`` ones, changes nothing that is in use.

It is a function of a task and of the files that the task names, so it runs in any process; those
files do not change while it does, or else the result is thrown away.

Before anything is dropped for the sake of a newer record, that record is on stable storage: the
sources behind the log's recovery point are synced first. Without that, a crash could leave a log
whose new value was lost by the disk and whose old value was lost by us. Names need no syncing: the
disk undoes changes of names from the latest back, and those of the swap are the latest.

All new segments of a log are written before the first is swapped in, while Kafka swaps each group
at once. That takes more disk for a while, at most what the cleaned part of the log takes, and lets
the main process be asked just once. How the swap stays safe is told in ``swap``.
"""

from collections.abc import Iterable
from dataclasses import replace

from odradek.records import parse_header, read_records
from odradek.storage.cleaner.filtering import BatchFilter
from odradek.storage.cleaner.grouping import group_segments, index_interval_bytes
from odradek.storage.cleaner.offset_map import OffsetMap
from odradek.storage.cleaner.source import Chunk, read_chunks
from odradek.storage.cleaner.task import (
    CleanedSegment,
    CleaningResult,
    CleaningStats,
    CleaningTask,
    SourceSegment,
)
from odradek.storage.cleaner.throttle import Throttle
from odradek.storage.cleaner.transactions import Transactions
from odradek.storage.disk import Disk
from odradek.storage.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_name,
)
from odradek.storage.transaction_index import AbortedTransaction, TransactionIndex


class DedupeBufferTooSmallError(Exception):
    """The keys of one batch are more than the offset map can hold, so cleaning cannot get on."""


def clean(disk: Disk, task: CleaningTask, throttle: Throttle) -> CleaningResult:
    """Write the cleaned segments of a log; on an exception none are left behind.

    Raises:
        CorruptionError: A source is damaged or was cut meanwhile.
        DedupeBufferTooSmallError: Raise ``log.cleaner.dedupe.buffer.size``.
    """
    remove_cleaned_files(disk, task)
    try:
        return _Cleaning(disk, task, throttle).run()
    except Exception:
        remove_cleaned_files(disk, task)
        raise


def remove_cleaned_files(disk: Disk, task: CleaningTask) -> None:
    """Remove what a cleaning of this log wrote."""
    if not disk.is_folder(task.folder):
        return  # the log was deleted or moved meanwhile
    for name in disk.names(task.folder):
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(task.folder / name)


class _Cleaning:
    def __init__(self, disk: Disk, task: CleaningTask, throttle: Throttle) -> None:
        self._disk = disk
        self._task = task
        self._throttle = throttle
        self._map = OffsetMap(task.settings.dedupe_buffer_bytes, task.settings.load_factor)
        self._aborted = self._aborted_transactions()
        self._mapped_bytes = self._read_bytes = self._written_bytes = 0

    def run(self) -> CleaningResult:
        task = self._task
        self._sync_sources()
        clean_end_offset = self._build_map()
        sources = [each for each in task.segments if each.base_offset < clean_end_offset]
        end_offset = self._end_of(sources[-1]) if sources else clean_end_offset
        transactions = Transactions(self._aborted)
        batches = BatchFilter(task, self._map, transactions, clean_end_offset)
        cleaned = [
            self._clean_group(group, batches)
            for group in group_segments(sources, end_offset, task.config)
        ]
        stats = CleaningStats(
            self._mapped_bytes,
            len(self._map),
            self._map.utilization,
            self._read_bytes,
            batches.read_records,
            self._written_bytes,
            batches.written_records,
            batches.keyless_records,
        )
        return CleaningResult(task.partition, tuple(cleaned), clean_end_offset, stats)

    def _end_of(self, source: SourceSegment) -> int:
        """Return where the segment behind ``source`` begins."""
        slot = self._task.segments.index(source) + 1
        if slot < len(self._task.segments):
            return self._task.segments[slot].base_offset
        return self._task.upper_bound_offset

    def _aborted_transactions(self) -> list[AbortedTransaction]:
        aborted = list(self._task.later_aborted)
        for source in self._task.segments:
            path = self._task.folder / file_name(source.base_offset, TRANSACTION_INDEX_SUFFIX)
            index = TransactionIndex(self._disk, path, source.base_offset)
            aborted += index.all()
            index.close()
        return aborted

    def _sync_sources(self) -> None:
        for source in self._task.segments:
            if self._end_of(source) > self._task.recovery_point:
                self._disk.sync_file(self._task.folder / file_name(source.base_offset, LOG_SUFFIX))

    def _chunks(self, source: SourceSegment) -> Iterable[Chunk]:
        path = self._task.folder / file_name(source.base_offset, LOG_SUFFIX)
        return read_chunks(self._disk, path, source.size, self._throttle)

    # The map.

    def _build_map(self) -> int:
        """Map the keys of the dirty part; return the offset up to which there was room."""
        start = clean_end = self._task.first_dirty_offset
        transactions = Transactions(self._aborted)
        for source in self._task.segments:
            end = self._end_of(source)
            if end <= start:
                continue
            for chunk in self._chunks(source):
                self._mapped_bytes += chunk.read_bytes
                mapped_end, is_full = self._map_chunk(chunk, start, transactions)
                clean_end = max(clean_end, mapped_end)
                if is_full and clean_end == start:
                    raise DedupeBufferTooSmallError(
                        f"{self._task.partition}: the {self._map.entries_max} keys that fit the "
                        f"buffer are fewer than those of one batch: raise "
                        f"log.cleaner.dedupe.buffer.size"
                    )
                if is_full:
                    return clean_end
            clean_end = end  # past a gap at the segment's end too
        return clean_end

    def _map_chunk(
        self, chunk: Chunk, start_offset: int, transactions: Transactions
    ) -> tuple[int, bool]:
        """Return the end of the last batch that had room, and whether another one had not."""
        end = 0
        for header in chunk.headers:
            if header.is_control:
                if header.is_transactional and header.records_count:
                    transactions.on_marker(header)
            elif header.is_transactional and transactions.on_data(header):
                pass  # aborted
            elif header.last_offset >= start_offset and not self._map.add(
                read_records(chunk.buffer, header), start_offset
            ):
                return end, True
            end = header.next_offset
        return end, False

    # The new segments.

    def _clean_group(self, group: list[SourceSegment], batches: BatchFilter) -> CleanedSegment:
        task = self._task
        cleaned = Segment.create(
            self._disk,
            task.folder,
            group[0].base_offset,
            replace(task.config, index_interval_bytes=index_interval_bytes(group, task.config)),
            now_ms=task.now_ms,
            suffix=CLEANED_SUFFIX,
        )
        batches.segment_end_offset = self._end_of(group[-1])
        for source in group:
            for chunk in self._chunks(source):
                self._read_bytes += chunk.read_bytes
                self._clean_chunk(chunk, cleaned, batches)
        cleaned.on_become_inactive()
        cleaned.sync()
        cleaned.close()
        self._written_bytes += cleaned.size
        return CleanedSegment(cleaned.base_offset, cleaned.size, tuple(group))

    def _clean_chunk(self, chunk: Chunk, cleaned: Segment, batches: BatchFilter) -> None:
        kept, headers = [], []
        size = 0
        for header in chunk.headers:
            batch = batches.filter(chunk.buffer, header)
            if batch is None:
                continue
            if isinstance(batch, bytearray):
                header = parse_header(batch)
            headers.append(header._replace(position=size))
            kept.append(batch)
            size += len(batch)
        if kept:
            cleaned.append_all(b"".join(kept), headers)
            self._throttle.spend(size)
        for transaction in batches.take_aborted():
            cleaned.transaction_index.append(transaction)
