"""All transactional ids of one partition of ``__transaction_state``.

Requests are planned from what is there now; ``replay`` alone changes it, live and when the
partition is loaded. A decision (PrepareCommit, PrepareAbort) is followed by markers, which the
host writes: it takes them when the decision is committed, tells of each one written, and the last
completes the transaction. Where there is nothing to mark both records go out at once.

Answers wait until what they are about is committed, also those to which nothing is written: a
partition that a crash may yet take out of its transaction must not be verified to be in it.

No state is pending here, as in Kafka, while a record is on its way: between planning and replay
nothing else happens.
"""

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final

from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Reply, Result
from odradek.coordinator.transaction.end_rules import client_version, plan_end
from odradek.coordinator.transaction.init_rules import check_init, plan_init
from odradek.coordinator.transaction.listing import (
    TransactionFilter,
    described,
    listed,
    not_described,
)
from odradek.coordinator.transaction.markers import MarkersToWrite, PendingMarkers
from odradek.coordinator.transaction.metadata import (
    Identity,
    ProducerIdNeededError,
    TransactionMetadata,
)
from odradek.coordinator.transaction.partition_rules import plan_add, verify
from odradek.coordinator.transaction.records import loaded_metadata, transaction_record
from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.coordinator.transaction.upkeep import Upkeep
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated import describe_transactions, list_transactions
from odradek.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.transaction_records import TransactionLogKey, TransactionLogValue
from odradek.protocol.message import Message

TRANSACTIONAL_IDS_MAX: Final = 1_000_000
"""Of one shard. Whoever makes up a new id every time would fill the memory until they expire."""
TRANSACTIONAL_ID_BYTES_MAX: Final = 32_767
"""The longest string that the key of a record can be."""
_INIT_FENCED_VERSION: Final = 4
_END_FENCED_VERSION: Final = 2


class TransactionShard:
    def __init__(self, settings: TransactionSettings, random: Random) -> None:
        """``settings`` may be changed by their owner."""
        self.transactions: dict[str, TransactionMetadata] = {}
        self.coordinator_epoch = 0
        """The leader epoch of the partition; for the host to set. Markers carry it."""
        self._settings = settings
        self._markers = PendingMarkers()
        self._upkeep = Upkeep(settings, random)
        # What is planned but not replayed, for what its record does not tell.
        self._coming: dict[str, tuple[Message, TransactionMetadata]] = {}

    # Requests.

    def needs_producer_id(self, request: InitProducerIdRequest) -> bool:
        """Whether ``init_producer_id`` will take a producer id that nobody has used."""
        try:
            self._plan_init(request, 0, None)
        except ProducerIdNeededError:
            return True
        except ApiError:
            pass
        return False

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        caller: Caller,
        now: Instant,
        new_producer_id: int | None,
    ) -> Result:
        try:
            planned = self._plan_init(request, now.wall_ms, new_producer_id)
        except ApiError as error:
            return _init_refused(error.code, caller)
        except ProducerIdNeededError:
            return _init_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, caller)
        records = self._write_at(now, *_ending(planned, now.wall_ms))
        if planned.state.is_prepared:
            refused = _init_refused(ErrorCode.CONCURRENT_TRANSACTIONS, caller)
            return Result(records, refused.replies)
        response = InitProducerIdResponse(
            producer_id=planned.holder.producer_id, producer_epoch=planned.holder.producer_epoch
        )
        if planned.is_taken_over:
            response.ongoing_txn_producer_id = planned.producer_id
            response.ongoing_txn_producer_epoch = planned.producer_epoch
        return Result(records, (Reply(caller.waiter, response),))

    def _plan_init(
        self, request: InitProducerIdRequest, now_ms: int, new_producer_id: int | None
    ) -> TransactionMetadata:
        transactional_id = _checked(request.transactional_id)
        check_init(request, self._settings)
        current = self.transactions.get(transactional_id)
        if current is None and len(self.transactions) >= TRANSACTIONAL_IDS_MAX:
            problem = f"{TRANSACTIONAL_IDS_MAX} transactional ids are remembered already"
            raise ApiError(ErrorCode.POLICY_VIOLATION, problem)
        version = self._settings.transaction_version
        return plan_init(current, request, version, now_ms, new_producer_id)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        now: Instant,
        *,
        transaction_version: int,
    ) -> tuple[tuple[CoordinatorRecord, ...], dict[TopicPartition, ErrorCode]]:
        """Plan to make partitions part of a transaction, all or none.

        ``transaction_version`` is the producer's. Its oldest versions do not know PRODUCER_FENCED:
        the caller says INVALID_PRODUCER_EPOCH to them.
        """
        asking = Identity(producer_id, producer_epoch)
        try:
            current = self.transactions.get(_checked(transactional_id))
            planned = plan_add(current, asking, partitions, transaction_version, now.wall_ms)
        except ApiError as error:
            return (), dict.fromkeys(partitions, error.code)
        records = () if planned is None else self._write_at(now, planned)
        return records, dict.fromkeys(partitions, ErrorCode.NONE)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Tell a broker which partitions its producer may write to; see the note on answers."""
        asking = Identity(producer_id, producer_epoch)
        try:
            current = self.transactions.get(_checked(transactional_id))
            return verify(current, asking, partitions)
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)

    def end_needs_producer_id(self, request: EndTxnRequest, version: int) -> bool:
        """Whether ``end`` will take a producer id that nobody has used."""
        try:
            self._plan_end(request, version, 0, None)
        except ProducerIdNeededError:
            return True
        except ApiError:
            pass
        return False

    def end(
        self,
        request: EndTxnRequest,
        caller: Caller,
        now: Instant,
        new_producer_id: int | None = None,
    ) -> Result:
        try:
            planned = self._plan_end(request, caller.version, now.wall_ms, new_producer_id)
        except ApiError as error:
            return _end_refused(error.code, caller)
        except ProducerIdNeededError:
            return _end_refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, caller)
        response = EndTxnResponse()
        if client_version(caller.version):
            ended = planned or self.transactions[request.transactional_id]
            response.producer_id, response.producer_epoch = ended.successor
        records = () if planned is None else self._write_at(now, *_ending(planned, now.wall_ms))
        return Result(records, (Reply(caller.waiter, response),))

    def _plan_end(
        self, request: EndTxnRequest, version: int, now_ms: int, new_producer_id: int | None
    ) -> TransactionMetadata | None:
        current = self.transactions.get(_checked(request.transactional_id))
        return plan_end(current, request, client_version(version), now_ms, new_producer_id)

    # Markers.

    def take_markers(self, high_watermark: int | None = None) -> list[MarkersToWrite]:
        """Hand out, once, the markers of decisions that are in the log.

        ``high_watermark`` holds back decisions that are not committed: a marker cannot be taken
        back. Without it everything in the log counts as committed.
        """
        return self._markers.take(self.coordinator_epoch, high_watermark)

    def on_marker_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        now: Instant,
        *,
        prepared_offset: int | None = None,
    ) -> Result:
        """Hear that a partition has its marker, or is gone; the last completes the transaction.

        ``prepared_offset`` is the one of MarkersToWrite. Without it, a late answer to the marker of
        an earlier transaction with the same epoch would count for this one.
        """
        if not self._markers.on_written(
            transactional_id, producer_id, producer_epoch, partition, prepared_offset
        ):
            return Result()
        return self._complete(transactional_id, now)

    def _complete(self, transactional_id: str, now: Instant) -> Result:
        return Result(
            self._write_at(now, self.transactions[transactional_id].completed(now.wall_ms))
        )

    # Administration.

    def describe(self, transactional_id: str) -> describe_transactions.TransactionState:
        if not transactional_id:
            return not_described(transactional_id, ErrorCode.INVALID_REQUEST)
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            return not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        if transactional_id in self._markers:
            return described(metadata, self._markers.left(transactional_id))
        return described(metadata, metadata.partitions)

    def list_transactions(
        self, wanted: TransactionFilter, now: Instant
    ) -> Iterator[list_transactions.TransactionState]:
        for metadata in self.transactions.values():
            if wanted.includes(metadata, now.wall_ms):
                yield listed(metadata)

    # Time.

    @property
    def wants_producer_id(self) -> bool:
        """Whether a transaction that took too long waits for ``give_producer_id``."""
        return self._upkeep.wants_producer_id

    def give_producer_id(self, producer_id: int) -> None:
        self._upkeep.give_producer_id(producer_id)

    def next_deadline_ms(self) -> int | None:
        return self._upkeep.next_deadline_ms() if self.transactions else None

    def tick(self, now: Instant) -> Iterator[Result]:
        for transactional_id in self._upkeep.take_completions(now):
            if transactional_id in self._markers and not self._markers.left(transactional_id):
                yield self._complete(transactional_id, now)
        for transactional_id in self._upkeep.take_timed_out(now):
            aborted = self._upkeep.plan_abort(self.transactions[transactional_id], now)
            if aborted is not None:
                yield Result(self._write_at(now, *_ending(aborted, now.wall_ms)))
        tombstones = self._upkeep.plan_expiry(now, self.transactions)
        if tombstones:
            yield Result(tombstones)

    # The log.

    def _write_at(
        self, now: Instant, *planned: TransactionMetadata
    ) -> tuple[CoordinatorRecord, ...]:
        self._upkeep.hear(now)  # for replay, which is told no time
        return self._write(*planned)

    def _write(self, *planned: TransactionMetadata) -> tuple[CoordinatorRecord, ...]:
        version = self._settings.transaction_version
        records = tuple(transaction_record(each, version) for each in planned)
        value = records[-1].value
        assert value is not None
        self._coming[planned[-1].transactional_id] = value, planned[-1]
        return records

    def replay(self, key: Message, value: Message | None, *, offset: int, producer_id: int) -> None:
        assert isinstance(key, TransactionLogKey)
        del producer_id  # transactions are not written in transactions
        transactional_id = key.transactional_id
        self._markers.drop(transactional_id)
        if value is None:
            self._upkeep.drop(transactional_id)
            self.transactions.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        coming = self._coming.get(transactional_id)
        if coming is not None and coming[0] is value:
            del self._coming[transactional_id]
            metadata = coming[1]
        else:
            metadata = loaded_metadata(transactional_id, value)
        self.transactions[transactional_id] = metadata
        self._upkeep.on_changed(metadata)
        if metadata.state.is_prepared:
            self._markers.begin(metadata, offset)

    def replay_marker(self, producer_id: int, *, is_committed: bool) -> None:
        """Do nothing: this topic is not written in transactions."""

    def on_loaded(self, now: Instant) -> Iterator[Result]:
        self._upkeep.on_loaded(now, self.transactions)
        for transactional_id, metadata in list(self.transactions.items()):
            if metadata.state.is_prepared and not metadata.partitions:
                yield self._complete(transactional_id, now)

    def on_append_failed(
        self, records: Iterable[CoordinatorRecord], now: Instant
    ) -> Iterable[Result]:
        """Hear that a result's records are not in the log, and its replies were refused."""
        for record in records:
            assert isinstance(record.key, TransactionLogKey)
            transactional_id = record.key.transactional_id
            self._coming.pop(transactional_id, None)
            if transactional_id in self._markers and not self._markers.left(transactional_id):
                self._upkeep.complete_later(transactional_id, now)
        return ()

    def check_invariants(self) -> None:
        """Check what holds whenever nothing is planned that is not replayed."""
        assert not self._coming
        for transactional_id, metadata in self.transactions.items():
            assert metadata.transactional_id == transactional_id
            metadata.check_invariants()
            assert (transactional_id in self._markers) == metadata.state.is_prepared
            if metadata.state.is_prepared:
                assert self._markers.left(transactional_id) <= metadata.partitions
        assert len(self._markers) <= len(self.transactions)
        self._upkeep.check_invariants(self.transactions)


def _ending(planned: TransactionMetadata, now_ms: int) -> tuple[TransactionMetadata, ...]:
    """Return what to write: with nothing to mark, a decision is complete at once."""
    if planned.state.is_prepared and not planned.partitions:
        return planned, planned.completed(now_ms)
    return (planned,)


def _checked(transactional_id: str | None) -> str:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
        problem = f"the transactional id is longer than {TRANSACTIONAL_ID_BYTES_MAX} bytes"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    return transactional_id


def _init_refused(code: ErrorCode, caller: Caller) -> Result:
    if code is ErrorCode.PRODUCER_FENCED and caller.version < _INIT_FENCED_VERSION:
        code = ErrorCode.INVALID_PRODUCER_EPOCH  # older clients know no other
    response = InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return Result(replies=(Reply(caller.waiter, response),))


def _end_refused(code: ErrorCode, caller: Caller) -> Result:
    if code is ErrorCode.PRODUCER_FENCED and caller.version < _END_FENCED_VERSION:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return Result(replies=(Reply(caller.waiter, EndTxnResponse(error_code=code)),))
