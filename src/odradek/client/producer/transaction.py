"""What state a producer's transaction is in, and what may be done in it. Pure.

    uninitialized → initializing → ready → in transaction → committing → ready
                                              │      └─────→ aborting ──→ ready
                                              └→ abortable error ↗        any → fatal error

A record that cannot be delivered, or a refusal that only this transaction suffers from, makes it an
*abortable error*: nothing can be sent or committed, ``abort`` brings the producer back. Being
fenced by another producer of the same transactional id is *fatal*: only closing is left.

Partitions are part of a transaction from their first record on. With transaction.version 2 the
broker sees to that itself (KIP-890); before, the coordinator has to be told first, so they go from
``to_add`` by way of ``adding`` to ``partitions``, and records wait until then.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol

from odradek.client.errors import BrokerError, KafkaError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition

PARTITIONS_MAX: Final = 100_000


class TransactionState(Enum):
    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "waiting to be aborted"
    FATAL_ERROR = "fenced or failed"


_State = TransactionState

_SOURCES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _State.UNINITIALIZED: frozenset({_State.INITIALIZING}),
    _State.INITIALIZING: frozenset({_State.UNINITIALIZED}),
    _State.READY: frozenset({_State.INITIALIZING, _State.COMMITTING, _State.ABORTING}),
    _State.IN_TRANSACTION: frozenset({_State.READY}),
    _State.COMMITTING: frozenset({_State.IN_TRANSACTION, _State.COMMITTING}),
    _State.ABORTING: frozenset({_State.IN_TRANSACTION, _State.ABORTABLE_ERROR, _State.ABORTING}),
    _State.ABORTABLE_ERROR: frozenset(
        {_State.IN_TRANSACTION, _State.COMMITTING, _State.ABORTABLE_ERROR}
    ),
    _State.FATAL_ERROR: frozenset(_State),
}

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FATAL_FOR_A_BATCH: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)


class ProducerFencedError(BrokerError):
    """Another producer with the same transactional id has taken over. Close this one."""


class TransactionAbortedError(KafkaError):
    """The record was part of a transaction that is aborted."""


class TransactionFailedError(KafkaError):
    """The transaction cannot be committed any more; abort it, then try it again."""


class GroupMetadata(Protocol):
    """What a consumer says of its place in its group; ``consumer.group_metadata()``."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...


class OffsetToCommit(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def metadata(self) -> str | None: ...


class Transaction:
    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        self.is_v2 = False
        """Whether the cluster has transaction.version 2."""
        self.is_begun = False
        """Whether the coordinator may know of it, so that it has to be ended there."""
        self.needs_epoch = False
        """Whether a new epoch has to be asked for after its end (before version 2)."""
        self.to_add: dict[TopicPartition, None] = {}
        self.adding: dict[TopicPartition, None] = {}
        self.partitions: dict[TopicPartition, None] = {}

    def move_to(self, state: TransactionState) -> None:
        """Go on to another state.

        Raises:
            RuntimeError: The call does not fit the state; nothing has changed.
        """
        if self.state not in _SOURCES[state]:
            raise RuntimeError(f"not possible while the producer is {self.state.value}")
        self.state = state

    @property
    def is_open(self) -> bool:
        """Whether there is something to abort."""
        return self.state in {
            _State.IN_TRANSACTION,
            _State.COMMITTING,
            _State.ABORTING,
            _State.ABORTABLE_ERROR,
        }

    @property
    def is_failed(self) -> bool:
        return self.state in {_State.ABORTABLE_ERROR, _State.FATAL_ERROR}

    def check_usable(self) -> None:
        """Raise the error that stands in the way, if there is one."""
        if self.state is _State.FATAL_ERROR:
            assert self.error is not None
            raise self.error
        if self.state is _State.ABORTABLE_ERROR:
            problem = f"abort the transaction, it cannot be committed: {self.error}"
            raise TransactionFailedError(problem) from self.error

    # The application's calls.

    def begin(self) -> None:
        self.check_usable()
        if self.state is _State.UNINITIALIZED:
            raise RuntimeError("await init_transactions() first")
        self.move_to(_State.IN_TRANSACTION)

    def check_in_transaction(self) -> None:
        self.check_usable()
        if self.state is not _State.IN_TRANSACTION:
            problem = f"a transactional producer sends in transactions: it is {self.state.value}"
            raise RuntimeError(problem)

    def add(self, partition: TopicPartition) -> None:
        """Make a partition part of the transaction, at its first record."""
        if partition in self.partitions or partition in self.to_add or partition in self.adding:
            return
        if len(self.partitions) >= PARTITIONS_MAX:
            raise RuntimeError(f"a transaction has at most {PARTITIONS_MAX} partitions")
        if self.is_v2:
            self.partitions[partition] = None
            self.is_begun = True
        else:
            self.to_add[partition] = None

    def start_commit(self) -> None:
        self.check_usable()
        self.move_to(_State.COMMITTING)

    def start_abort(self) -> None:
        if self.state is _State.FATAL_ERROR:
            self.check_usable()
        self.move_to(_State.ABORTING)
        self.to_add.clear()

    # What came of them.

    def may_send(self, partition: TopicPartition) -> bool:
        return partition in self.partitions and self.state is not _State.FATAL_ERROR

    def take_to_add(self) -> list[TopicPartition]:
        """Return partitions that the coordinator has to be told of now."""
        taken = list(self.to_add)
        self.adding.update(self.to_add)
        self.to_add.clear()
        return taken

    def on_added(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.adding.pop(partition, None)
            self.partitions[partition] = None
        self.is_begun = True

    def on_sequence_lost(self) -> None:
        """A batch that may be in the log was given up: the next one needs another epoch."""
        self.needs_epoch = self.needs_epoch or not self.is_v2

    def on_batch_failed(self, error: KafkaError) -> None:
        """A batch of the transaction could not be delivered."""
        if isinstance(error, BrokerError) and error.code in _FATAL_FOR_A_BATCH:
            self.fail(error)
        else:
            self.fail_abortably(error)

    def on_refused(self, error: KafkaError) -> KafkaError:
        """Take in what a coordinator said, which trying again cannot mend; return what to raise."""
        if isinstance(error, BrokerError) and error.code in _FENCED:
            error = ProducerFencedError(ErrorCode.PRODUCER_FENCED, about=self.transactional_id)
        is_abortable = isinstance(error, BrokerError) and error.code in _ABORTABLE
        # An abort that cannot be carried out would be aborted for ever.
        if is_abortable and self.state is not _State.ABORTING:
            self.fail_abortably(error)
        else:
            self.fail(error)
        return error

    def fail_abortably(self, error: KafkaError) -> None:
        if self.state in _SOURCES[_State.ABORTABLE_ERROR]:
            self.state = _State.ABORTABLE_ERROR
            self.error = self.error or error
            self.needs_epoch = self.needs_epoch or not self.is_v2

    def fail(self, error: KafkaError) -> None:
        if self.state is not _State.FATAL_ERROR:
            self.state = _State.FATAL_ERROR
            self.error = error

    def on_ended(self) -> None:
        """The transaction is committed or aborted."""
        self.move_to(_State.READY)
        self.error = None
        self.is_begun = self.needs_epoch = False
        self.to_add.clear()
        self.adding.clear()
        self.partitions.clear()
