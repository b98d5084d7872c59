"""The states of a transaction, by the number they have on disk, and which may follow which.

::

    Empty ──add partitions──► Ongoing ──EndTxn──► PrepareCommit ──markers──► CompleteCommit
                                 └──────────────► PrepareAbort  ──markers──► CompleteAbort

From a complete transaction the next one begins, or InitProducerId leads back to Empty. With
transaction version 2 a producer may abort what it is not sure to have begun: PrepareAbort follows
Empty and the complete states too.
"""

from enum import IntEnum
from types import MappingProxyType
from typing import Final


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    # Kafka passes through these two while it waits for its log. They are on no disk, and are here
    # because tools may ask for them by name.
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients and tools see."""
        return _TITLES[self]

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided, and partitions have yet to hear of it."""
        return self in _PREPARED

    @property
    def is_complete(self) -> bool:
        return self in _COMPLETE

    @property
    def may_expire(self) -> bool:
        return self in _AT_REST


_TITLES: Final = MappingProxyType(
    {
        state: "".join(word.capitalize() for word in state.name.split("_"))
        for state in TransactionState
    }
)
STATES_BY_TITLE: Final = MappingProxyType({title: state for state, title in _TITLES.items()})

_PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
_AT_REST: Final = _COMPLETE | {TransactionState.EMPTY}
DURABLE_STATES: Final = _PREPARED | _AT_REST | {TransactionState.ONGOING}

LEGAL_PREDECESSORS: Final = MappingProxyType(
    {
        TransactionState.EMPTY: _AT_REST,
        TransactionState.ONGOING: _AT_REST | {TransactionState.ONGOING},
        TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
        TransactionState.PREPARE_ABORT: _AT_REST | {TransactionState.ONGOING},
        TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
        TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    }
)
