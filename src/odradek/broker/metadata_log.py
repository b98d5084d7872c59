"""``__cluster_metadata-0``: the log, its quorum, and the image that its committed records make.

The driver of ``odradek.raft.node.RaftNode`` where this node is the only voter: it persists what the
node wants persisted, appends and flushes, and feeds what is committed to the loader. With more
voters it will also send messages; nothing else changes.

``append`` answers when the records are committed and the image has them. Appends that wait for the
disk together are flushed together.

At a start the newest snapshot is loaded (``metadata_snapshots``), then the log behind it. While the
node runs, new snapshots are written and what they replace is deleted (``metadata_upkeep``).

A quorum of more than one voter is refused so far.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from random import Random
from typing import Final

from odradek.broker.metadata_log_view import MetadataLogView
from odradek.broker.metadata_snapshots import MetadataSnapshots
from odradek.broker.metadata_upkeep import MetadataLogConfig, MetadataUpkeep
from odradek.core.clock import Clock
from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.image import ClusterImage, MetadataProvenance, MetadataUpdate
from odradek.metadata.loader import MetadataLoader
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.snapshots import BOOTSTRAP_SNAPSHOT, QuorumRecords, append_control
from odradek.protocol.generated.control_records import (
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
)
from odradek.protocol.versioned import decode_metadata
from odradek.raft.config import RaftConfig
from odradek.raft.hard_state import HardState
from odradek.raft.messages import OffsetAndEpoch, ReplicaKey
from odradek.raft.node import RaftNode
from odradek.raft.quorum_state import QUORUM_STATE_FILE, read_quorum_state, write_quorum_state
from odradek.raft.ready import AppendLeaderChange, Ready
from odradek.raft.voters import VoterSet
from odradek.records import BatchBuilder, BatchHeader, ControlRecordType, read_records
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer, Disk, write_atomically
from odradek.storage.flush_plan import FlushPlan
from odradek.storage.log import Log
from odradek.storage.log_directory import DirectoryRefusedError
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.recovery import LogSettings, open_log
from odradek.storage.scan import iter_batches

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
_LEADER_CHANGE_VERSION: Final = 0

Flush = Callable[[FlushPlan, Callable[[], None]], None]
"""Carries out a plan, here or on a thread, and then calls back on the owner's thread."""


class MetadataLog:
    def __init__(
        self,
        disk: Disk,
        folder: PurePath,
        *,
        node_id: int,
        directory_id: Uuid,
        clock: Clock,
        random: Random,
        on_update: Callable[[MetadataUpdate], None],
        config: MetadataLogConfig | None = None,
    ) -> None:
        """Open the log and lead its quorum; returns when all that is committed is loaded.

        Raises:
            CorruptionError: The log starts behind what the snapshots hold, or does not fit them.
            DirectoryRefusedError: The voters are others than this node alone.
        """
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._on_update = on_update
        config = config or MetadataLogConfig()
        self._quorum_state_file = folder / QUORUM_STATE_FILE
        self._loader = MetadataLoader()
        self._loaded_offset = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._flush: Flush = _flush_here
        self._is_flushing = False
        self.log = self._open_log(config, random)
        self._snapshots = MetadataSnapshots(disk, folder)
        self.upkeep = MetadataUpkeep(self.log, self._snapshots, self._shown, config, clock)
        self._quorum, self._voters_in_log = QuorumRecords(), True
        self._load_snapshot()
        self.replica_key = ReplicaKey(node_id, directory_id)
        self._raft = self._make_raft(random)
        self._carry_out(self._raft.take_ready())
        self._flush_soon()

    def _open_log(self, config: MetadataLogConfig, random: Random) -> Log:
        self._disk.make_folder(self._folder)
        log, _ = open_log(
            METADATA_PARTITION,
            self._disk,
            self._folder,
            _log_settings(config),
            now_ms=self._clock.now_ms(),
            random=random,
            clean=False,
        )
        return log

    def _make_raft(self, random: Random) -> RaftNode:
        return RaftNode(
            self.replica_key,
            self._find_voters(self.replica_key),
            MetadataLogView(self.log, self._snapshots),
            self._read_hard_state(),
            config=RaftConfig(),
            random=random,
            now_ms=self._clock.monotonic_ms(),
        )

    @property
    def image(self) -> ClusterImage:
        return self._loader.image

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def kraft_version(self) -> int:
        """The level of a feature that is no metadata record: from 1 on the log names its voters."""
        return self._quorum.kraft_version

    @property
    def voters(self) -> VotersRecord | None:
        """The voters by the log, with where they listen; None if it names none."""
        return self._quorum.voters

    def append_quorum(self, quorum: QuorumRecords) -> None:
        """Let the log name its voters, who must be those that it has; whoever appends next waits.

        They count when they are committed: until then the quorum is this node all the same.
        """
        assert quorum.voters is not None
        assert [each.voter_id for each in quorum.voters.voters] == [self.replica_key.id]
        builder = BatchBuilder(control=True)
        quorum.append_to(builder, self._clock.now_ms())
        self._append(builder.build())
        self._flush_soon()

    def flush_with(self, flush: Flush) -> None:
        """Let somebody else wait for the disk from now on."""
        self._flush = flush

    @contextmanager
    def flushed_together(self) -> Iterator[None]:
        """Let all that is appended inside wait for one flush, which begins at the end."""
        assert not self._is_flushing
        self._is_flushing = True
        try:
            yield
        finally:
            self._is_flushing = False
        self._flush_soon()

    def append(self, records: Sequence[VersionedRecord], then: Callable[[], None]) -> None:
        """Append records as one batch; ``then`` is called when the image has them.

        With no records there is nothing to wait for but what came before.
        """
        if records:
            builder = BatchBuilder()
            now_ms = self._clock.now_ms()
            for record in records:
                builder.append(now_ms, None, record.to_bytes())
            self._append(builder.build())
        if self.log.log_end_offset <= self._loaded_offset:
            then()
            return
        self._waiting.append((self.log.log_end_offset, then))
        self._flush_soon()

    def close(self) -> None:
        self.log.close(self._clock.now_ms())

    def _append(self, batch: bytearray) -> None:
        self.log.append_as_leader(
            batch,
            leader_epoch=self._raft.epoch,
            now_ms=self._clock.now_ms(),
            origin=AppendOrigin.RAFT_LEADER,
        )
        self._raft.on_appended(self._clock.monotonic_ms())
        self._carry_out(self._raft.take_ready())

    def _flush_soon(self) -> None:
        if self._is_flushing or self.log.recovery_point >= self.log.log_end_offset:
            return
        self._is_flushing = True
        plan = self.log.plan_flush()
        self._flush(plan, lambda: self._on_flushed(plan))

    def _on_flushed(self, plan: FlushPlan) -> None:
        self._is_flushing = False
        self.log.on_flushed(plan, self._clock.now_ms())
        self._raft.on_flushed(plan.end_offset, self._clock.monotonic_ms())
        self._carry_out(self._raft.take_ready())
        self._flush_soon()  # what came meanwhile

    def _carry_out(self, ready: Ready) -> None:
        # The order is the safety argument: see odradek.raft.ready.
        if ready.hard_state is not None:
            text = write_quorum_state(ready.hard_state)
            write_atomically(self._disk, self._quorum_state_file, text.encode())
        match ready.log_instruction:
            case AppendLeaderChange() as change:
                self._append(self._leader_change(change))
            case None:
                pass
            case other:
                raise AssertionError(f"a quorum of one never has to {other}")
        assert not ready.messages, "a quorum of one has nobody to talk to"
        if ready.high_watermark is not None:
            self._load_to(ready.high_watermark)

    def _leader_change(self, change: AppendLeaderChange) -> bytearray:
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
        if not self._voters_in_log:
            # Formatting left them in a snapshot that stands for no log. From now on they are in
            # the log, where a voter finds them that fetches it from the start.
            self._quorum.append_to(builder, now_ms)
            self._voters_in_log = True
        return builder.build()

    # Loading.

    def _load_snapshot(self) -> None:
        """Load the newest snapshot, and read of the whole log who the voters are."""
        loaded = self._snapshots.load(self.log.log_start_offset)
        if loaded is not None:
            self._fit_log_to(loaded.id)
            offset, epoch = loaded.id
            time_ms = loaded.content.last_contained_log_timestamp_ms
            provenance = MetadataProvenance(offset - 1, epoch, time_ms)
            self._publish(self._loader.load_snapshot(loaded.content.records(), provenance))
            self._loaded_offset = offset
            self._quorum = loaded.content.quorum
            self._voters_in_log = loaded.id != BOOTSTRAP_SNAPSHOT
        for buffer, header in self._batches(self._loaded_offset, self.log.log_end_offset):
            quorum = self._quorum.after(buffer, header)
            self._voters_in_log |= quorum is not self._quorum
            self._quorum = quorum

    def _fit_log_to(self, snapshot_id: OffsetAndEpoch) -> None:
        """Let the log start anew behind a snapshot that is ahead of it."""
        log, (offset, epoch) = self.log, snapshot_id
        if (epoch, offset) > (log.leader_epochs.latest_epoch or 0, log.log_end_offset):
            # All that it has is in the snapshot, or was given up by whoever wrote that.
            log.truncate_fully_and_start_at(offset, self._clock.now_ms())
        elif offset > log.log_end_offset:
            raise CorruptionError(
                f"{self._folder}: the log ends at {log.log_end_offset}, in a later epoch than the "
                f"snapshot at {offset}. One of them is not of this log"
            )

    def _find_voters(self, key: ReplicaKey) -> VoterSet:
        """Return the voters: of the log if it has them, else this node as by its config."""
        if self._quorum.voters is None:
            return VoterSet.of_ids(key.id)
        keys = [
            ReplicaKey(each.voter_id, each.voter_directory_id)
            for each in self._quorum.voters.voters
        ]
        if keys != [key]:
            named = ", ".join(f"{each.id} in directory {each.directory_id}" for each in keys)
            raise DirectoryRefusedError(
                f"{self._folder} belongs to a quorum of the voters {named or '(none)'}; this is "
                f"{key.id} in directory {key.directory_id}, and can only be a quorum by itself"
            )
        return VoterSet((key,))

    def _batches(self, offset: int, end_offset: int) -> Iterator[tuple[Buffer, BatchHeader]]:
        while offset < end_offset:
            records = self.log.read(offset, bytes_max=BATCH_BYTES_MAX).records
            headers = [each for each in iter_batches(records) if each.next_offset <= end_offset]
            if not headers:
                raise CorruptionError(f"{METADATA_PARTITION}: no batch at offset {offset}")
            for header in headers:
                yield records, header
            offset = headers[-1].next_offset

    def _load_to(self, high_watermark: int) -> None:
        self.log.update_high_watermark(high_watermark)
        for buffer, header in self._batches(self._loaded_offset, high_watermark):
            self._load_batch(buffer, header)
            self._loaded_offset = header.next_offset
            self.upkeep.on_loaded(header.end_position - header.position)
        self.upkeep.snapshot_if_due()
        while self._waiting and self._waiting[0][0] <= self._loaded_offset:
            _, then = self._waiting.popleft()
            then()

    def _load_batch(self, buffer: Buffer, header: BatchHeader) -> None:
        provenance = MetadataProvenance(
            header.last_offset, header.partition_leader_epoch, header.max_timestamp
        )
        self._quorum = self._quorum.after(buffer, header)
        records = (
            []
            if header.is_control
            else [decode_metadata(record.value or b"") for record in read_records(buffer, header)]
        )
        update = self._loader.load(records, provenance)
        if update is not None:
            self._publish(update)

    def _publish(self, update: MetadataUpdate) -> None:
        if update.delta:
            self._on_update(update)

    def _shown(self) -> tuple[ClusterImage, QuorumRecords] | None:
        """Return what a snapshot would hold.

        Nothing within a transaction: the image is behind the log then. Nothing before the first
        records: there is no metadata.version to write others in.
        """
        if self._loader.in_transaction or self.image.metadata_version is None:
            return None
        return self.image, self._quorum

    def _read_hard_state(self) -> HardState:
        if not self._disk.exists(self._quorum_state_file):
            return HardState()
        return read_quorum_state(self._disk.read(self._quorum_state_file).decode())


def _flush_here(plan: FlushPlan, then: Callable[[], None]) -> None:
    plan.run()
    then()


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
