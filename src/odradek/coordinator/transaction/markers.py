"""Which partitions have yet to hear how their transaction ended.

The decision is in the log, and so are its partitions; which of them have their marker is not: a
new coordinator writes them all again. A partition that gets a marker twice is none the worse.
"""

from typing import NamedTuple

from odradek.coordinator.transaction.metadata import TransactionMetadata
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.ids import TopicPartition


class MarkersToWrite(NamedTuple):
    """Write a marker to each of ``partitions``, however long it takes.

    ``prepared_offset`` is where the decision stands in the coordinator's log. It tells apart two
    transactions that have the same epoch, as they may up to transaction version 1.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    prepared_offset: int


class _Unmarked:
    __slots__ = ("metadata", "partitions", "prepared_offset")

    def __init__(self, metadata: TransactionMetadata, prepared_offset: int) -> None:
        self.metadata = metadata
        self.partitions = set(metadata.partitions)
        self.prepared_offset = prepared_offset


class PendingMarkers:
    """Soft state: all of it follows from the log, at worst with more left to do."""

    def __init__(self) -> None:
        self._unmarked: dict[str, _Unmarked] = {}
        self._not_taken: dict[str, None] = {}

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._unmarked

    def __len__(self) -> int:
        return len(self._unmarked)

    def begin(self, metadata: TransactionMetadata, prepared_offset: int) -> None:
        self.drop(metadata.transactional_id)  # so that the order is that of the log
        self._unmarked[metadata.transactional_id] = _Unmarked(metadata, prepared_offset)
        if metadata.partitions:
            self._not_taken[metadata.transactional_id] = None

    def drop(self, transactional_id: str) -> None:
        self._unmarked.pop(transactional_id, None)
        self._not_taken.pop(transactional_id, None)

    def left(self, transactional_id: str) -> set[TopicPartition]:
        return self._unmarked[transactional_id].partitions

    def take(self, coordinator_epoch: int, committed_offset: int | None) -> list[MarkersToWrite]:
        """Hand out, once, what was decided before ``committed_offset``."""
        taken = []
        for transactional_id in list(self._not_taken):
            unmarked = self._unmarked[transactional_id]
            if committed_offset is not None and unmarked.prepared_offset >= committed_offset:
                break
            del self._not_taken[transactional_id]
            taken.append(_to_write(unmarked, coordinator_epoch))
        return taken

    def on_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        prepared_offset: int | None,
    ) -> bool:
        """Note a marker; True if this transaction has them all now."""
        unmarked = self._unmarked.get(transactional_id)
        if (
            unmarked is None
            or unmarked.metadata.identity != (producer_id, producer_epoch)
            or prepared_offset not in (None, unmarked.prepared_offset)
        ):
            return False  # late, and about an earlier transaction
        unmarked.partitions.discard(partition)
        return not unmarked.partitions


def _to_write(unmarked: _Unmarked, coordinator_epoch: int) -> MarkersToWrite:
    metadata = unmarked.metadata
    return MarkersToWrite(
        transactional_id=metadata.transactional_id,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        is_commit=metadata.state is TransactionState.PREPARE_COMMIT,
        coordinator_epoch=coordinator_epoch,
        partitions=tuple(sorted(unmarked.partitions)),
        transaction_version=metadata.client_version,
        prepared_offset=unmarked.prepared_offset,
    )
