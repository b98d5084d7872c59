"""What EndTxn makes of a transaction.

Up to transaction version 1 the request names its producer's epoch, which is the same for many
transactions: a request that comes late can end a later one than it was meant for. From version 2
on every end has an epoch of its own, so a request is about the transaction under way if it names
the current epoch, and about the one before if it names the epoch before: that is a repetition.
"""

from types import MappingProxyType
from typing import Final

from odradek.coordinator.transaction.metadata import (
    EPOCH_MAX,
    Identity,
    TransactionMetadata,
)
from odradek.coordinator.transaction.settings import EPOCH_BUMP_VERSION
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.end_txn import EndTxnRequest

_END_BUMPS_REQUEST_VERSION: Final = 5

_COMMIT: Final = True
_ABORT: Final = False
_RETRY: Final = True
_CURRENT: Final = False
_DONE: Final = "already so"
_ABORT_NOTHING: Final = "abort nothing, with a new epoch"

# Of version 2, for a transactional id that rests. What is not here is INVALID_TXN_STATE. The
# producer may not know whether the transaction it aborts has begun: its first write was under way.
_AT_REST: Final = MappingProxyType(
    {
        (TransactionState.EMPTY, _ABORT, _CURRENT): _ABORT_NOTHING,
        (TransactionState.COMPLETE_ABORT, _ABORT, _RETRY): _DONE,
        (TransactionState.COMPLETE_ABORT, _ABORT, _CURRENT): _ABORT_NOTHING,
        (TransactionState.COMPLETE_COMMIT, _ABORT, _CURRENT): _ABORT_NOTHING,
        (TransactionState.COMPLETE_COMMIT, _COMMIT, _RETRY): _DONE,
    }
)


def client_version(request_version: int) -> int:
    """Return the transaction version that a version of EndTxn stands for."""
    return EPOCH_BUMP_VERSION if request_version >= _END_BUMPS_REQUEST_VERSION else 0


def plan_end(
    current: TransactionMetadata | None,
    request: EndTxnRequest,
    version: int,
    now_ms: int,
    new_producer_id: int | None,
) -> TransactionMetadata | None:
    """Return the transaction prepared, or None if it has ended so already.

    ``version`` is the client's transaction version.

    Raises:
        ApiError: It is refused.
        ProducerIdNeededError: There is no ``new_producer_id``, and it takes one.
    """
    if current is None:
        problem = f"no producer of {request.transactional_id} is known"
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, problem)
    asking = Identity(request.producer_id, request.producer_epoch)
    is_due = _is_due_with_bump if version >= EPOCH_BUMP_VERSION else _is_due
    if not is_due(current, asking, is_commit=request.committed):
        return None
    return current.prepared(
        is_commit=request.committed,
        client_version=version,
        now_ms=now_ms,
        new_producer_id=new_producer_id,
    )


def _is_due(current: TransactionMetadata, asking: Identity, *, is_commit: bool) -> bool:
    """Whether there is a transaction to end, by the rules up to transaction version 1."""
    check_holder(current, asking)
    _check_not_prepared(current)
    if current.state is TransactionState.ONGOING:
        return True
    done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    if current.state is not done:
        raise _invalid(current, is_commit=is_commit)
    return False


def _is_due_with_bump(current: TransactionMetadata, asking: Identity, *, is_commit: bool) -> bool:
    # First of all: who asks may already be the one that this decision makes the next.
    _check_not_prepared(current)
    is_retry = current.state.is_complete and _is_before(asking, current)
    if not is_retry:
        check_holder(current, asking)
    if current.state is TransactionState.ONGOING:
        return True
    found = _AT_REST.get((current.state, is_commit, is_retry))
    if found is None:
        raise _invalid(current, is_commit=is_commit)
    return found is _ABORT_NOTHING


def _is_before(asking: Identity, current: TransactionMetadata) -> bool:
    """Whether the end of a transaction made ``asking`` into the current identity."""
    if asking.producer_id == current.producer_id:
        return asking.producer_epoch + 1 == current.producer_epoch
    last_of_previous = Identity(current.previous_producer_id, EPOCH_MAX - 1)
    return asking == last_of_previous and current.producer_epoch == 0


def check_holder(current: TransactionMetadata, asking: Identity) -> None:
    """Check that nobody took the place of ``asking``.

    Raises:
        ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    holder = current.holder
    if asking.producer_id != holder.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"the producer is {holder}")
    if asking.producer_epoch != holder.producer_epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED, f"the producer is {holder}")


def _check_not_prepared(current: TransactionMetadata) -> None:
    if current.state.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "its markers are being written")


def _invalid(current: TransactionMetadata, *, is_commit: bool) -> ApiError:
    what = "commit" if is_commit else "abort"
    return ApiError(ErrorCode.INVALID_TXN_STATE, f"{what} in state {current.state.title}")
