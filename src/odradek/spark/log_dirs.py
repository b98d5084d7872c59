"""Batches straight from segment files, ours or Kafka's: ``log.dirs`` instead of brokers.

Nothing is written, locked or mapped, and a broker may go on appending meanwhile: only what lies
below the high watermark of ``replication-offset-checkpoint`` is read, which a broker writes every
five seconds and when it stops. Folders without that file, copies say, are read up to the last whole
batch. With ``isolation.level=read_committed`` the end is the last stable offset, worked out from
producer snapshots, and aborted transactions are those of the ``.txnindex`` files.

Offset indexes say where in a file to begin, time indexes which files ``startingTimestamp`` need not
look at. A task is a run of whole segments of some 64 MiB; ``minPartitions`` and
``maxRecordsPerPartition`` cut further. The folders have to be there on every executor.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from odradek.core.ids import TopicPartition
from odradek.spark.header_rows import are_headers_enough
from odradek.spark.log_files import LogFiles
from odradek.spark.offsets import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    LogRange,
    OffsetLimit,
    OffsetRange,
    Specific,
    split_ranges,
)
from odradek.spark.options import Assign, OptionError, SourceOptions, Subscribe, SubscribePattern
from odradek.spark.planning import report_data_loss
from odradek.spark.reading import cut, decode, rows_by_headers
from odradek.storage.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    read_offset_checkpoint,
)
from odradek.storage.disk import OsDisk
from odradek.storage.log_folders import FolderKind, parse_folder_name

TASK_BYTES: Final = 64 * 1024 * 1024


class _Log(NamedTuple):
    files: LogFiles
    start: int
    end: int


def plan_log_dirs(options: SourceOptions) -> list[LogRange]:
    """Return the tasks of a batch query over log directories.

    Raises:
        OptionError: A directory or a topic is not there, or the offsets do not fit.
        DataLossError: Offsets that are asked for are gone.
        CorruptionError: A file is not what it should be.
    """
    planned: list[LogRange] = []
    for partition, log in sorted(_selected(options, _find_logs(options)).items()):
        start = _resolve(options.starting_for_batch, partition, log)
        end = min(_resolve(options.ending_for_batch, partition, log), log.end)
        if start < log.start:
            problem = f"{partition}: offsets {start} to {log.start - 1} are gone"
            report_data_loss(options, problem)
            start = log.start
        for task in _tasks(options, OffsetRange(partition, start, end), log.files):
            aborted = None
            if options.is_read_committed:
                aborted = tuple(log.files.aborted(task.start, task.end))
            folder = str(log.files.folder)
            planned.append(LogRange(partition, folder, task.start, task.end, aborted))
    return planned


def read_log_range(options: SourceOptions, wanted: LogRange) -> Iterator[pa.RecordBatch]:
    """Iterate over the records of a range.

    Raises:
        DataLossError: A segment was deleted meanwhile, and failOnDataLoss is set.
        CorruptionError: A batch is not what was written.
    """
    rows = OffsetRange(wanted.partition, wanted.start, wanted.end)
    files = LogFiles(Path(wanted.folder))
    try:
        if are_headers_enough(options):
            held = files.held_batches(wanted.start, wanted.end)
            yield from rows_by_headers(options, rows, held, wanted.aborted)
            return
        chunks = files.chunks(wanted.start, wanted.end)
        pieces = (piece for chunk in chunks for piece, _ in cut(chunk))
        yield from decode(options, rows, pieces, wanted.aborted)
    except FileNotFoundError as error:
        report_data_loss(options, f"{wanted.partition}: a segment was deleted: {error}")


def _find_logs(options: SourceOptions) -> dict[TopicPartition, _Log]:
    found: dict[TopicPartition, _Log] = {}
    for log_dir in map(Path, options.log_dirs):
        if not log_dir.is_dir():
            raise OptionError(f"log.dirs: {log_dir} is not a folder")
        starts = read_offset_checkpoint(OsDisk(), log_dir / LOG_START_CHECKPOINT)
        marks: Mapping[TopicPartition, int] | None = None
        if (log_dir / HIGH_WATERMARK_CHECKPOINT).exists():
            marks = read_offset_checkpoint(OsDisk(), log_dir / HIGH_WATERMARK_CHECKPOINT)
        for folder in log_dir.iterdir():
            parsed = parse_folder_name(folder.name)
            if parsed is None or parsed.kind is not FolderKind.CURRENT or not folder.is_dir():
                continue
            files = LogFiles(folder)
            first = min(files.base_offsets(), default=0)
            start = max(starts.get(parsed.partition, 0), first)
            end = files.end_offset() if marks is None else marks.get(parsed.partition, 0)
            if options.is_read_committed and end > start:
                end = files.last_stable_offset(start, end)
            found[parsed.partition] = _Log(files, start, end)
    return found


def _selected(
    options: SourceOptions, logs: dict[TopicPartition, _Log]
) -> dict[TopicPartition, _Log]:
    match options.selection:
        case SubscribePattern(pattern):
            wanted = re.compile(pattern)
            return {p: log for p, log in logs.items() if wanted.fullmatch(p.topic)}
        case Subscribe(topics):
            missing = set(topics) - {p.topic for p in logs}
            chosen = {p: log for p, log in logs.items() if p.topic in topics}
        case Assign(partitions):
            missing = {str(p) for p in partitions - logs.keys()}
            chosen = {p: log for p, log in logs.items() if p in partitions}
    if missing:
        raise OptionError(f"log.dirs: there is no log of {', '.join(sorted(missing))}")
    return chosen


def _resolve(limit: OffsetLimit, partition: TopicPartition, log: _Log) -> int:
    match limit:
        case Everywhere(mark):
            return _marked(mark, log)
        case Specific(offsets):
            if partition not in offsets:
                raise OptionError(f"there is no offset for {partition}: -1 is latest, -2 earliest")
            return _marked(offsets[partition], log)
        case AtTimestamp(timestamp_ms, or_latest):
            return _at_time(timestamp_ms, or_latest, partition, log)
        case AtTimestamps(timestamps, or_latest):
            if partition not in timestamps:
                raise OptionError(f"there is no timestamp for {partition}")
            return _at_time(timestamps[partition], or_latest, partition, log)


def _marked(offset: int, log: _Log) -> int:
    return {EARLIEST: log.start, LATEST: log.end}.get(offset, offset)


def _at_time(timestamp_ms: int, or_latest: bool, partition: TopicPartition, log: _Log) -> int:
    found = log.files.offset_at(timestamp_ms, log.start, log.end)
    if found is None and not or_latest:
        raise OptionError(
            f"No offset matched from request of topic-partition {partition} and "
            f"timestamp {timestamp_ms}"
        )
    return log.end if found is None else found


def _tasks(options: SourceOptions, whole: OffsetRange, files: LogFiles) -> list[OffsetRange]:
    pieces: list[OffsetRange] = []
    start, size = whole.start, 0
    for base_offset in files.base_offsets():
        if start < base_offset < whole.end and size >= TASK_BYTES:
            pieces.append(OffsetRange(whole.partition, start, base_offset))
            start, size = base_offset, 0
        size += files.size(base_offset)
    pieces.append(OffsetRange(whole.partition, start, whole.end))
    return split_ranges(
        pieces,
        partitions_min=options.partitions_min,
        records_max=options.records_per_partition_max,
    )
