"""``__cluster_metadata-0``: the log, its quorum, and the image that its committed records make.

The driver of ``odradek.raft.node.RaftNode`` where this node is the only voter: it persists what the
node wants persisted, appends and flushes, and feeds what is committed to the loader. With more
voters it will also send messages; nothing else changes.

``append`` answers when the records are committed and the image has them. Appends that wait for the
disk together are flushed together.
"""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import PurePath
from random import Random
from typing import Final

from odradek.core.clock import Clock
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.image import ClusterImage, MetadataProvenance, MetadataUpdate
from odradek.metadata.loader import MetadataLoader
from odradek.metadata.record_versions import VersionedRecord
from odradek.protocol.generated.control_records import (
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
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
from odradek.records.control import encode_control_key
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer, Disk, write_atomically
from odradek.storage.log import FlushPlan, Log
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.recovery import LogSettings, open_log
from odradek.storage.scan import iter_batches

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
_SETTINGS: Final = LogSettings(
    LogConfig(cleanup_policy=frozenset(), max_message_bytes=BATCH_BYTES_MAX)
)
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
    ) -> None:
        """Open the log and lead its quorum; returns when all that is committed is loaded."""
        self._disk = disk
        self._clock = clock
        self._on_update = on_update
        self._quorum_state_file = folder / QUORUM_STATE_FILE
        self._loader = MetadataLoader()
        self._loaded_offset = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._flush: Flush = _flush_here
        self._is_flushing = False
        disk.make_folder(folder)
        self.log, _ = open_log(
            METADATA_PARTITION,
            disk,
            folder,
            _SETTINGS,
            now_ms=clock.now_ms(),
            random=random,
            clean=False,
        )
        key = ReplicaKey(node_id, directory_id)
        self._raft = RaftNode(
            key,
            VoterSet.of_ids(node_id),
            _View(self.log),
            self._read_hard_state(),
            config=RaftConfig(),
            random=random,
            now_ms=clock.monotonic_ms(),
        )
        self._carry_out(self._raft.take_ready())
        self._flush_soon()

    @property
    def image(self) -> ClusterImage:
        return self._loader.image

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    def flush_with(self, flush: Flush) -> None:
        """Let somebody else wait for the disk from now on."""
        self._flush = flush

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
        builder = BatchBuilder(control=True)
        key = encode_control_key(ControlRecordType.LEADER_CHANGE)
        builder.append(self._clock.now_ms(), key, message.to_bytes(_LEADER_CHANGE_VERSION))
        return builder.build()

    def _load_to(self, high_watermark: int) -> None:
        self.log.update_high_watermark(high_watermark)
        while self._loaded_offset < high_watermark:
            records = self.log.read(self._loaded_offset, bytes_max=BATCH_BYTES_MAX).records
            for header in iter_batches(records):
                if header.next_offset > high_watermark:
                    break
                self._load_batch(records, header)
                self._loaded_offset = header.next_offset
        while self._waiting and self._waiting[0][0] <= self._loaded_offset:
            _, then = self._waiting.popleft()
            then()

    def _load_batch(self, buffer: Buffer, header: BatchHeader) -> None:
        provenance = MetadataProvenance(
            header.last_offset, header.partition_leader_epoch, header.max_timestamp
        )
        records = (
            []
            if header.is_control
            else [decode_metadata(record.value or b"") for record in read_records(buffer, header)]
        )
        update = self._loader.load(records, provenance)
        if update is not None and update.delta:
            self._on_update(update)

    def _read_hard_state(self) -> HardState:
        if not self._disk.exists(self._quorum_state_file):
            return HardState()
        return read_quorum_state(self._disk.read(self._quorum_state_file).decode())


def _flush_here(plan: FlushPlan, then: Callable[[], None]) -> None:
    plan.run()
    then()


class _View:
    """The log as the quorum sees it."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        return self._log.leader_epochs.latest_epoch or 0

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        log = self._log
        if epoch >= self.last_epoch:
            return OffsetAndEpoch(log.log_end_offset, self.last_epoch)
        end = log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
        if end.epoch < 0:
            return OffsetAndEpoch(log.log_start_offset, epoch)
        return OffsetAndEpoch(end.end_offset, end.epoch)
