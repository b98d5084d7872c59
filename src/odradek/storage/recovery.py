"""Opening a log that is on disk, whatever state a crash left it in.

In this order, each step safe to repeat if the next crash comes in the middle:

1. Finish what the cleaner began. ``.cleaned`` files are half made: removed. ``.swap`` files are
   whole: they take the place of the segments they were made from. ``.deleted`` files go, and
   so does what a kill left of a small file that was to be replaced (``.tmp``, ``.truncated``).
2. Open the segments. Indexes without a log file are litter; a segment whose indexes are missing
   or damaged gets new ones from its batches.
3. After an unclean stop, check every batch from the recovery point on. The log ends before the
   first bad one; segments after it are dropped, because what follows a hole cannot be trusted.
   A segment that does not begin where the one before it ends follows a hole too: the power went
   after some of it was written back and before the end of its predecessor was. Only the cleaner
   leaves such gaps, before ``first_dirty_offset``. Leader epochs never go back: where they do, the
   disk shows a tail that had been truncated before the power went. What is dropped is reported
   (``recovery_loss``).
4. Bring the leader epochs within the log's start and end.
5. Load the newest producer snapshot and replay the batches behind it.

What was fsynced before the crash is before the recovery point or whole, so it is never dropped.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import PurePath
from random import Random
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.records import BatchHeader, ControlRecordType
from odradek.records.batch import MAGIC, NO_PRODUCER_ID
from odradek.storage.config import LogConfig
from odradek.storage.disk import TEMPORARY_SUFFIX, TRUNCATED_SUFFIX, Buffer, Disk
from odradek.storage.leader_epochs import LEADER_EPOCH_CHECKPOINT, EpochEntry, LeaderEpochs
from odradek.storage.log import Log
from odradek.storage.producer_replay import read_marker
from odradek.storage.producer_state import ProducerStates
from odradek.storage.recovery_loss import Loss, OnLoss, describe_loss, sound_batches
from odradek.storage.scan import iter_batches
from odradek.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_name,
)
from odradek.storage.segments import Segments
from odradek.storage.transaction_index import AbortedTransaction

_INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)(\.\w+)?")


class LogSettings(NamedTuple):
    """What a log needs to know besides its folder."""

    config: LogConfig
    producer_id_expiration_ms: int = 86_400_000
    transaction_timeout_ms_max: int = 900_000


class RecoveryReport(NamedTuple):
    """What opening a log had to mend; all zero after a clean stop."""

    checked_bytes: int = 0
    cut_bytes: int = 0
    dropped_segments: int = 0
    rebuilt_indexes: int = 0
    loss: Loss | None = None


def create_log(
    partition: TopicPartition,
    disk: Disk,
    folder: PurePath,
    settings: LogSettings,
    *,
    now_ms: int,
    random: Random,
    log_start_offset: int = 0,
) -> Log:
    """Make the folder of a new, empty log."""
    disk.make_folder(folder)
    opening = _Opening(partition, disk, folder, settings, now_ms, random, None)
    log, _ = opening.open_segments(True, log_start_offset, log_start_offset, 0)
    return log


def open_log(
    partition: TopicPartition,
    disk: Disk,
    folder: PurePath,
    settings: LogSettings,
    *,
    now_ms: int,
    random: Random,
    clean: bool,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    first_dirty_offset: int = 0,
    on_loss: OnLoss | None = None,
) -> tuple[Log, RecoveryReport]:
    """Open the log in ``folder``; the three offsets are those of the checkpoint files.

    ``clean``: the last stop was a clean one, so what is there need not be checked.
    """
    return _Opening(partition, disk, folder, settings, now_ms, random, on_loss).open(
        clean, log_start_offset, recovery_point, first_dirty_offset
    )


class _Opening:
    def __init__(
        self,
        partition: TopicPartition,
        disk: Disk,
        folder: PurePath,
        settings: LogSettings,
        now_ms: int,
        random: Random,
        on_loss: OnLoss | None,
    ) -> None:
        self._partition = partition
        self._disk = disk
        self._folder = folder
        self._settings = settings
        self._now_ms = now_ms
        self._random = random
        self._on_loss = on_loss
        self._producer_states = ProducerStates(
            disk,
            folder,
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
            transaction_timeout_ms_max=settings.transaction_timeout_ms_max,
        )
        self._leader_epochs = LeaderEpochs(disk, folder / LEADER_EPOCH_CHECKPOINT)
        self._recovered_end, self._recovered_epoch = 0, -1
        self._checked_bytes = self._cut_bytes = 0
        self._dropped_segments = self._rebuilt_indexes = 0
        self._loss: Loss | None = None

    def open(
        self, clean: bool, log_start_offset: int, recovery_point: int, first_dirty_offset: int
    ) -> tuple[Log, RecoveryReport]:
        self._finish_cleaning()
        return self.open_segments(clean, log_start_offset, recovery_point, first_dirty_offset)

    def open_segments(
        self, clean: bool, log_start_offset: int, recovery_point: int, first_dirty_offset: int
    ) -> tuple[Log, RecoveryReport]:
        """As ``open``, of a folder in which nothing was left: drafts in it are of this moment."""
        segments = self._open_segments()
        if not clean:
            segments = self._recover(segments, recovery_point, first_dirty_offset)
        if not segments:
            segments = [self._new_segment(log_start_offset)]
        for segment in segments:
            self._mend_indexes(segment, segments)
        log_end_offset = segments[-1].next_offset()
        if log_end_offset < log_start_offset:
            # The log start was checkpointed, the records were not written: all there is is gone.
            segments, log_end_offset = self._start_anew(segments, log_start_offset)
        log_start_offset = max(log_start_offset, segments[0].base_offset)
        log = self._assemble(segments, log_start_offset, log_end_offset, recovery_point, clean)
        report = RecoveryReport(
            self._checked_bytes,
            self._cut_bytes,
            self._dropped_segments,
            self._rebuilt_indexes,
            self._loss,
        )
        return log, report

    # Step 1.

    def _finish_cleaning(self) -> None:
        names = self._disk.names(self._folder)
        half_made = {name[:20] for name in names if name.endswith(LOG_SUFFIX + CLEANED_SUFFIX)}
        for name in names:
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX, TRUNCATED_SUFFIX)):
                self._disk.remove(self._folder / name)
        for name in names:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                self._complete_swap(int(name[:20]))
        if not any(name.endswith(SWAP_SUFFIX) for name in names):
            return  # as nearly always: another look at the folder costs as much as the first
        for name in self._disk.names(self._folder):
            if name.endswith(SWAP_SUFFIX):
                self._settle_index(name, is_half_made=name[:20] in half_made)

    def _complete_swap(self, base_offset: int) -> None:
        """Let a cleaned segment take the place of those it was made from."""
        swap = self._open_segment(base_offset, SWAP_SUFFIX)
        end_offset = max((header.next_offset for header in swap.batches()), default=base_offset)
        for old in _base_offsets(self._disk.names(self._folder)):
            # Under its own name only while the old log file is there: once that is gone, indexes
            # of that name are the new ones, renamed before the last crash.
            if base_offset <= old < end_offset or old == base_offset:
                self._remove_segment(old)
        swap.rename_to("")

    def _remove_segment(self, base_offset: int) -> None:
        """Remove a segment's files, the log file last."""
        for kind in (*_INDEX_SUFFIXES, LOG_SUFFIX):
            self._disk.remove(self._folder / file_name(base_offset, kind))

    def _settle_index(self, name: str, *, is_half_made: bool) -> None:
        """Put an index that was still to be renamed in its place, if its log file is there.

        Kafka renames the log file first. Of a segment that is half made nothing is kept.
        """
        path = self._folder / name
        final = path.with_name(name.removesuffix(SWAP_SUFFIX))
        has_log = self._disk.exists(self._folder / f"{name[:20]}{LOG_SUFFIX}")
        if has_log and not is_half_made and not self._disk.exists(final):
            self._disk.rename(path, final)
        else:
            self._disk.remove(path)

    # Step 2.

    def _open_segments(self) -> list[Segment]:
        names = self._disk.names(self._folder)
        bases = _base_offsets(names)
        for name in names:
            match = _SEGMENT_FILE.fullmatch(name)
            if match and match[2] in _INDEX_SUFFIXES and int(match[1]) not in bases:
                self._disk.remove(self._folder / name)
        return [self._open_segment(base) for base in bases]

    def _open_segment(self, base_offset: int, suffix: str = "") -> Segment:
        config = self._settings.config
        return Segment.open(
            self._disk,
            self._folder,
            base_offset,
            config,
            now_ms=self._now_ms,
            roll_jitter_ms=config.pick_segment_jitter_ms(self._random),
            suffix=suffix,
        )

    def _new_segment(self, base_offset: int) -> Segment:
        config = self._settings.config
        return Segment.create(
            self._disk,
            self._folder,
            base_offset,
            config,
            now_ms=self._now_ms,
            roll_jitter_ms=config.pick_segment_jitter_ms(self._random),
        )

    # Step 3.

    def _recover(
        self, segments: list[Segment], recovery_point: int, first_dirty_offset: int
    ) -> list[Segment]:
        """Check what may not have reached the disk; return the segments that are left."""
        unflushed = [
            slot
            for slot in range(len(segments))
            if slot + 1 == len(segments) or segments[slot + 1].base_offset > recovery_point
        ]
        if not unflushed:
            return segments
        first = segments[unflushed[0]]
        self._mend_epochs(segments[: unflushed[0]])
        self._producer_states.truncate_and_reload(0, first.base_offset, self._now_ms)
        self._leader_epochs.truncate_from_end(first.base_offset)
        self._replay_before(segments[: unflushed[0]], first.base_offset)
        for slot in unflushed:
            segment = segments[slot]
            is_next = segment is first or segment.base_offset == self._recovered_end
            if not is_next and not self._recovered_end < segment.base_offset <= first_dirty_offset:
                reason = f"it begins at {segment.base_offset}, the segment before it ends earlier"
                self._note_loss(segments[slot:], 0, reason)
                return self._drop_from(segments, slot)
            self._checked_bytes += segment.size
            self._recovered_end = segment.base_offset
            valid, reason = segment.check(self._on_recovered(segment))
            if valid < segment.size:
                self._note_loss(segments[slot:], valid, reason)
            cut = segment.cut_to(valid)
            self._cut_bytes += cut
            if cut:
                return self._drop_from(segments, slot + 1)
        return segments

    def _mend_epochs(self, segments: list[Segment]) -> None:
        """Read the epochs of what is flushed from its batches, if a loss of power took the file.

        It is written without a sync when an epoch has its first record, so that it may be damaged,
        or empty, although the entries that it had before were synced.
        """
        try:
            if self._leader_epochs.entries:
                return
        except CorruptionError:
            pass
        headers = (header for segment in segments for header in segment.batches())
        self._leader_epochs.replace(
            EpochEntry(each.partition_leader_epoch, each.base_offset)
            for each in headers
            if each.magic == MAGIC and each.partition_leader_epoch >= 0
        )

    def _note_loss(self, segments: list[Segment], position: int, reason: str) -> None:
        """Look at what is about to be discarded, and let whoever cares prevent that."""
        self._loss = describe_loss(
            segments, position=position, offset=self._recovered_end, reason=reason
        )
        if self._loss is not None and self._on_loss is not None:
            self._on_loss(self._loss, sound_batches(segments, position))

    def _drop_from(self, segments: list[Segment], slot: int) -> list[Segment]:
        for segment in reversed(segments[slot:]):
            segment.remove()
            self._dropped_segments += 1
        self._disk.sync_folder(self._folder)  # they must not come back into a log that grew on
        return segments[:slot]

    def _replay_before(self, segments: list[Segment], end_offset: int) -> None:
        for segment in segments:
            if segment.size:
                buffer = segment.read(0, segment.size)
                for header in iter_batches(buffer):
                    if header.last_offset >= self._producer_states.map_end_offset:
                        self._apply(header, buffer, None)
        self._producer_states.update_map_end_offset(end_offset)

    def _on_recovered(self, segment: Segment) -> Callable[[BatchHeader, Buffer], None]:
        def on_batch(header: BatchHeader, buffer: Buffer) -> None:
            epoch = header.partition_leader_epoch
            if epoch < self._recovered_epoch:
                raise CorruptionError(f"epoch {epoch} after {self._recovered_epoch}")
            self._recovered_end, self._recovered_epoch = header.next_offset, epoch
            if header.magic != MAGIC:
                return
            latest = self._leader_epochs.latest_epoch
            if epoch >= 0 and (latest is None or epoch > latest):
                self._leader_epochs.assign(epoch, header.base_offset)
            self._apply(header, buffer, segment)
            self._producer_states.update_map_end_offset(header.next_offset)

        return on_batch

    def _apply(self, header: BatchHeader, buffer: Buffer, segment: Segment | None) -> None:
        if header.magic != MAGIC or header.producer_id <= NO_PRODUCER_ID:
            return
        states = self._producer_states
        completed = states.apply(header, 0, read_marker(buffer, header))
        if completed is None:
            return
        if segment is not None and completed.is_aborted:
            segment.transaction_index.append(
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    states.last_stable_offset(completed),
                )
            )
        states.complete(completed)

    def _start_anew(self, segments: list[Segment], offset: int) -> tuple[list[Segment], int]:
        for segment in reversed(segments):
            segment.remove()
            self._dropped_segments += 1
        self._leader_epochs.clear()
        self._producer_states.truncate_fully_and_start_at(offset)
        return [self._new_segment(offset)], offset

    # Steps 4 and 5.

    def _assemble(
        self,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        clean: bool,
    ) -> Log:
        self._leader_epochs.truncate_from_end(log_end_offset)
        self._leader_epochs.truncate_from_start(log_start_offset)
        log = Log(
            self._partition,
            self._disk,
            self._folder,
            self._settings.config,
            segments=Segments(segments),
            producer_states=self._producer_states,
            leader_epochs=self._leader_epochs,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=min(recovery_point, log_end_offset) if not clean else log_end_offset,
            random=self._random,
        )
        states = self._producer_states
        states.remove_stray_snapshots([segment.base_offset for segment in segments])
        states.truncate_and_reload(log_start_offset, log_end_offset, self._now_ms)
        log.replay_producer_states(states.map_end_offset, log_end_offset)
        return log

    def _mend_indexes(self, segment: Segment, segments: list[Segment]) -> None:
        try:
            segment.check_indexes()
            return
        except CorruptionError:
            self._rebuilt_indexes += 1
        segment.rebuild_indexes()
        try:
            segment.transaction_index.check()
        except CorruptionError:
            _rebuild_transaction_index(segment, segments)


def _base_offsets(names: Iterable[str]) -> list[int]:
    """Return where the segments begin whose log files are among ``names``."""
    matches = map(_SEGMENT_FILE.fullmatch, names)
    return [int(m[1]) for m in matches if m and m[2] == LOG_SUFFIX and not m[3]]


def _rebuild_transaction_index(damaged: Segment, segments: list[Segment]) -> None:
    """Find the aborted transactions that end in a segment, wherever they began."""
    damaged.transaction_index.reset()
    open_since: dict[int, int] = {}  # producer id -> first offset of its open transaction
    for segment in segments:
        buffer = segment.read(0, segment.size)
        for header in iter_batches(buffer):
            if header.magic != MAGIC or not header.is_transactional:
                continue
            marker = read_marker(buffer, header)
            if marker is None:
                open_since.setdefault(header.producer_id, header.base_offset)
                continue
            first_offset = open_since.pop(header.producer_id, None)
            if (
                segment is damaged
                and first_offset is not None
                and marker.type == ControlRecordType.ABORT
            ):
                still_open = min(open_since.values(), default=header.next_offset)
                damaged.transaction_index.append(
                    AbortedTransaction(
                        header.producer_id, first_offset, header.last_offset, still_open
                    )
                )
        if segment is damaged:
            return
