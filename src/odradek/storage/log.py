"""A log: the records of one partition, as a row of segments. Append is a hot path.

Reading top to bottom, an append is: validate, assign, write, publish. Offsets::

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    recovery_point   <= log_end_offset     what is before it was fsynced

``log_end_offset`` is the offset the next record gets. What is at or after the high watermark may be
lost when the leader changes; what is at or after the last stable offset belongs to a transaction
that is not decided yet. Both are moved by replication, through ``update_high_watermark``.

A log is a plain object: it has no thread, reads no clock and takes no lock. Work that waits for the
disk is handed out as plans (``plan_flush``) for others to carry out. Opening a log that is on disk
is ``recovery.open_log``. Benchmark: ``bench/storage.py``.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import PurePath
from random import Random
from typing import Final, NamedTuple

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.records import BatchHeader, EndTransactionMarker, TimestampType
from odradek.records.batch import NO_PRODUCER_ID, placed_header
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer, Disk
from odradek.storage.flush_plan import FlushPlan
from odradek.storage.leader_epochs import LEADER_EPOCH_CHECKPOINT, LeaderEpochs
from odradek.storage.log_read import ReadResult, read_segments
from odradek.storage.offset_index import RELATIVE_OFFSET_MAX
from odradek.storage.opening import Budget
from odradek.storage.producer_replay import apply_appended, read_marker, recall_duplicate, replay
from odradek.storage.producer_state import AppendOrigin, BatchMetadata, ProducerStates
from odradek.storage.scan import check_replica_batches
from odradek.storage.segment import DELETED_SUFFIX, LOG_SUFFIX, Segment
from odradek.storage.segments import Segments
from odradek.storage.validation import ValidBatch, WritableBuffer, place, validate

NO_EPOCH: Final = -1


class Isolation(Enum):
    """How far a reader may see."""

    LOG_END = "replicas"
    HIGH_WATERMARK = "read_uncommitted"
    LAST_STABLE_OFFSET = "read_committed"


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    """-1 where the producer's own times stand."""
    is_duplicate: bool = False
    is_flush_due: bool = False
    """``flush.messages`` was reached: the append may be acknowledged only after a flush."""


_NOTHING: Final = ReadResult(b"")


class DeletedSegment(NamedTuple):
    """A segment out of use, whose files go at ``due_ms``: somebody may be reading them still."""

    due_ms: int
    segment: Segment


class Log:
    def __init__(
        self,
        partition: TopicPartition,
        disk: Disk,
        folder: PurePath,
        config: LogConfig,
        *,
        segments: Segments,
        producer_states: ProducerStates,
        leader_epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        random: Random,
    ) -> None:
        self.partition = partition
        self.disk = disk
        self.folder = folder
        self.config = config
        self.segments = segments
        self.producer_states = producer_states
        self.leader_epochs = leader_epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.deleted: list[DeletedSegment] = []
        self.on_log_start_moved: Callable[[], None] | None = None
        """For those who must be told that records have gone, by retention say."""
        self._random = random
        self._name_changes = 1  # files made, renamed or removed; compared with what was synced
        self._name_changes_synced = 0
        self._truncations = 0
        self._written_epoch = self.leader_epochs.written_epoch

    # Appending.

    def begin_epoch(self, leader_epoch: int) -> None:
        """Note that this replica leads from here on; its epoch is written with its first record."""
        self.leader_epochs.begin(leader_epoch, self.log_end_offset)

    def append_as_leader(
        self,
        records: WritableBuffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        budget: Budget | None = None,
        valid: ValidBatch | None = None,
    ) -> AppendResult:
        """Check one batch, assign offsets to it and write it to the active segment.

        ``records`` is patched in place. On any exception the log is as it was before the call.
        With ``valid`` it was validated before, elsewhere.

        Raises:
            ApiError: The batch is refused; the codes are those of ``validation`` and
                ``producer_state``.
            OpeningDeferredError: It is to be validated elsewhere, as the ``budget`` is spent.
        """
        batch, header = valid or validate(records, self.config, origin, now_ms, budget)
        marker = None
        if header.producer_id > NO_PRODUCER_ID:
            if origin is AppendOrigin.CLIENT:
                duplicate = self.producer_states.find_duplicate(header)
                if duplicate is not None:
                    return _duplicate_result(duplicate)
            marker = read_marker(batch, header)
            try:
                self.producer_states.check(
                    header, origin, marker, transaction_version=transaction_version
                )
            except ApiError as error:
                if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    raise
                duplicate = recall_duplicate(self.producer_states, self.segments, header)
                if duplicate is None:
                    raise
                return _duplicate_result(duplicate)
        return self._append_valid(batch, header, marker, leader_epoch, now_ms)

    def _append_valid(
        self,
        batch: WritableBuffer,
        header: BatchHeader,
        marker: EndTransactionMarker | None,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        config, base_offset = self.config, self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = place(
            batch,
            header,
            config,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )
        segment = self._segment_for_append(len(batch), last_offset, max_timestamp, now_ms)
        if leader_epoch != self._written_epoch:
            self._assign_epoch(leader_epoch, base_offset)
        position = segment.size
        segment.append(batch, base_offset, last_offset, max_timestamp)

        # Published last: readers take log_end_offset for the edge of what exists, so it must
        # never run ahead of bytes the segment has accepted.
        end_offset = self.log_end_offset = last_offset + 1
        if header.producer_id > NO_PRODUCER_ID:
            try:
                header = placed_header(header, base_offset, leader_epoch, max_timestamp)
                apply_appended(self.producer_states, header, marker, segment, now_ms)
            except OSError:
                self._take_back(segment, position, base_offset, last_offset, now_ms)
                raise
        self.producer_states.update_map_end_offset(end_offset)
        is_own_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return AppendResult(
            base_offset,
            last_offset,
            max_timestamp,
            now_ms if is_own_time else -1,
            False,
            end_offset - self.recovery_point >= config.flush_messages,
        )

    def append_as_follower(
        self, records: Buffer, *, now_ms: int, leader_epoch: int | None = None
    ) -> AppendResult | None:
        """Write batches as their leader numbered them; None if there is no whole batch.

        A batch cut short at the end is left for the next fetch. Batches of an epoch after
        ``leader_epoch``, the one this replica knows, are left too: the leader they come from may
        have lost its place already.

        Raises:
            CorruptionError: A batch fails its checksum or does not follow on; nothing is written.
        """
        headers = check_replica_batches(
            records, self.partition, next_offset=self.log_end_offset, leader_epoch=leader_epoch
        )
        if not headers:
            return None
        first, last = headers[0], headers[-1]
        size = last.end_position
        max_timestamp = max(header.max_timestamp for header in headers)
        segment = self._segment_for_append(
            size, last.last_offset, max_timestamp, now_ms, first_offset=first.base_offset
        )
        for header in headers:
            if header.partition_leader_epoch != self._written_epoch:
                self._assign_epoch(header.partition_leader_epoch, header.base_offset)
        position, end_offset = segment.size, self.log_end_offset
        segment.append_all(memoryview(records)[:size], headers)
        self.log_end_offset = last.next_offset
        try:
            for header in headers:
                if header.producer_id > NO_PRODUCER_ID:
                    marker = read_marker(records, header)
                    apply_appended(self.producer_states, header, marker, segment, now_ms)
        except OSError:
            self._take_back(segment, position, end_offset, first.last_offset, now_ms)
            raise
        self.producer_states.update_map_end_offset(self.log_end_offset)
        is_flush_due = self.log_end_offset - self.recovery_point >= self.config.flush_messages
        return AppendResult(
            first.base_offset, last.last_offset, max_timestamp, -1, is_flush_due=is_flush_due
        )

    def _take_back(
        self, segment: Segment, position: int, end_offset: int, last_offset: int, now_ms: int
    ) -> None:
        """Undo an append whose abort marker found no room in the transaction index."""
        segment.take_back(position, last_offset)
        segment.transaction_index.truncate_to(end_offset)
        self.producer_states.update_map_end_offset(self.log_end_offset)  # else it is kept as it is
        self.log_end_offset = end_offset
        self._rebuild_producer_states(now_ms)

    def _segment_for_append(
        self,
        size: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        first_offset: int | None = None,
    ) -> Segment:
        active = self.segments.active
        if active.is_roll_due(size, last_offset, max_timestamp, now_ms):
            # A new segment begins where the log ends, even if a follower's first batch is behind
            # a gap that compaction left: recovery takes a gap between segments for lost data.
            base_offset = self.log_end_offset
            if first_offset is not None and last_offset - base_offset > RELATIVE_OFFSET_MAX:
                base_offset = first_offset
            return self.roll(now_ms, base_offset=base_offset)
        return active

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch == NO_EPOCH:
            return
        self.leader_epochs.assign(epoch, start_offset)
        self._written_epoch = self.leader_epochs.written_epoch

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Start a new active segment and return it."""
        base_offset = self.log_end_offset if base_offset is None else base_offset
        active = self.segments.active
        if active.size == 0 and active.base_offset == base_offset:
            return active
        try:
            active.on_become_inactive()
            # Kept for every segment, so that truncating to its start finds the state of that
            # moment. Not synced: its checksum finds a torn one, and the state is rebuilt.
            self.producer_states.update_map_end_offset(base_offset)
            self.producer_states.take_snapshot(sync=False)
            segment = self.new_segment(base_offset, now_ms)
        except OSError:
            active.on_stay_active()
            raise
        if active.size == 0:
            # An empty segment holds nothing that its successor could not.
            self.segments.replace([active], [segment])
            self._discard([active], now_ms)
        else:
            self.segments.add(segment)
        return segment

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        self._name_changes += 1
        return Segment.create(
            self.disk,
            self.folder,
            base_offset,
            self.config,
            now_ms=now_ms,
            roll_jitter_ms=self.config.pick_segment_jitter_ms(self._random),
        )

    # Reading.

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest undecided transaction begins."""
        offset = self.producer_states.first_unstable_offset
        return None if offset is None else max(offset, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        unstable = self.first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return unstable

    def end_offset(self, isolation: Isolation) -> int:
        """Return the offset up to which a reader may see, exclusive."""
        if isolation is Isolation.LOG_END:
            return self.log_end_offset
        if isolation is Isolation.HIGH_WATERMARK:
            return self.high_watermark
        return self.last_stable_offset

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark, within the log; return where it is now."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producer_states.on_high_watermark_updated(self.high_watermark)
        return self.high_watermark

    def read(
        self,
        offset: int,
        *,
        bytes_max: int,
        isolation: Isolation = Isolation.LOG_END,
        at_least_one_batch: bool = True,
    ) -> ReadResult:
        """Return the batches from the one that holds ``offset`` on, out of one segment.

        At most ``bytes_max``, but a whole first batch if it alone is larger and
        ``at_least_one_batch``: a reader must get on. Nothing past the isolation's end.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE, before the log's start or after its end.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: {offset} is not in "
                f"[{self.log_start_offset}, {self.log_end_offset}]",
            )
        end_offset = self.end_offset(isolation)
        if offset == end_offset and isolation is not Isolation.LAST_STABLE_OFFSET:
            return _NOTHING
        return read_segments(
            self.segments,
            offset,
            end_offset=end_offset,
            log_end_offset=self.log_end_offset,
            bytes_max=bytes_max,
            at_least_one_batch=at_least_one_batch,
            with_aborted=isolation is Isolation.LAST_STABLE_OFFSET,
        )

    def bytes_from(self, offset: int) -> int:
        """Return about how many bytes follow ``offset``: exact from the next index entry on."""
        slot = max(self.segments.slot_of(offset), 0)
        first = self.segments[slot]
        count = first.bytes_from(offset)
        return count + sum(
            self.segments[later].size for later in range(slot + 1, len(self.segments))
        )

    # Cutting.

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop all records from ``offset`` on; return whether there were any.

        If ``offset`` is within a batch, all of it goes and the log ends where it began. A replica
        that asked for this fetches from the new end; a hole would stay for ever.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            self._truncate_epochs_from_end(offset)
            return False
        border = self._batch_border(offset)
        if border < self.log_start_offset <= offset:
            offset = self.log_start_offset  # what is left before it was deleted already
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        offset = border
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        # The last segments go first: a crash in between must leave a log without holes.
        for segment in list(reversed(self.segments)):
            if segment.base_offset > offset:
                self.segments.remove(segment)
                self._discard([segment], now_ms)
        self.segments.active.truncate_to(offset)
        self._after_truncation(offset)
        self._rebuild_producer_states(now_ms)
        return True

    def _batch_border(self, offset: int) -> int:
        """Return where the batch that holds ``offset`` begins."""
        segment = self.segments.holding(offset)
        found = None if segment is None else segment.search_for(offset)
        return offset if found is None else min(offset, found.base_offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything; the next record gets ``offset``."""
        old = list(self.segments)
        for segment in reversed(old):
            segment.remove()
        self.segments = Segments([self.new_segment(offset, now_ms)])
        self.leader_epochs.clear()
        self.producer_states.truncate_fully_and_start_at(offset)
        self.log_start_offset = offset
        self._after_truncation(offset)

    def _after_truncation(self, offset: int) -> None:
        self._truncations += 1
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        # The whole segment must be looked at after a crash: that it is shorter now is not synced,
        # and the tail that was cut off could come back behind what is appended next. The caller
        # writes the recovery point to its checkpoint file before it goes on.
        self.recovery_point = min(self.recovery_point, self.segments.active.base_offset)
        self._truncate_epochs_from_end(offset)
        self.high_watermark = min(max(self.high_watermark, self.log_start_offset), offset)

    def _truncate_epochs_from_end(self, offset: int) -> None:
        self.leader_epochs.truncate_from_end(offset)
        self._written_epoch = self.leader_epochs.written_epoch

    def _rebuild_producer_states(self, now_ms: int) -> None:
        states = self.producer_states
        states.truncate_and_reload(self.log_start_offset, self.log_end_offset, now_ms)
        self.replay_producer_states(states.map_end_offset, self.log_end_offset)

    def replay_producer_states(self, start_offset: int, end_offset: int) -> None:
        """Apply the batches of ``[start_offset, end_offset)`` to the producer states."""
        replay(
            self.producer_states, self.segments, start_offset=start_offset, end_offset=end_offset
        )
        self.producer_states.on_high_watermark_updated(self.high_watermark)

    def advance_log_start_offset(self, offset: int) -> bool:
        """Make everything before ``offset`` unreadable; retention removes its segments later.

        Raises:
            ApiError: OFFSET_OUT_OF_RANGE: past the high watermark.
        """
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: cannot start at {offset}, high watermark is "
                f"{self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self._written_epoch = self.leader_epochs.written_epoch
        self.producer_states.on_log_start_offset_incremented(offset)
        if self.on_log_start_moved is not None:
            self.on_log_start_moved()
        return True

    def discard(self, segments: Iterable[Segment], now_ms: int) -> None:
        """Take segments out of the log and mark their files for deletion."""
        for segment in segments:
            self.segments.remove(segment)
            self._discard([segment], now_ms)

    def _discard(self, segments: Iterable[Segment], now_ms: int) -> None:
        self._name_changes += 1
        for segment in segments:
            segment.rename_to(DELETED_SUFFIX)
            self.producer_states.delete_snapshot_at(segment.base_offset)
            due_ms = now_ms + self.config.file_delete_delay_ms
            self.deleted.append(DeletedSegment(due_ms, segment))

    def take_deletable(self, now_ms: int) -> list[Segment]:
        """Return the discarded segments whose time has come; the caller removes their files."""
        due = [deleted.segment for deleted in self.deleted if deleted.due_ms <= now_ms]
        self.deleted = [deleted for deleted in self.deleted if deleted.due_ms > now_ms]
        return due

    def on_clock_set_back(self, step_ms: int, now_ms: int) -> None:
        """Let the files of discarded segments go no later because the wall clock was set back."""
        latest_ms = now_ms + self.config.file_delete_delay_ms  # later ones are from before that
        self.deleted = [
            DeletedSegment(due_ms if due_ms <= latest_ms else due_ms - step_ms, segment)
            for due_ms, segment in self.deleted
        ]

    # Durability.

    def plan_flush(self, *, is_active_left_out: bool = False) -> FlushPlan:
        """Return what to sync so that all records there are now survive a crash.

        Or only those of closed segments. Indexes are mostly as they were: they get an entry for
        every few KiB of records.
        """
        slot = max(self.segments.slot_of(self.recovery_point), 0)
        segments = list(self.segments)[slot:]
        end_offset = self.log_end_offset
        if is_active_left_out:
            segments, end_offset = segments[:-1], self.segments.active.base_offset
        indexes = [each for segment in segments for each in segment.unsynced_indexes()]
        paths = [segment.path(LOG_SUFFIX) for segment in segments]
        paths += [each.file.path for each in indexes]
        # A segment that was made must be found after a crash, and one that was truncated away
        # must not: it would overlap with what was appended since.
        has_new_names = self._name_changes > self._name_changes_synced
        epoch_changes = self.leader_epochs.unsynced_changes
        if epoch_changes is not None:
            paths.append(self.leader_epochs.path)
            has_new_names = True
        return FlushPlan(
            self.disk,
            self.folder if has_new_names else None,
            paths,
            indexes,
            end_offset,
            self._name_changes,
            self._truncations,
            epoch_changes,
        )

    def on_flushed(self, plan: FlushPlan) -> None:
        """Take note that ``plan`` was carried out."""
        # If the log was cut meanwhile, what stands before that offset now may not have been synced.
        if plan.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, plan.end_offset)
        self._name_changes_synced = max(self._name_changes_synced, plan.name_changes)
        for index, changes in plan.indexes:
            index.on_synced(changes)
        if plan.epoch_changes is not None:
            self.leader_epochs.on_synced(plan.epoch_changes)

    def flush(self) -> None:
        """Sync here and now; for closing and for tests. Elsewhere it belongs on another thread."""
        plan = self.plan_flush()
        plan.run()
        self.on_flushed(plan)

    def close(self) -> None:
        """Stop cleanly: everything on disk, indexes trimmed, producer state saved."""
        self.producer_states.take_snapshot()
        for segment in self.segments:
            segment.close(trim=segment is self.segments.active)
        self.leader_epochs.sync()
        self.flush()
        for segment in self.segments:
            segment.close()

    def reconfigure(self, config: LogConfig) -> None:
        """Go on with other settings; the index sizes of segments that exist stay."""
        self.config = config
        for segment in self.segments:
            segment.reconfigure(config)

    def relocate(self, folder: PurePath) -> None:
        """Go on in a folder that was renamed: a log to be deleted, or one that was moved here."""
        self.folder = folder
        for segment in [*self.segments, *(deleted.segment for deleted in self.deleted)]:
            segment.relocate(folder)
        self.leader_epochs.relocate(folder / LEADER_EPOCH_CHECKPOINT)
        self.producer_states.move_to(folder)

    def check_invariants(self) -> None:
        self.segments.check_invariants()
        assert self.segments[0].base_offset <= self.log_start_offset
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark
        assert self.recovery_point <= self.log_end_offset
        assert self.segments.active.base_offset <= self.log_end_offset


def _duplicate_result(batch: BatchMetadata) -> AppendResult:
    """Return what the producer of a batch that is here already was told, or should have been."""
    return AppendResult(
        batch.first_offset, batch.last_offset, batch.timestamp, batch.timestamp, is_duplicate=True
    )
