"""``__cluster_metadata-0`` on disk: the log, its snapshots, and what raft must not forget.

Raft decides what is appended, cut off and replaced (``metadata_quorum``); here it is carried out.
At a start the newest snapshot is found and the log behind it read for who the voters are.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from random import Random
from typing import Final

from odradek.core.clock import Clock
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.metadata.snapshots import BOOTSTRAP_SNAPSHOT, QuorumRecords, append_control
from odradek.protocol.generated.control_records import (
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
)
from odradek.quorum import metadata_events
from odradek.quorum.metadata_log_view import MetadataLogView
from odradek.quorum.metadata_snapshots import LoadedSnapshot, MetadataSnapshots
from odradek.quorum.metadata_upkeep import MetadataLogConfig
from odradek.quorum.quorum_history import QuorumHistory
from odradek.quorum.voters_record import voters_to_record
from odradek.raft.driver import AppendedVoters
from odradek.raft.hard_state import HardState
from odradek.raft.messages import OffsetAndEpoch
from odradek.raft.quorum_state import QUORUM_STATE_FILE, read_quorum_state, write_quorum_state
from odradek.raft.ready import AppendLeaderChange, AppendVoters
from odradek.records import BatchBuilder, BatchHeader, ControlRecordType
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer, Disk, write_atomically
from odradek.storage.log import Log
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.recovery import LogSettings, open_log
from odradek.storage.recovery_loss import OnLoss
from odradek.storage.scan import iter_batches
from odradek.storage.space_reserve import FULL_ERRORS, ReservedDisk

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
_LEADER_CHANGE_VERSION: Final = 0


class MetadataLog:
    def __init__(
        self,
        disk: Disk,
        folder: PurePath,
        *,
        clock: Clock,
        random: Random,
        config: MetadataLogConfig | None = None,
        on_loss: OnLoss | None = None,
        on_full: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        """Open the log, or begin one.

        ``on_loss`` may refuse to go on without what recovery would give up; ``on_full`` is called
        for appends that were refused for want of space.

        Raises:
            CorruptionError: The log starts behind what the snapshots hold, or does not fit them.
        """
        self.folder = folder
        self._disk = disk
        self._clock = clock
        self._on_full = on_full
        self._quorum_state_file = folder / QUORUM_STATE_FILE
        self.log = self._open_log(config or MetadataLogConfig(), random, on_loss)
        # A snapshot can wait until there is space; the reserve is for what cannot.
        plain = disk.inner if isinstance(disk, ReservedDisk) else disk
        self.snapshots = MetadataSnapshots(plain, folder)
        self.view = MetadataLogView(self.log, self.snapshots)
        self.history = QuorumHistory()
        self.found = self._find_snapshot()
        """The snapshot with which this start begins."""

    def _open_log(self, config: MetadataLogConfig, random: Random, on_loss: OnLoss | None) -> Log:
        if not self._disk.exists(self.folder):
            self._disk.make_folder(self.folder)
            # Else a crash could take the folder with all that was committed meanwhile.
            self._disk.sync_folder(self.folder.parent)
        log, _ = open_log(
            METADATA_PARTITION,
            self._disk,
            self.folder,
            _log_settings(config),
            now_ms=self._clock.now_ms(),
            random=random,
            clean=False,
            on_loss=on_loss,
        )
        return log

    def _find_snapshot(self) -> LoadedSnapshot | None:
        found = self.snapshots.load(self.log.log_start_offset)
        metadata_events.snapshots_damaged(self.folder, self.snapshots.problems)
        offset = 0
        if found is not None:
            self._fit_log_to(found.id)
            offset = found.id.offset
            # All that it holds was committed. More is known when there is a leader.
            self.log.update_high_watermark(offset)
            is_in_log = found.id != BOOTSTRAP_SNAPSHOT
            self.history.start_at(offset, found.content.quorum, is_in_log=is_in_log)
        batches = self.batches(offset, self.log.log_end_offset)
        self.history.append(self.history.plan(batches))
        return found

    def _fit_log_to(self, snapshot_id: OffsetAndEpoch) -> None:
        """Let the log begin again behind a snapshot that is ahead of it."""
        log, (offset, epoch) = self.log, snapshot_id
        if (epoch, offset) > (log.leader_epochs.latest_epoch or 0, log.log_end_offset):
            # All that it has is in the snapshot, or was given up by the one who wrote that.
            log.truncate_fully_and_start_at(offset, self._clock.now_ms())
        elif offset > log.log_end_offset:
            raise CorruptionError(
                f"{self.folder}: the log ends at {log.log_end_offset}, in a later epoch than the "
                f"snapshot at {offset}. One of them is not of this log"
            )

    # Raft's hard state.

    def read_hard_state(self) -> HardState:
        if not self._disk.exists(self._quorum_state_file):
            return HardState()
        return read_quorum_state(self._disk.read(self._quorum_state_file).decode())

    def persist(self, state: HardState, voter_ids: Iterable[int]) -> None:
        """Write the hard state; return when it is on disk."""
        kraft_version = self.history.latest.kraft_version
        text = write_quorum_state(state, kraft_version=kraft_version, voter_ids=voter_ids)
        write_atomically(self._disk, self._quorum_state_file, text.encode())

    # Appending.

    def append(self, batch: bytearray, epoch: int) -> None:
        """Append as the leader of ``epoch``.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR: there is no space; nothing was appended.
            OSError: What is in the log now is not known.
        """
        try:
            self.log.append_as_leader(
                batch,
                leader_epoch=epoch,
                now_ms=self._clock.now_ms(),
                origin=AppendOrigin.RAFT_LEADER,
            )
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise
            self._on_full(error)  # the log took back what it had written
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.folder}: no space for changes of the metadata: {error}",
            ) from error

    def append_quorum(self, records: QuorumRecords, epoch: int) -> list[AppendedVoters]:
        """Append control records that name the voters; raises as :meth:`append`."""
        builder = BatchBuilder(control=True)
        records.append_to(builder, self._clock.now_ms())
        return self._append_control(builder, epoch)

    def append_leader_change(self, change: AppendLeaderChange) -> list[AppendedVoters]:
        """Append the first record of a leader; nothing if there is no space for it."""
        message = LeaderChangeMessage(
            version=_LEADER_CHANGE_VERSION,
            leader_id=change.leader_id,
            voters=[LeaderChangeMessageVoter(voter_id=each) for each in change.voter_ids],
            granting_voters=[
                LeaderChangeMessageVoter(voter_id=each) for each in change.granting_voter_ids
            ],
        )
        builder, now_ms = BatchBuilder(control=True), self._clock.now_ms()
        append_control(builder, ControlRecordType.LEADER_CHANGE, message, now_ms)
        records = self.history.latest
        if change.voters is not None:
            records = records._replace(voters=voters_to_record(change.voters))
        if change.voters is not None or not self.history.is_in_log:
            # Formatting left them in a snapshot that stands for no log. From now on they are in
            # the log, where a voter finds them that fetches it from the start.
            records.append_to(builder, now_ms)
        return self._append_if_space(builder, change.epoch)

    def append_voters(self, change: AppendVoters) -> list[AppendedVoters]:
        """Append a record that names the voters; nothing if there is no space for it."""
        builder = BatchBuilder(control=True)
        record = voters_to_record(change.voters)
        append_control(builder, ControlRecordType.KRAFT_VOTERS, record, self._clock.now_ms())
        return self._append_if_space(builder, change.epoch)

    def _append_if_space(self, builder: BatchBuilder, epoch: int) -> list[AppendedVoters]:
        try:
            return self._append_control(builder, epoch)
        except ApiError:
            return []

    def _append_control(self, builder: BatchBuilder, epoch: int) -> list[AppendedVoters]:
        batch = builder.build()
        self.append(batch, epoch)
        planned = self.history.plan((batch, each) for each in iter_batches(batch))
        return self.history.append(planned)

    def append_fetched(self, records: Buffer, epoch: int) -> list[AppendedVoters]:
        """Append what the leader of ``epoch`` sent; nothing if there is no space for it.

        Raises:
            CorruptionError: It is damaged, or does not follow on; nothing was appended.
            OSError: What is in the log now is not known.
        """
        self._check_fetched(records)
        planned = self.history.plan((records, each) for each in iter_batches(records))
        try:
            self.log.append_as_follower(records, now_ms=self._clock.now_ms(), leader_epoch=epoch)
        except OSError as error:
            if error.errno not in FULL_ERRORS:
                raise
            self._on_full(error)
            return []
        end_offset = self.log.log_end_offset  # batches of later epochs were left out
        return self.history.append(each for each in planned if each.offset < end_offset)

    def _check_fetched(self, records: Buffer) -> None:
        next_offset = self.log.log_end_offset
        for header in iter_batches(records):
            if header.base_offset != next_offset:
                raise CorruptionError(
                    f"{METADATA_PARTITION}: offset {header.base_offset} where {next_offset} is next"
                )
            next_offset = header.next_offset

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset, self._clock.now_ms())
        self.history.truncate_to(self.log.log_end_offset)

    def start_at(self, snapshot: LoadedSnapshot) -> list[PurePath]:
        """Let the log begin again behind a fetched snapshot, which is on disk.

        Returns the files of older snapshots, to be removed.
        """
        self.log.truncate_fully_and_start_at(snapshot.id.offset, self._clock.now_ms())
        self.log.update_high_watermark(snapshot.id.offset)
        self.history.start_at(snapshot.id.offset, snapshot.content.quorum, is_in_log=True)
        return self.snapshots.on_installed(snapshot.id)

    # Reading.

    def batches(self, offset: int, end_offset: int) -> Iterator[tuple[Buffer, BatchHeader]]:
        while offset < end_offset:
            records = self.log.read(offset, bytes_max=BATCH_BYTES_MAX).records
            headers = [each for each in iter_batches(records) if each.next_offset <= end_offset]
            if not headers:
                raise CorruptionError(f"{METADATA_PARTITION}: no batch at offset {offset}")
            for header in headers:
                yield records, header
            offset = headers[-1].next_offset

    def read(self, offset: int, bytes_max: int) -> Buffer:
        """Return batches as they are stored, at least one."""
        return self.log.read(offset, bytes_max=bytes_max).records


def _log_settings(config: MetadataLogConfig) -> LogSettings:
    return LogSettings(
        LogConfig(
            cleanup_policy=frozenset(),
            max_message_bytes=BATCH_BYTES_MAX,
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            segment_index_bytes=config.segment_index_bytes,
        )
    )
