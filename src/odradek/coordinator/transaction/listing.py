"""Transactions as tools see them: DescribeTransactions and ListTransactions."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Self

from odradek.coordinator.transaction.metadata import TransactionMetadata
from odradek.coordinator.transaction.state import STATES_BY_TITLE, TransactionState
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.re2_patterns import PATTERN_CHARACTERS_MAX, Matcher, PatternError, matcher
from odradek.protocol.generated import describe_transactions, list_transactions
from odradek.protocol.generated.list_transactions import ListTransactionsRequest

_ANY_DURATION: Final = -1


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """What ListTransactions asks for; ``unknown_states`` are names that mean nothing here."""

    states: frozenset[TransactionState] | None = None
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = _ANY_DURATION
    matches: Matcher | None = None
    unknown_states: tuple[str, ...] = ()

    @classmethod
    def from_request(cls, request: ListTransactionsRequest) -> Self:
        """Read a request.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        asked = request.state_filters
        known = frozenset(STATES_BY_TITLE[name] for name in asked if name in STATES_BY_TITLE)
        pattern = request.transactional_id_pattern
        return cls(
            states=known if asked else None,
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
            matches=_matcher(pattern) if pattern else None,
            unknown_states=tuple(name for name in asked if name not in STATES_BY_TITLE),
        )

    def includes(self, metadata: TransactionMetadata, now_ms: int) -> bool:
        if self.producer_ids and metadata.producer_id not in self.producer_ids:
            return False
        if self.states is not None and metadata.state not in self.states:
            return False
        # What never began has run since 1970, by Kafka's count as well.
        if 0 <= self.duration_ms and now_ms - metadata.start_ms <= self.duration_ms:
            return False
        return self.matches is None or bool(self.matches(metadata.transactional_id))


def listed(metadata: TransactionMetadata) -> list_transactions.TransactionState:
    return list_transactions.TransactionState(
        transactional_id=metadata.transactional_id,
        producer_id=metadata.producer_id,
        transaction_state=metadata.state.title,
    )


def described(
    metadata: TransactionMetadata, partitions: Iterable[TopicPartition]
) -> describe_transactions.TransactionState:
    """Describe a transaction; ``partitions`` are those that wait for its end."""
    by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic)
    return describe_transactions.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=metadata.transactional_id,
        transaction_state=metadata.state.title,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            describe_transactions.TopicData(
                topic=topic, partitions=[each.partition for each in partitions]
            )
            for topic, partitions in by_topic
        ],
    )


def not_described(
    transactional_id: str, error: ErrorCode
) -> describe_transactions.TransactionState:
    return describe_transactions.TransactionState(
        error_code=error, transactional_id=transactional_id
    )


def _matcher(pattern: str) -> Matcher:
    try:
        return matcher(pattern)
    except PatternError as error:
        shown = pattern if len(pattern) <= PATTERN_CHARACTERS_MAX else pattern[:32] + "…"
        raise _invalid(shown, str(error)) from None


def _invalid(pattern: str, reason: str) -> ApiError:
    problem = f"Transaction ID pattern `{pattern}` is not a valid regular expression: {reason}."
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)
