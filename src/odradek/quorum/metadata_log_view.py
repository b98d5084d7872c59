"""The metadata log and its snapshots as the quorum sees them."""

from odradek.quorum.metadata_snapshots import MetadataSnapshots
from odradek.raft.messages import OffsetAndEpoch
from odradek.storage.log import Log


class MetadataLogView:
    """Implements ``odradek.raft.log_view.LogView``."""

    def __init__(self, log: Log, snapshots: MetadataSnapshots) -> None:
        self._log = log
        self._snapshots = snapshots

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        epoch = self._log.leader_epochs.latest_epoch
        if epoch is not None:
            return epoch
        snapshot = self._snapshots.latest
        return 0 if snapshot is None else snapshot.epoch

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return self._snapshots.earliest

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self._snapshots.latest

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        return self._snapshots.size_of(snapshot_id)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        log = self._log
        if epoch >= self.last_epoch:
            return OffsetAndEpoch(log.log_end_offset, self.last_epoch)
        end = log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
        if end.epoch < 0:
            return OffsetAndEpoch(log.log_start_offset, epoch)
        return OffsetAndEpoch(end.end_offset, end.epoch)
