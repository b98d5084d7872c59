"""When snapshots of the metadata log are written, and when what they replace is deleted.

A snapshot is due when ``metadata.log.max.record.bytes.between.snapshots`` were committed since the
last one, or ``metadata.log.max.snapshot.interval.ms`` have gone by and there is anything new. It is
made from an image, which never changes, on another thread; the loop goes on meanwhile. A failure to
write one is no failure of the log: it is logged, and tried again when the next is due. Time is
counted anew from each start, bytes from the newest snapshot.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.core.clock import Clock
from odradek.core.event import Event
from odradek.metadata.image import ClusterImage
from odradek.metadata.snapshots import QuorumRecords
from odradek.quorum.metadata_snapshots import MetadataSnapshots, SnapshotWrite
from odradek.storage.checkpoint_file import disk_for_thread
from odradek.storage.log import Log

_logger: Final = logging.getLogger("odradek.metadata")

Run = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs work on a thread; then calls back on the owner's thread with what it raised, or None."""


class MetadataLogConfig(NamedTuple):
    """The configs ``metadata.log.*`` and ``metadata.max.*``, with Kafka's defaults."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_index_bytes: int = 10_485_760
    """Not among the configs of metadata logs; smaller for tests."""
    max_record_bytes_between_snapshots: int = 20_971_520
    max_snapshot_interval_ms: int = 3_600_000
    """0: time alone is no reason for a snapshot."""
    max_retention_bytes: int = 104_857_600
    max_retention_ms: int = 604_800_000


class MetadataUpkeep:
    def __init__(
        self,
        log: Log,
        snapshots: MetadataSnapshots,
        shown: Callable[[], tuple[ClusterImage, QuorumRecords] | None],
        config: MetadataLogConfig,
        clock: Clock,
    ) -> None:
        """``shown`` is what a snapshot would hold now; None if there can be none now."""
        self._log = log
        self._snapshots = snapshots
        self._shown = shown
        self._config = config
        self._clock = clock
        self._run: Run | None = None
        self._is_writing = False
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = clock.monotonic_ms()
        self.error: OSError | None = None
        """What the last snapshot or deletion failed of."""

    def run_with(self, run: Run) -> None:
        """Begin, by this means; before that nothing is written or deleted."""
        self._run = run
        self.tick()

    def on_loaded(self, count: int) -> None:
        """Take note that ``count`` more bytes of the log are in the image."""
        self._bytes_since_snapshot += count

    def next_deadline_ms(self) -> int | None:
        """When a snapshot is due for its age, by the monotonic clock; None if nothing is new."""
        interval_ms = self._config.max_snapshot_interval_ms
        if not self._bytes_since_snapshot or not interval_ms or self._is_writing:
            return None
        return self._last_snapshot_ms + interval_ms

    def tick(self) -> None:
        """Do what is due."""
        self.snapshot_if_due()
        if self._run is not None:
            try:
                self._delete_old(self._run)
            except OSError as error:
                self._on_io_error(error)

    def snapshot_if_due(self) -> None:
        shown = self._shown() if self._is_due() else None
        if shown is None or self._run is None:
            return
        plan = self._snapshots.plan_write(*shown, self._clock.now_ms())
        # Counted from here even if it fails: a disk that is full now is full in a moment too.
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = self._clock.monotonic_ms()
        if plan is not None:
            self._is_writing = True
            self._run(plan.run, lambda error: self._on_snapshot(plan, error))

    def _is_due(self) -> bool:
        if self._is_writing:
            return False
        if self._bytes_since_snapshot >= self._config.max_record_bytes_between_snapshots:
            return True
        deadline_ms = self.next_deadline_ms()
        return deadline_ms is not None and self._clock.monotonic_ms() >= deadline_ms

    def _on_snapshot(self, plan: SnapshotWrite, error: BaseException | None) -> None:
        self._is_writing = False
        if isinstance(error, OSError):
            self._on_io_error(error)
            return
        if error is not None:
            raise error
        self.error = None
        self._snapshots.on_written(plan)
        _logger.info(Event("snapshot written", end_offset=plan.id.offset, epoch=plan.id.epoch))
        self.tick()

    def _delete_old(self, run: Run) -> None:
        config, now_ms = self._config, self._clock.now_ms()
        self._snapshots.clean(
            self._log,
            retention_bytes=config.max_retention_bytes,
            retention_ms=config.max_retention_ms,
            now_ms=now_ms,
        )
        files = [path for each in self._log.take_deletable(now_ms) for path in each.paths()]
        if files:
            run(lambda: self._remove(files), self._on_removed)

    def _remove(self, files: Sequence[PurePath]) -> None:
        disk = disk_for_thread(self._log.disk)
        for path in files:
            disk.remove(path)

    def _on_removed(self, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            self._on_io_error(error)  # the next start removes them
        elif error is not None:
            raise error

    def _on_io_error(self, error: OSError) -> None:
        self.error = error
        _logger.warning(Event("snapshot not written, or old files not removed", error=error))
