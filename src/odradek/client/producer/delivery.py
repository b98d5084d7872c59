"""What becomes of a batch that was sent: delivered, sent again, cut in pieces or given up. Pure.

The accumulator keeps the batches, ``Sequences`` their numbers, ``Transaction`` what failed ones
mean to it; here is decided which of these is told what. Nothing here waits or talks to a broker.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError
from odradek.client.metadata import NO_EPOCH
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.batch import NO_OFFSET, ProducerBatch
from odradek.client.producer.metrics import ProducerMetrics
from odradek.client.producer.sequences import Sequences
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import Transaction, TransactionAbortedError
from odradek.client.producer.transaction import TransactionState as State
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.wire.errors import describe_code

STALE_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Refusals after which it is worth asking who leads what."""


class Refusal(NamedTuple):
    """Why a batch was not taken, or is thought not to have been."""

    code: ErrorCode
    message: str | None = None
    log_start_offset: int = -1
    by_record: Mapping[int, str | None] | None = None


class Delivery:
    def __init__(
        self,
        options: ProducerOptions,
        accumulator: Accumulator,
        sequences: Sequences | None = None,
        transaction: Transaction | None = None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self._options = options
        self._metrics = metrics
        self._accumulator = accumulator
        self._sequences = sequences
        self._transaction = transaction

    def on_delivered(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """A broker has it; with acks=0 it was written to the socket."""
        self._accumulator.on_returned(batch)
        if self._sequences is not None:
            self._sequences.on_acked(batch)
        if not batch.is_done:
            batch.complete(base_offset, log_append_time_ms)
            self._accumulator.on_done(batch)

    def on_refused(
        self, batch: ProducerBatch, refusal: Refusal, now_ms: float, leader_epoch: int = NO_EPOCH
    ) -> None:
        """A broker said no, or nothing; ``leader_epoch`` is the one the batch was sent for."""
        self._accumulator.on_returned(batch)
        if batch.is_done:
            return  # given up meanwhile
        code = refusal.code
        batch.last_error = describe_code(code)
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            if self._metrics is not None:
                self._metrics.on_split()
            self._accumulator.split(batch)
        elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # It is in the log, so long ago that the broker does not know where.
            if self._sequences is not None:
                self._sequences.on_acked(batch)
            batch.complete(NO_OFFSET, -1)
            self._accumulator.on_done(batch)
        elif code.retriable and self._is_transaction_lost():
            self._fail(batch, self._aborted(), None, is_in_doubt=True)
        elif self._is_worth_retrying(batch, refusal):
            if self._metrics is not None:
                self._metrics.on_retry(batch)
            self._accumulator.requeue(batch, now_ms, leader_epoch)
        else:
            is_in_doubt = code.retriable  # retries are used up: it may be there all the same
            self._fail(batch, *_errors(batch, refusal), is_in_doubt=is_in_doubt)

    def _is_worth_retrying(self, batch: ProducerBatch, refusal: Refusal) -> bool:
        if batch.attempts >= self._options.retries:
            return False
        if self._is_transaction_lost():
            return False
        if self._sequences is None:
            return refusal.code.retriable
        return self._sequences.can_retry(batch, refusal.code, refusal.log_start_offset)

    def _is_transaction_lost(self) -> bool:
        transaction = self._transaction
        if transaction is None:
            return False
        return transaction.is_failed or transaction.state is State.ABORTING

    def _aborted(self) -> TransactionAbortedError:
        assert self._transaction is not None
        reason = self._transaction.error
        aborted = TransactionAbortedError(
            "the transaction is aborted" if reason is None else f"aborted: {reason}"
        )
        aborted.__cause__ = reason
        return aborted

    def expire(
        self,
        now_ms: float,
        problem_of: Callable[[TopicPartition], KafkaError | None] = lambda _: None,
    ) -> None:
        """Give up what could not be delivered in ``delivery.timeout.ms``, with the reason."""
        for batch in self._accumulator.expired(now_ms):
            why = f", last refused with {batch.last_error}" if batch.last_error else ""
            problem = problem_of(batch.partition)
            if problem is not None:
                why += f"; {problem}"
            late = KafkaTimeoutError(
                f"{batch.partition}: {batch.count} records were not delivered within "
                f"{self._options.delivery_timeout_ms} ms{why}"
            )
            late.__cause__ = problem
            self.give_up(batch, late)

    def give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail a batch that waits or is on the wire; a late answer to it changes no more."""
        self._accumulator.remove(batch)
        was_sent = batch.is_on_wire or batch.attempts > 0
        self._fail(batch, error, None, is_in_doubt=was_sent)

    def give_up_all(self, error: KafkaError) -> None:
        for batch in list(self._accumulator.incomplete):
            self.give_up(batch, error)

    def on_transaction_lost(self) -> None:
        """Drop what is not on the wire: the transaction will be aborted, or was."""
        for batch in self._accumulator.unsent():
            self.give_up(batch, self._aborted())

    def resolve_sequences(self) -> None:
        """See what became of sequences that were given up."""
        if self._sequences is None:
            return
        for partition in self._sequences.take_lost():
            if self._transaction is None:
                self._sequences.request_epoch(partition)
            else:
                problem = f"{partition}: records of the transaction were never acknowledged"
                self._transaction.fail_abortably(KafkaTimeoutError(problem))
        if self._transaction is None:
            self._sequences.bump_epoch_if_due()

    def _fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        by_record: Mapping[int, KafkaError] | None,
        *,
        is_in_doubt: bool,
    ) -> None:
        if self._sequences is not None:
            self._sequences.on_failed(batch, is_in_doubt=is_in_doubt)
        is_aborted = isinstance(error, TransactionAbortedError)
        if self._transaction is not None:
            if batch.has_sequence:
                self._transaction.on_sequence_lost()
            if not is_aborted:
                self._transaction.on_batch_failed(error)
        if self._metrics is not None:
            self._metrics.on_failed(batch)
        batch.fail(error, by_record, is_expected=is_aborted)
        self._accumulator.on_done(batch)


def _errors(
    batch: ProducerBatch, refusal: Refusal
) -> tuple[KafkaError, Mapping[int, KafkaError] | None]:
    """Return the error of the batch, and of records that the broker named (KIP-467)."""
    about = str(batch.partition)
    if not refusal.by_record:
        return BrokerError(refusal.code, refusal.message, about=about), None
    by_record: dict[int, KafkaError] = {
        index: BrokerError(refusal.code, message or refusal.message, about=about)
        for index, message in refusal.by_record.items()
    }
    others = "another record of its batch was refused, and all with it; send this one again"
    return BrokerError(refusal.code, others, about=about), by_record
