"""Producer id, epoch and sequences: what lets a broker take each batch once and in order. Pure.

Every batch carries the number of its first record within its partition. A broker takes a batch only
if it follows the last one, and knows the last five again, so a batch whose answer got lost can be
sent again as it is. From this follow the rules:

- A batch keeps its sequence for good once it has been sent: it may be in the log.
- While a batch is tried again nothing may overtake it: a partition's batches in retry are sent one
  at a time, the first first.
- A broker that does not know the producer yet takes any sequence for the first. So nothing follows
  the first batch of an epoch before that one is acknowledged. (Java's client lets it follow; if the
  first is then refused for a moment, the second is taken before it.)
- A batch that was sent and given up leaves its sequence *unresolved*: nothing new is sent until
  what is under way has come back. If a later batch got through, so did this one. If not, there is a
  gap, and a new epoch begins, with sequences from 0.
- With a new epoch the batches of the partitions that asked for it are numbered anew. That is safe
  only if none of them is in the log, so it waits until no answer is outstanding for them, and until
  those sent before the one that was refused have been tried again. (Java's client does not wait;
  then an answer to the old number is taken for one to the new.) Other partitions go over to the new
  epoch when they have nothing under way.

A transactional producer never begins an epoch by itself: the transaction is aborted, and its
coordinator gives the next epoch.
"""

from itertools import pairwise
from typing import Final

from odradek.client.producer.batch import (
    NO_PRODUCER,
    SEQUENCE_MASK,
    ProducerBatch,
    ProducerIdAndEpoch,
    in_order,
)
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition

EPOCH_MAX: Final = 2**15 - 1


class PartitionSequences:
    """Where one partition stands."""

    __slots__ = (
        "in_flight",
        "last_acked_sequence",
        "next_sequence",
        "producer",
        "unresolved_next",
    )

    def __init__(self) -> None:
        self.producer = NO_PRODUCER
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.in_flight: list[ProducerBatch] = []
        """Sent at least once and not done; in the order of their sequences."""
        self.unresolved_next: int | None = None
        """The sequence behind the last batch that was given up, while its fate is unknown."""

    def restart(self, producer: ProducerIdAndEpoch) -> None:
        """Begin at 0 for a new id or epoch, with what is under way."""
        self.producer = producer
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.unresolved_next = None
        for batch in self.in_flight:
            batch.assign(producer, self.next_sequence)
            self.next_sequence = (self.next_sequence + batch.count) & SEQUENCE_MASK

    def follows_last_acked(self, sequence: int) -> bool:
        return (self.last_acked_sequence + 1) & SEQUENCE_MASK == sequence


class Sequences:
    def __init__(self, *, is_transactional: bool = False) -> None:
        self.is_transactional = is_transactional
        self.producer = NO_PRODUCER
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._to_rewrite: dict[TopicPartition, int | None] = {}
        """Who asked for a new epoch, and the sequence that is missing, where it is known."""

    def of(self, partition: TopicPartition) -> PartitionSequences:
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = PartitionSequences()
        return found

    @property
    def needs_producer_id(self) -> bool:
        return self.producer == NO_PRODUCER

    # Ids and epochs.

    def set_producer(self, producer: ProducerIdAndEpoch) -> None:
        """Take an id that a broker gave."""
        self.producer = producer
        self._rewrite()

    def reset(self, producer: ProducerIdAndEpoch) -> None:
        """Take the epoch of the next transaction; nothing may be under way."""
        assert not any(each.in_flight for each in self._partitions.values())
        self.producer = producer
        self._partitions.clear()
        self._to_rewrite.clear()

    def request_epoch(self, partition: TopicPartition, gap: int | None = None) -> None:
        """Have a new epoch begun, and this partition's batches numbered anew.

        ``gap`` is the sequence of a batch that was refused for good: what was sent before it may be
        in the log, and is sent again under its old number first.
        """
        assert not self.is_transactional
        known = self._to_rewrite.get(partition, gap)
        if gap is None or known is None:
            self._to_rewrite[partition] = None
        else:
            self._to_rewrite[partition] = gap if _precedes(gap, known) else known

    def bump_epoch_if_due(self) -> bool:
        """Begin the epoch that was asked for, if it is known which of their batches are there."""
        if not self._to_rewrite or self.needs_producer_id:
            return False
        rewritten = (batch for each in self._to_rewrite for batch in self.of(each).in_flight)
        if any(batch.is_on_wire or self._is_before_gap(batch) for batch in rewritten):
            return False
        producer_id, epoch = self.producer
        if epoch >= EPOCH_MAX:
            self.producer = NO_PRODUCER  # another id is needed; then all is numbered anew
        else:
            self.producer = ProducerIdAndEpoch(producer_id, epoch + 1)
            self._rewrite()
        return True

    def _is_before_gap(self, batch: ProducerBatch) -> bool:
        gap = self._to_rewrite.get(batch.partition)
        return gap is not None and _precedes(batch.base_sequence, gap)

    def _rewrite(self) -> None:
        for partition in self._to_rewrite:
            self.of(partition).restart(self.producer)
        self._to_rewrite.clear()

    # Sending.

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether this batch, the first in its queue, may go out now."""
        if self.needs_producer_id:
            return False
        state = self.of(batch.partition)
        if batch.partition in self._to_rewrite:
            is_first = bool(state.in_flight) and state.in_flight[0] is batch
            return is_first and self._is_before_gap(batch)
        if batch.has_sequence:
            return state.in_flight[0] is batch
        if state.unresolved_next is not None:
            return False
        if not state.in_flight:
            return True
        # A new epoch may only be heard of after the old one's batches are in the log.
        return state.producer == self.producer and state.last_acked_sequence >= 0

    def assign(self, batch: ProducerBatch) -> None:
        """Give a batch that goes out for the first time its place."""
        if batch.has_sequence:
            return
        state = self.of(batch.partition)
        if state.producer != self.producer:
            assert not state.in_flight
            state.restart(self.producer)
        batch.assign(state.producer, state.next_sequence)
        state.next_sequence = (state.next_sequence + batch.count) & SEQUENCE_MASK
        state.in_flight.append(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Put the parts of a batch that was split in its place, under its sequences."""
        state = self.of(batch.partition)
        state.in_flight.remove(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.assign(batch.producer, sequence)
            sequence = (sequence + part.count) & SEQUENCE_MASK
            state.in_flight.insert(in_order(state.in_flight, part), part)

    # What came of it.

    def on_acked(self, batch: ProducerBatch) -> None:
        """A broker has the batch, even if we had given it up."""
        state = self.of(batch.partition)
        if batch in state.in_flight:
            state.in_flight.remove(batch)
        if batch.producer != state.producer:
            return
        state.last_acked_sequence = batch.last_sequence

    def on_failed(self, batch: ProducerBatch, *, is_in_doubt: bool) -> None:
        """The batch is given up; ``is_in_doubt`` if it may be in the log all the same."""
        state = self.of(batch.partition)
        if batch in state.in_flight:
            state.in_flight.remove(batch)
        if not batch.has_sequence or batch.producer != state.producer:
            return
        if is_in_doubt:
            unresolved = (batch.last_sequence + 1) & SEQUENCE_MASK
            before = state.unresolved_next
            state.unresolved_next = unresolved if before is None else max(before, unresolved)
        elif not self.is_transactional:
            self.request_epoch(batch.partition, batch.base_sequence)

    def can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether to send it again; may ask for a new epoch to do so."""
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._can_retry_unknown_producer(batch, log_start_offset)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._can_retry_out_of_order(batch)
        return code.retriable

    def _can_retry_unknown_producer(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        """Decide when the broker has forgotten us: retention took all that we wrote, mostly."""
        if log_start_offset < 0:
            return True  # the partition was moving when it answered
        if self.is_transactional:
            return False
        self.request_epoch(batch.partition)
        return True

    def _can_retry_out_of_order(self, batch: ProducerBatch) -> bool:
        state = self.of(batch.partition)
        is_unresolved = state.unresolved_next is not None
        is_next = state.follows_last_acked(batch.base_sequence)
        if not is_unresolved and not is_next:
            return True  # one before it failed: after that one's retry it will be in order
        if self.is_transactional:
            return False
        if not is_unresolved or state.unresolved_next == batch.base_sequence:
            self.request_epoch(batch.partition)  # there is a gap
        return True

    def take_lost(self) -> list[TopicPartition]:
        """Return partitions whose given-up batches never got through, now that all have answered.

        Partitions whose later batches got through are in order again.
        """
        lost = []
        for partition, state in self._partitions.items():
            if state.unresolved_next is None or state.in_flight:
                continue
            state.unresolved_next = None
            if not state.follows_last_acked(state.next_sequence):
                lost.append(partition)
        return lost

    def check_invariants(self) -> None:
        for partition, state in self._partitions.items():
            orders = [batch.order for batch in state.in_flight]
            assert orders == sorted(orders), f"{partition}: {state.in_flight}"
            for before, after in pairwise(state.in_flight):
                if before.producer == after.producer:
                    expected = (before.last_sequence + 1) & SEQUENCE_MASK
                    # A batch that was given up leaves a hole.
                    assert after.base_sequence >= expected, f"{before} {after}"


def _precedes(sequence: int, other: int) -> bool:
    """Whether a sequence comes before another, also where they go on at 0 in between."""
    return 0 < (other - sequence) & SEQUENCE_MASK <= SEQUENCE_MASK // 2
