"""Brings what is committed into the image, in slices, and calls those who wait for it.

It follows the high watermark. A snapshot that was fetched from the leader takes the place of the
records up to its end; the update that it makes is the difference to the image before it.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from odradek.core.event import Event
from odradek.metadata.image import MetadataProvenance, MetadataUpdate
from odradek.metadata.loader import MetadataLoader
from odradek.protocol.versioned import decode_metadata
from odradek.quorum.metadata_log import MetadataLog
from odradek.quorum.metadata_snapshots import LoadedSnapshot
from odradek.quorum.metadata_upkeep import MetadataUpkeep
from odradek.records import BatchHeader, read_records
from odradek.storage.disk import Buffer

_logger: Final = logging.getLogger("odradek.metadata")

RunSteps: TypeAlias = Callable[[Generator[None, None, None]], None]
"""Takes all steps, at once or in slices."""


class CommittedLoader:
    def __init__(
        self,
        log: MetadataLog,
        on_update: Callable[[MetadataUpdate], None],
        on_loaded: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """``on_loaded`` gets the offset up to which the image has everything.

        ``failed`` gets what makes it impossible to go on: the log cannot be read, or a committed
        record does not fit.
        """
        self._log = log
        self._on_update = on_update
        self._on_loaded = on_loaded
        self._failed = failed
        self.loader = MetadataLoader()
        """Has the image, which each request looks at."""
        self._run_steps: RunSteps = run_here
        self._is_loading = False
        self._committed_offset = 0
        self._snapshot: LoadedSnapshot | None = None
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.upkeep: MetadataUpkeep | None = None
        self.offset = 0
        """Up to where the image has everything, exclusive."""

    @property
    def in_transaction(self) -> bool:
        return self.loader.in_transaction

    def load_with(self, run_steps: RunSteps) -> None:
        self._run_steps = run_steps

    def load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Take over a snapshot, after the batch that is being loaded now."""
        self._snapshot = snapshot
        self._load()

    def load_to(self, high_watermark: int) -> None:
        """Bring what is committed into the image, after what is being brought there now."""
        self._committed_offset = high_watermark
        self._load()

    def when_loaded(self, offset: int, then: Callable[[], None]) -> None:
        """Call back when the image has everything up to ``offset``; offsets must not go back."""
        if offset <= self.offset:
            then()
        else:
            self._waiting.append((offset, then))

    def _load(self) -> None:
        if not self._is_loading:
            self._is_loading = True
            self._run_steps(self._steps())

    def _steps(self) -> Generator[None, None, None]:
        try:
            while self._has_snapshot() or self.offset < self._committed_offset:
                yield from self._load_some()
                self._notify()
        except Exception as error:
            self._failed(error)
            return  # for good: what follows would be built on nothing
        self._is_loading = False

    def _has_snapshot(self) -> bool:
        return self._snapshot is not None

    def _load_some(self) -> Generator[None, None, None]:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            yield from self._load_snapshot(snapshot)
            return
        for buffer, header in self._log.batches(self.offset, self._committed_offset):
            yield from self._load_batch(buffer, header)
            self.offset = header.next_offset
            if self.upkeep is not None:
                self.upkeep.on_loaded(header.end_position - header.position)
            if self._has_snapshot():
                return  # the log behind this batch is gone
        if self.upkeep is not None:
            self.upkeep.snapshot_if_due()

    def _load_snapshot(self, snapshot: LoadedSnapshot) -> Generator[None, None, None]:
        (offset, epoch), content = snapshot
        provenance = MetadataProvenance(offset - 1, epoch, content.last_contained_log_timestamp_ms)
        update = yield from self.loader.load_snapshot_in_steps(content.records(), provenance)
        self._publish(update)
        self.offset = offset

    def _load_batch(self, buffer: Buffer, header: BatchHeader) -> Generator[None, None, None]:
        provenance = MetadataProvenance(
            header.last_offset, header.partition_leader_epoch, header.max_timestamp
        )
        if not header.is_control:
            for record in read_records(buffer, header):
                self.loader.replay(decode_metadata(record.value or b""))
                yield
        update = yield from self.loader.end_batch(provenance)
        if update is not None:
            self._publish(update)

    def _publish(self, update: MetadataUpdate) -> None:
        if update.delta:
            self._on_update(update)

    def _notify(self) -> None:
        self._call(lambda: self._on_loaded(self.offset))
        while self._waiting and self._waiting[0][0] <= self.offset:
            self._call(self._waiting.popleft()[1])

    def _call(self, then: Callable[[], None]) -> None:
        """Call one who waits; that it fails is no reason to load nothing more."""
        try:
            then()
        except Exception as error:
            _logger.error(Event("failed after a commit", error=error), exc_info=error)


def run_here(steps: Generator[None, None, None]) -> None:
    for _ in steps:
        pass
