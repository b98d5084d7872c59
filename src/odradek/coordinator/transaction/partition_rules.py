"""Which partitions may become part of a transaction, and which are.

Producers up to transaction version 1 add partitions themselves, and brokers verify that what is
written to a partition belongs to a transaction; from version 2 on brokers add them.
"""

from collections.abc import Sequence
from typing import Final

from odradek.coordinator.transaction.end_rules import check_holder
from odradek.coordinator.transaction.metadata import Identity, TransactionMetadata
from odradek.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition

PARTITIONS_PER_TRANSACTION_MAX: Final = 100_000
"""They are all in every record of the transaction, which has to stay below ``max.message.bytes``
(with long topic names the log refuses it earlier)."""


def plan_add(
    current: TransactionMetadata | None,
    asking: Identity,
    partitions: Sequence[TopicPartition],
    version: int,
    now_ms: int,
) -> TransactionMetadata | None:
    """Return the transaction with partitions added, or None if it has them all.

    Raises:
        ApiError: It is refused.
    """
    current = _known(current)
    if current.state.is_prepared:
        # First of all: who asks may already be the one that this decision makes the next.
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "its markers are being written")
    check_holder(current, asking)
    if current.is_taken_over:
        problem = "a prepared transaction can be ended, nothing else"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, problem)
    if current.state is TransactionState.ONGOING and current.partitions.issuperset(partitions):
        return None
    planned = current.with_partitions(partitions, version, now_ms)
    if len(planned.partitions) > PARTITIONS_PER_TRANSACTION_MAX:
        # Version 2 has a code that lets the application abort and go on with less.
        is_told = version >= EPOCH_BUMP_VERSION
        code = ErrorCode.TRANSACTION_ABORTABLE if is_told else ErrorCode.INVALID_REQUEST
        raise ApiError(code, f"more than {PARTITIONS_PER_TRANSACTION_MAX} partitions")
    return planned


def verify(
    current: TransactionMetadata | None, asking: Identity, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Tell which partitions are part of the producer's transaction.

    Raises:
        ApiError: It has none, or none that may be added to.
    """
    current = _known(current)
    check_holder(current, asking)
    if current.state.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "its markers are being written")
    return {
        partition: (
            ErrorCode.NONE if partition in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        )
        for partition in partitions
    }


def _known(current: TransactionMetadata | None) -> TransactionMetadata:
    if current is None:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "no producer is known")
    return current
