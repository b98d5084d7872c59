"""A compacted log on a simulated disk, with short words for what tests do to it."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from random import Random
from typing import Any

from odradek.core.ids import TopicPartition
from odradek.records import (
    BatchBuilder,
    BatchHeader,
    CompressionType,
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_end_transaction_marker,
    read_records,
)
from odradek.records.legacy import read_legacy
from odradek.storage.cleaner.cleaning import clean
from odradek.storage.cleaner.selection import inspect
from odradek.storage.cleaner.swap import SwapPlan, swap_all
from odradek.storage.cleaner.task import (
    CleanerSettings,
    CleaningResult,
    CleaningTask,
    plan_cleaning,
)
from odradek.storage.cleaner.throttle import Throttle
from odradek.storage.config import CleanupPolicy, LogConfig
from odradek.storage.disk import Buffer
from odradek.storage.log import Isolation, Log
from odradek.storage.producer_replay import read_marker
from odradek.storage.recovery import LogSettings, create_log, open_log
from odradek.storage.scan import iter_batches
from odradek.testing.disk import SimulatedDisk

LOG_DIR = PurePosixPath("/data")
FOLDER = LOG_DIR / "topic-0"
PARTITION = TopicPartition("topic", 0)
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
UNLIMITED = Throttle()

Row = tuple[str | None, str | None]


def compact_config(**changes: Any) -> LogConfig:
    settings: dict[str, Any] = {
        "cleanup_policy": frozenset({CleanupPolicy.COMPACT}),
        "delete_retention_ms": DAY_MS,
        "index_interval_bytes": 100,
        "segment_index_bytes": 1200,
        "segment_ms": 365 * DAY_MS,
    }
    return LogConfig(**(settings | changes))


class CompactedLog:
    def __init__(self, disk: SimulatedDisk | None = None, **config: Any) -> None:
        self.disk = disk or SimulatedDisk(Random(0))
        self.now_ms = START_MS
        self.settings = LogSettings(compact_config(**config), 7 * DAY_MS)
        self.log: Log = create_log(
            PARTITION, self.disk, FOLDER, self.settings, now_ms=self.now_ms, random=Random(0)
        )
        self.checkpoint: int | None = None
        self.next_sequence: dict[int, int] = {}

    # Writing. All goes the follower's way, which takes what it is given.

    def append_bytes(self, batch: Buffer) -> None:
        self.log.append_as_follower(batch, now_ms=self.now_ms)
        self.log.update_high_watermark(self.log.log_end_offset)

    def append(
        self,
        *rows: Row,
        codec: CompressionType = CompressionType.NONE,
        producer_id: int = -1,
        epoch: int = 0,
        transactional: bool = False,
        leader_epoch: int = 0,
        log_append_time: int | None = None,
    ) -> int:
        """Append one batch and return its base offset."""
        base_offset = self.log.log_end_offset
        builder = BatchBuilder(
            codec=codec,
            base_offset=base_offset,
            partition_leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=self.next_sequence.get(producer_id, 0) if producer_id >= 0 else -1,
            transactional=transactional,
            log_append_time=log_append_time,
        )
        for number, (key, value) in enumerate(rows):
            builder.append(self.now_ms + number, encode(key), encode(value))
        self.append_bytes(builder.build())
        if producer_id >= 0:
            self.next_sequence[producer_id] = self.next_sequence.get(producer_id, 0) + len(rows)
        return base_offset

    def end(self, producer_id: int, kind: ControlRecordType, epoch: int = 0) -> int:
        base_offset = self.log.log_end_offset
        marker = build_end_transaction_marker(
            EndTransactionMarker(kind, 7),
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_offset=base_offset,
            partition_leader_epoch=0,
        )
        self.append_bytes(marker)
        return base_offset

    def commit(self, producer_id: int, epoch: int = 0) -> int:
        return self.end(producer_id, ControlRecordType.COMMIT, epoch)

    def abort(self, producer_id: int, epoch: int = 0) -> int:
        return self.end(producer_id, ControlRecordType.ABORT, epoch)

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    # Cleaning.

    def plan(self, **settings: Any) -> CleaningTask:
        to_clean = inspect(self.log, self.checkpoint, self.now_ms)
        return plan_cleaning(to_clean, CleanerSettings(**settings), now_ms=self.now_ms)

    def clean(self, **settings: Any) -> CleaningResult:
        result = clean(self.disk, self.plan(**settings), UNLIMITED)
        swap_all(self.log, result, self.now_ms)
        checkpoint_path = LOG_DIR / "cleaner-offset-checkpoint"
        offsets = {PARTITION: result.clean_end_offset}
        SwapPlan(self.disk, FOLDER, checkpoint_path, offsets).run()
        self.checkpoint = result.clean_end_offset
        self.log.check_invariants()
        return result

    def reopen(self, *, clean: bool = False, recovery_point: int = 0) -> None:
        """Open the log again, as after a stop of the process."""
        high_watermark, start = self.log.high_watermark, self.log.log_start_offset
        if clean:
            self.log.close()
        self.log, _ = open_log(
            PARTITION,
            self.disk,
            FOLDER,
            self.settings,
            now_ms=self.now_ms,
            random=Random(0),
            clean=clean,
            log_start_offset=start,
            recovery_point=recovery_point,
        )
        self.log.update_high_watermark(high_watermark)

    # Reading.

    def batches(self) -> list[BatchHeader]:
        found: list[BatchHeader] = []
        for segment in self.log.segments:
            found += iter_batches(segment.read(0, segment.size))
        return found

    def records(self, offset: int | None = None, *, committed: bool = False) -> list[Record]:
        """Return what a consumer sees from ``offset`` on."""
        offset = self.log.log_start_offset if offset is None else offset
        return consume(self.log, offset, committed=committed)

    def rows(self, *, committed: bool = False) -> list[tuple[int, str | None, str | None]]:
        return [
            (record.offset, decode(record.key), decode(record.value))
            for record in self.records(committed=committed)
        ]


def consume(log: Log, offset: int, *, committed: bool, bytes_max: int = 400) -> list[Record]:
    """Read to the end as the Java consumer does, leaving out aborted data where it is told to."""
    isolation = Isolation.LAST_STABLE_OFFSET if committed else Isolation.HIGH_WATERMARK
    seen: list[Record] = []
    while offset < log.end_offset(isolation):
        records, aborted = log.read(offset, bytes_max=bytes_max, isolation=isolation)
        if not len(records):
            break
        upcoming = sorted(aborted or [], key=lambda each: each.first_offset)
        aborting: set[int] = set()
        for header in iter_batches(records):
            while upcoming and upcoming[0].first_offset <= header.last_offset:
                aborting.add(upcoming.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(records, header)
                if marker is not None and marker.type == ControlRecordType.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                seen += [r for r in _records_of(records, header) if r.offset >= offset]
            next_offset = header.next_offset
        offset = next_offset
    return seen


def _records_of(buffer: Buffer, header: BatchHeader) -> Iterable[Record]:
    if header.magic == 2:
        return read_records(buffer, header)
    return read_legacy(buffer, header.position).records


def newest(records: Iterable[Record]) -> dict[bytes, Record]:
    """Return the newest record of each key."""
    return {record.key: record for record in records if record.key is not None}


def encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def decode(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
