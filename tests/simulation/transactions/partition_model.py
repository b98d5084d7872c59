"""A partition as transactions see it: who wrote what, what is open, which marker decided it.

The rules are those of a partition's leader in Kafka 4.3: epochs fence, sequences find duplicates,
and a marker of transaction version 2 has to be above the epoch of what it decides. ``guards`` are
writes whose transaction is being looked up; a marker that comes meanwhile makes them void.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.coordinator.transaction.markers import MarkersToWrite
from odradek.core.errors import ErrorCode

BUMP_VERSION = 2
Token = tuple[str, int]
"""The transaction a client believes a record to be in: its name, and the how-manieth it is."""


class Written(NamedTuple):
    token: Token
    value: str


@dataclass
class ProducerEntry:
    epoch: int
    next_sequence: int = 0
    coordinator_epoch: int = -1
    open: list[Written] = field(default_factory=list)


@dataclass
class PartitionModel:
    name: str
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    guards: dict[int, int] = field(default_factory=dict)
    decided: list[tuple[Written, bool, int]] = field(default_factory=list)
    """Record, committed?, and the decision it is from: an offset of the coordinator's log."""
    appended: int = 0
    _guards_made: int = 0

    def is_open(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.epoch == epoch and bool(entry.open)

    def guard(self, producer_id: int) -> int:
        """Begin to look up a transaction, or join those who do."""
        if producer_id not in self.guards:
            self._guards_made += 1
            self.guards[producer_id] = self._guards_made
        return self.guards[producer_id]

    def write(
        self, who: tuple[int, int], sequence: int, written: Written, guard: int | None
    ) -> ErrorCode:
        producer_id, epoch = who
        entry = self.producers.setdefault(producer_id, ProducerEntry(epoch))
        if epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > entry.epoch:
            assert not entry.open, f"{self.name}: epoch {epoch} over an open {entry}"
            entry.epoch, entry.next_sequence = epoch, 0
        if sequence < entry.next_sequence:
            return ErrorCode.NONE  # a duplicate
        if sequence > entry.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not entry.open and (guard is None or self.guards.get(producer_id) != guard):
            return ErrorCode.INVALID_TXN_STATE
        self.guards.pop(producer_id, None)
        entry.next_sequence += 1
        self.appended += 1
        entry.open.append(written)
        return ErrorCode.NONE

    def mark(self, marker: MarkersToWrite) -> ErrorCode:
        entry = self.producers.setdefault(
            marker.producer_id, ProducerEntry(marker.producer_epoch, 0)
        )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        is_late = marker.transaction_version >= BUMP_VERSION and bool(entry.open)
        if marker.producer_epoch < entry.epoch or (
            is_late and marker.producer_epoch == entry.epoch
        ):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.producer_epoch > entry.epoch:
            entry.epoch, entry.next_sequence = marker.producer_epoch, 0
        entry.coordinator_epoch = marker.coordinator_epoch
        self.guards.pop(marker.producer_id, None)
        for written in entry.open:
            self.decided.append((written, marker.is_commit, marker.prepared_offset))
        entry.open.clear()
        return ErrorCode.NONE
