"""An offset checkpoint of a log directory, and who may write it when (``checkpoints``)."""

from collections.abc import Mapping
from pathlib import PurePath
from threading import Lock
from typing import NamedTuple, TypeAlias

from odradek.core.ids import TopicPartition
from odradek.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from odradek.storage.disk import Disk, OsDisk
from odradek.storage.space_reserve import ReservedDisk

Offsets: TypeAlias = Mapping[TopicPartition, int]


class CheckpointFile:
    """An offset checkpoint of a directory, as it is on disk.

    Written from any thread, and the content that was planned last wins: an owner who must have an
    entry gone waits for a write under way, and one that has not begun becomes a no-op. This is the
    only lock in storage.
    """

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self.path = path
        self.written: Offsets = {}
        self._disk = disk
        self._planned: CheckpointWrite | None = None  # maybe on disk, maybe not yet
        self._version = 0
        self._lock = Lock()
        self._version_on_disk = 0

    def load(self) -> None:
        self.written = read_offset_checkpoint(self._disk, self.path)

    @property
    def is_writing(self) -> bool:
        return self._planned is not None

    @property
    def latest(self) -> Offsets:
        return self.written if self._planned is None else self._planned.offsets

    def largest(self, partition: TopicPartition) -> int | None:
        """Return the most that the file may say of a partition, now or in a moment."""
        offsets = [self.written.get(partition), self.latest.get(partition)]
        return max((offset for offset in offsets if offset is not None), default=None)

    def plan_write(self, offsets: Offsets) -> "CheckpointWrite":
        self._version += 1
        self._planned = CheckpointWrite(self, self._version, offsets)
        return self._planned

    def write(self, plan: "CheckpointWrite") -> None:
        with self._lock:
            if plan.version > self._version_on_disk:
                write_offset_checkpoint(disk_for_thread(self._disk), self.path, plan.offsets)
                self._version_on_disk = plan.version

    def on_written(self, plan: "CheckpointWrite") -> None:
        """Take note that ``plan`` was carried out; for the owner's thread."""
        if plan is self._planned:
            self.written = plan.offsets
            self._planned = None

    def on_failed(self, plan: "CheckpointWrite") -> None:
        """Take note that ``plan`` could not be carried out: the file is as it was."""
        if plan is self._planned:
            self._planned = None

    def write_now(self, offsets: Offsets) -> None:
        plan = self.plan_write(offsets)
        try:
            plan.run()
        except OSError:
            self.on_failed(plan)
            raise
        self.on_written(plan)


class CheckpointWrite(NamedTuple):
    file: CheckpointFile
    version: int
    offsets: Offsets

    def run(self) -> None:
        self.file.write(self)


def disk_for_thread(disk: Disk) -> Disk:
    """Return the same disk for use in another thread: an OsDisk counts descriptors in one only."""
    if isinstance(disk, ReservedDisk):
        return ReservedDisk(disk_for_thread(disk.inner), disk.reserve)
    return OsDisk(syncs=disk.syncs) if isinstance(disk, OsDisk) else disk
