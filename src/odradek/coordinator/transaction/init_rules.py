"""What InitProducerId makes of a transactional id.

A producer that starts names no producer id: it fences whoever used the transactional id before,
and what that one left open is aborted first. A producer that goes on after an error names what it
has (KIP-360) and gets the next epoch, unless somebody else took its place meanwhile.

A transaction prepared for a two-phase commit can be kept (KIP-939, here from transaction version 2
on and if two-phase commit is enabled; Kafka 4.3 refuses it always): the new incarnation may do one
thing, end it.
"""

from odradek.coordinator.transaction.metadata import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Identity,
    ProducerIdNeededError,
    TransactionMetadata,
)
from odradek.coordinator.transaction.settings import EPOCH_BUMP_VERSION, TransactionSettings
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.init_producer_id import InitProducerIdRequest


def check_init(request: InitProducerIdRequest, settings: TransactionSettings) -> None:
    """Check what does not depend on the transactional id.

    Raises:
        ApiError: It is refused.
    """
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    is_two_phase_enabled = settings.transaction_two_phase_commit_enable
    if has_id != has_epoch:
        raise ApiError(ErrorCode.INVALID_REQUEST, "producer id and epoch belong together")
    if request.enable2_pc and not is_two_phase_enabled:
        problem = "transaction.two.phase.commit.enable is off"
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, problem)
    if request.keep_prepared_txn and not (
        is_two_phase_enabled and settings.transaction_version >= EPOCH_BUMP_VERSION
    ):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "prepared transactions cannot be kept here")
    timeout_max = settings.transaction_max_timeout_ms
    if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= timeout_max:
        problem = f"{request.transaction_timeout_ms} ms is not within 1..{timeout_max}"
        raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, problem)


def plan_init(
    current: TransactionMetadata | None,
    request: InitProducerIdRequest,
    transaction_version: int,
    now_ms: int,
    new_producer_id: int | None,
) -> TransactionMetadata:
    """Return what comes of it; if that is prepared, the client has to come again.

    Raises:
        ApiError: It is refused.
        ProducerIdNeededError: There is no ``new_producer_id``, and it takes one.
    """
    if current is None:
        return _begin(request, now_ms, new_producer_id)
    if current.state.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "its markers are being written")
    expected = _expected(request)
    if current.state is not TransactionState.ONGOING:
        return _plan_next(current, expected, request, now_ms, new_producer_id)
    # Kafka looks at the producer id only, so a zombie could have its successor's work aborted.
    if expected is not None and expected != current.holder:
        raise ApiError(ErrorCode.PRODUCER_FENCED, f"{current.holder} took its place")
    if request.keep_prepared_txn:
        return current.taken_over(
            current.holder.bumped(new_producer_id),
            is_two_phase=request.enable2_pc,
            now_ms=now_ms,
        )
    return current.fenced(
        client_version=spoken_version(transaction_version),
        now_ms=now_ms,
        new_producer_id=new_producer_id,
    )


def spoken_version(transaction_version: int) -> int:
    """Return what to note as the client's version if the coordinator itself ends a transaction."""
    return transaction_version if transaction_version >= EPOCH_BUMP_VERSION else 0


def _expected(request: InitProducerIdRequest) -> Identity | None:
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return Identity(request.producer_id, request.producer_epoch)


def _timeout_ms(request: InitProducerIdRequest) -> int:
    return NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms


def _begin(
    request: InitProducerIdRequest, now_ms: int, new_producer_id: int | None
) -> TransactionMetadata:
    if new_producer_id is None:
        raise ProducerIdNeededError
    assert request.transactional_id is not None
    return TransactionMetadata(
        transactional_id=request.transactional_id,
        producer_id=new_producer_id,
        producer_epoch=0,
        timeout_ms=_timeout_ms(request),
        updated_ms=now_ms,
        # Kafka makes the id with epoch -1 before it bumps it, so that it precedes itself.
        previous_producer_id=new_producer_id,
    )


def _plan_next(
    current: TransactionMetadata,
    expected: Identity | None,
    request: InitProducerIdRequest,
    now_ms: int,
    new_producer_id: int | None,
) -> TransactionMetadata:
    """Plan the next epoch of an id that rests."""
    timeout_ms = _timeout_ms(request)
    if expected is None or expected == current.identity:
        last_epoch = NO_PRODUCER_EPOCH if expected is None else current.producer_epoch
        following = current.identity.bumped(new_producer_id)
        return current.initialised(following, last_epoch, timeout_ms, now_ms)
    if _is_repeated(current, expected):
        # Nobody else was initialised since: that would have forgotten the last epoch.
        last_epoch = current.last_producer_epoch
        return current.initialised(current.identity, last_epoch, timeout_ms, now_ms)
    raise ApiError(ErrorCode.PRODUCER_FENCED, f"{current.identity} took the place of {expected}")


def _is_repeated(current: TransactionMetadata, expected: Identity) -> bool:
    """Whether the producer got its next epoch already, and the answer was lost."""
    # The producer id may have been changed in its last epoch.
    known = (current.producer_id, current.previous_producer_id)
    return expected.producer_epoch == current.last_producer_epoch and expected.producer_id in known
