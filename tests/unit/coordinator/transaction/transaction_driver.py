"""A host of one transaction shard: a log, a clock, and answers at once.

After every step: the invariants, and a shard loaded from the bytes of the log equals this one.
"""

from random import Random

from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Caller, Result
from odradek.coordinator.transaction.markers import MarkersToWrite
from odradek.coordinator.transaction.metadata import Identity, TransactionMetadata
from odradek.coordinator.transaction.records import decode_transaction_record
from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.coordinator.transaction.shard import TransactionShard
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.clock import Instant
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.message import Message

WALL_MS = 1_700_000_000_000
FIRST_PRODUCER_ID = 1_000
P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)
Q0 = TopicPartition("payments", 0)
NONE = ErrorCode.NONE


class TransactionDriver:
    def __init__(self, level: int = 2) -> None:
        self.settings = TransactionSettings(transaction_version=level)
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.next_producer_id = FIRST_PRODUCER_ID
        self.is_log_broken = False
        self.shard = self._new_shard()
        self._apply_all(self.shard.on_loaded(self.now))

    @property
    def now(self) -> Instant:
        return Instant(WALL_MS + self.now_ms, self.now_ms)

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self.settings, Random(1))

    # Requests.

    def init(
        self,
        transactional_id: str | None = "t",
        *,
        had: tuple[int, int] = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 5,
        two_phase: bool = False,
        keep: bool = False,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=had[0],
            producer_epoch=had[1],
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        new_id = self.new_producer_id() if self.shard.needs_producer_id(request) else None
        result = self.shard.init_producer_id(request, _caller(version), self.now, new_id)
        response = self.apply(result)
        assert isinstance(response, InitProducerIdResponse)
        response.encode(6)
        return response

    def init_ok(self, *, keep: bool = False, two_phase: bool = False) -> tuple[int, int]:
        response = self.init(keep=keep, two_phase=two_phase)
        assert response.error_code == NONE
        return response.producer_id, response.producer_epoch

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def add(
        self, who: tuple[int, int], *partitions: TopicPartition, version: int = 2, of: str = "t"
    ) -> ErrorCode:
        records, codes = self.shard.add_partitions(
            of, *who, partitions, self.now, transaction_version=version
        )
        self.apply(Result(records))
        assert list(codes) == list(dict.fromkeys(partitions))
        (code,) = set(codes.values())
        return code

    def verify(self, who: tuple[int, int], *partitions: TopicPartition) -> list[ErrorCode]:
        codes = self.shard.verify_partitions("t", *who, partitions)
        assert list(codes) == list(partitions)
        return list(codes.values())

    def end(
        self, who: tuple[int, int], *, commit: bool = True, version: int = 5, of: str = "t"
    ) -> tuple[ErrorCode, int, int]:
        request = EndTxnRequest(
            transactional_id=of, producer_id=who[0], producer_epoch=who[1], committed=commit
        )
        needs = self.shard.end_needs_producer_id(request, version)
        new_id = self.new_producer_id() if needs else None
        response = self.apply(self.shard.end(request, _caller(version), self.now, new_id))
        assert isinstance(response, EndTxnResponse)
        return ErrorCode(response.error_code), response.producer_id, response.producer_epoch

    # The log.

    def apply(self, result: Result) -> Message | None:
        if self.is_log_broken and result.records:
            assert not list(self.shard.on_append_failed(result.records, self.now))
            return None
        for record in result.records:
            self._append(record)
        self.check()
        assert len(result.replies) <= 1
        return result.replies[0].message if result.replies else None

    def _apply_all(self, results: object) -> None:
        for result in results:  # type: ignore[attr-defined]
            self.apply(result)

    def _append(self, record: CoordinatorRecord) -> None:
        offset = len(self.log)
        self.log.append((record.key_bytes(), record.value_bytes()))
        self.shard.replay(record.key, record.value, offset=offset, producer_id=-1)

    def check(self) -> None:
        self.shard.check_invariants()
        if self.settings.transaction_version >= 1:
            assert self.loaded().transactions == self.shard.transactions

    def loaded(self) -> TransactionShard:
        shard = self._new_shard()
        for offset, (key, value) in enumerate(self.log):
            decoded = decode_transaction_record(key, value)
            assert decoded is not None
            shard.replay(decoded[0], decoded[1], offset=offset, producer_id=-1)
        return shard

    def reload(self) -> None:
        self.shard = self.loaded()
        self._apply_all(self.shard.on_loaded(self.now))

    # What happens meanwhile.

    def pass_time(self, by_ms: int) -> None:
        """Move the clock, with a tick whenever the shard asked for one."""
        end_ms = self.now_ms + by_ms
        while (due_ms := self.shard.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._apply_all(self.shard.tick(self.now))
        self.now_ms = end_ms

    def write_markers(self) -> list[MarkersToWrite]:
        taken = self.shard.take_markers()
        for markers in taken:
            for partition in markers.partitions:
                self.wrote(markers, partition)
        return taken

    def wrote(self, markers: MarkersToWrite, partition: TopicPartition) -> None:
        self.apply(
            self.shard.on_marker_written(
                markers.transactional_id,
                markers.producer_id,
                markers.producer_epoch,
                partition,
                self.now,
                prepared_offset=markers.prepared_offset,
            )
        )

    # States to begin with.

    @property
    def metadata(self) -> TransactionMetadata:
        return self.shard.transactions["t"]

    def state(self) -> TransactionState:
        return self.metadata.state

    def put(self, epoch: int) -> tuple[int, int]:
        """Begin in an epoch that InitProducerId would need long to count to."""
        who = Identity(self.init_ok()[0], epoch)
        jumped = self.metadata.initialised(who, -1, 60_000, self.now.wall_ms)
        self.apply(Result(self.shard._write(jumped)))
        return who

    def at(self, state: TransactionState) -> tuple[int, int]:
        """Bring ``t`` into a state by the requests of its version; return its producer."""
        is_bumping = self.settings.transaction_version >= 2
        version = 5 if is_bumping else 4
        who = self.init_ok()
        if state is TransactionState.EMPTY:
            return who
        self.add(who, P0, P1, version=2 if is_bumping else 0)
        if state is TransactionState.ONGOING:
            return who
        is_commit = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        self.end(who, commit=is_commit, version=version)
        if state.is_complete:
            self.write_markers()
        assert self.state() is state
        return self.metadata.identity


def _caller(version: int) -> Caller:
    return Caller("waiter", version, "client", "host")
