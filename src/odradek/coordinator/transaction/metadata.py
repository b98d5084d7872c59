"""What the coordinator knows of one transactional id, and what it may become.

Values that never change: a transition makes the next one, ``replay`` puts it in place.

The epoch of a producer id ends at EPOCH_MAX, which is for markers only: so there is always one
left to fence with. With epochs bumped by every transaction, the last one is followed by a new
producer id: it waits in ``next_producer_id`` while markers are written under the old one.

``next_producer_epoch`` is only set for a transaction that its producer prepared, and that another
incarnation has taken over to end it (KIP-939): its records and markers keep their producer id and
epoch, and (``next_producer_id``, ``next_producer_epoch``) is who may end it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from odradek.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from odradek.coordinator.transaction.state import LEGAL_PREDECESSORS, TransactionState
from odradek.core.ids import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
EPOCH_MAX: Final = 32_767
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction that is part of a two-phase commit: it waits for its decision."""
NOT_STARTED_MS: Final = -1
_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class ProducerIdNeededError(Exception):
    """The plan needs a producer id that nobody has used; the caller knows where to get one."""


class Identity(NamedTuple):
    producer_id: int
    producer_epoch: int

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_MAX - 1

    def bumped(self, new_producer_id: int | None) -> "Identity":
        """Return who comes after this one.

        Raises:
            ProducerIdNeededError: Its epochs are used up, and there is no ``new_producer_id``.
        """
        if not self.is_exhausted:
            return Identity(self.producer_id, self.producer_epoch + 1)
        if new_producer_id is None:
            raise ProducerIdNeededError
        return Identity(new_producer_id, 0)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = _NO_PARTITIONS
    start_ms: int = NOT_STARTED_MS
    updated_ms: int = 0
    client_version: int = 0
    """The transaction version that the producer spoke."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)
    """Before the last bump, if the same producer asked for it. Not on disk: a repeated request
    finds it only while the coordinator stays where it is, as in Kafka."""

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def is_taken_over(self) -> bool:
        return (
            self.state is TransactionState.ONGOING and self.next_producer_epoch != NO_PRODUCER_EPOCH
        )

    @property
    def holder(self) -> Identity:
        """Who may go on with this transactional id; everybody else is fenced."""
        if self.is_taken_over:
            return Identity(self.next_producer_id, self.next_producer_epoch)
        return self.identity

    @property
    def expires_ms(self) -> int | None:
        """The last moment before the transaction is aborted for having taken too long."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.start_ms + self.timeout_ms

    def initialised(
        self, identity: Identity, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "TransactionMetadata":
        """Return it as InitProducerId leaves it: nothing begun, and ``identity`` in charge."""
        return self._become(
            TransactionState.EMPTY,
            now_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=_NO_PARTITIONS,
            start_ms=NOT_STARTED_MS,
            previous_producer_id=self.producer_id,
        )

    def taken_over(self, by: Identity, *, is_two_phase: bool, now_ms: int) -> "TransactionMetadata":
        """Return the same transaction with another incarnation to end it."""
        return self._become(
            TransactionState.ONGOING,
            now_ms,
            # What waits for a decision elsewhere never starts to time out.
            timeout_ms=NO_TIMEOUT_MS if is_two_phase else self.timeout_ms,
            next_producer_id=by.producer_id,
            next_producer_epoch=by.producer_epoch,
            previous_producer_id=self.producer_id,
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> "TransactionMetadata":
        is_begun = self.state is TransactionState.ONGOING
        return self._become(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if is_begun else now_ms,
            client_version=client_version,
            previous_producer_id=self.producer_id,
        )

    def prepared(
        self, *, is_commit: bool, client_version: int, now_ms: int, new_producer_id: int | None
    ) -> "TransactionMetadata":
        """Return it decided by its producer.

        Raises:
            ProducerIdNeededError: Epochs are used up, and there is no ``new_producer_id``.
        """
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        is_begun = self.state is TransactionState.ONGOING
        planned = self._become(
            state,
            now_ms,
            start_ms=self.start_ms if is_begun else now_ms,
            client_version=client_version,
            previous_producer_id=self.holder.producer_id,
        )
        if client_version < EPOCH_BUMP_VERSION:
            return planned
        return self._with_bump(planned, self.holder.producer_epoch, new_producer_id)

    def fenced(
        self, *, client_version: int, now_ms: int, new_producer_id: int | None
    ) -> "TransactionMetadata":
        """Return it aborted by the coordinator, its producer shut out.

        Raises:
            ProducerIdNeededError: Epochs are used up, and there is no ``new_producer_id``.
        """
        planned = self._become(
            TransactionState.PREPARE_ABORT,
            now_ms,
            client_version=client_version,
            previous_producer_id=self.holder.producer_id,
        )
        if client_version >= EPOCH_BUMP_VERSION:
            return self._with_bump(planned, self.holder.producer_epoch, new_producer_id)
        if self.is_taken_over:
            return self._with_bump(planned, NO_PRODUCER_EPOCH, new_producer_id)
        # The epoch may become EPOCH_MAX: nobody is told of it, and InitProducerId, which alone
        # can follow, takes a new producer id then.
        return replace(
            planned, producer_epoch=self._marker_epoch, last_producer_epoch=NO_PRODUCER_EPOCH
        )

    def _with_bump(
        self, planned: "TransactionMetadata", last_epoch: int, new_producer_id: int | None
    ) -> "TransactionMetadata":
        follower = self.holder.bumped(new_producer_id)
        is_another = follower != (self.producer_id, self.producer_epoch + 1)
        return replace(
            planned,
            producer_epoch=self._marker_epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=follower.producer_id if is_another else NO_PRODUCER_ID,
            next_producer_epoch=(
                follower.producer_epoch if self.is_taken_over and is_another else NO_PRODUCER_EPOCH
            ),
        )

    @property
    def _marker_epoch(self) -> int:
        return min(self.producer_epoch + 1, EPOCH_MAX)

    @property
    def successor(self) -> Identity:
        """Who is in charge once the markers of this decision are written."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.identity
        return Identity(self.next_producer_id, max(self.next_producer_epoch, 0))

    def completed(self, now_ms: int) -> "TransactionMetadata":
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        is_taken_over = self.next_producer_epoch != NO_PRODUCER_EPOCH
        return self._become(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=self.successor.producer_id,
            producer_epoch=self.successor.producer_epoch,
            partitions=_NO_PARTITIONS,
            previous_producer_id=self.previous_producer_id if is_taken_over else self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def _become(
        self, state: TransactionState, now_ms: int, **changes: object
    ) -> "TransactionMetadata":
        assert self.state in LEGAL_PREDECESSORS[state], f"{self.state.name} to {state.name}"
        return replace(self, state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]

    def check_invariants(self) -> None:
        assert self.producer_id >= 0
        assert 0 <= self.producer_epoch <= EPOCH_MAX
        assert self.state in LEGAL_PREDECESSORS
        if self.state is TransactionState.EMPTY:
            assert self.start_ms == NOT_STARTED_MS
        if self.state.may_expire:
            assert not self.partitions
            assert self.next_producer_id == NO_PRODUCER_ID
        else:
            assert self.start_ms != NOT_STARTED_MS
        if self.next_producer_epoch != NO_PRODUCER_EPOCH:
            assert self.next_producer_id != NO_PRODUCER_ID
