"""The host of a transaction shard: a replicated log, answers that wait for it, and markers.

The log is committed some time after it is written; a failover may take away what is not.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.coordinator.result import Caller, Reply, Result
from odradek.coordinator.transaction.markers import MarkersToWrite
from odradek.coordinator.transaction.records import (
    decode_transaction_record,
    loaded_metadata,
    transaction_record,
)
from odradek.coordinator.transaction.shard import TransactionShard
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.transaction_records import TransactionLogKey, TransactionLogValue
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from tests.simulation.transactions.transaction_world import World

MARKER_RETRY_MS = 300
Deliver = Callable[[Message | dict[TopicPartition, ErrorCode] | None], None]


class Host:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.log: list[tuple[bytes, bytes | None]] = []
        self.committed = 0
        self.term = 0
        self.is_up = False
        self.shard: TransactionShard
        self._waiting: list[tuple[int, Deliver, object]] = []
        self._tick_due_ms: int | None = None
        self.elect()

    # Terms.

    def crash(self) -> None:
        self.is_up = False
        self._waiting.clear()
        del self.log[self.world.random.randint(self.committed, len(self.log)) :]

    def elect(self) -> None:
        self.term += 1
        self.is_up = True
        self.shard = self.loaded()
        self.shard.coordinator_epoch = self.term
        for result in self.shard.on_loaded(self.world.now):
            self.apply(result)
        self._commit_later()
        self._arm()

    def loaded(self) -> TransactionShard:
        shard = TransactionShard(self.world.settings, self.world.random)
        for offset, (key, value) in enumerate(self.log):
            decoded = decode_transaction_record(key, value)
            assert decoded is not None
            shard.replay(*decoded, offset=offset, producer_id=-1)
        return shard

    @property
    def has_uncommitted(self) -> bool:
        return self.committed < len(self.log)

    # Requests.

    def call(self, ask: Callable[[Caller], Result], version: int, deliver: Deliver) -> None:
        if self.is_up:
            self.apply(ask(Caller(deliver, version, "", "")), deliver)

    def apply(self, result: Result, deliver: Deliver | None = None) -> None:
        if result.records and self.world.chance(self.world.faults.append_failure):
            assert not list(self.shard.on_append_failed(result.records, self.world.now))
            if deliver is not None:
                deliver(None)
        else:
            for record in result.records:
                self.world.check_record(record, self.shard)
                self.log.append((record.key_bytes(), record.value_bytes()))
                offset = len(self.log) - 1
                self.shard.replay(record.key, record.value, offset=offset, producer_id=-1)
            for reply in result.replies:
                self._answer(reply)
        self.shard.check_invariants()
        if result.records:
            self._commit_later()
        self._deliver()
        self._arm()

    def _answer(self, reply: Reply) -> None:
        deliver: Deliver = reply.waiter  # type: ignore[assignment]
        self.answer_when_committed(deliver, reply.message)

    def answer_when_committed(self, deliver: Deliver, what: object) -> None:
        self._waiting.append((len(self.log), deliver, what))
        self._deliver()

    def _deliver(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.committed:
            _, deliver, what = self._waiting.pop(0)
            deliver(what)  # type: ignore[arg-type]
        for markers in self.shard.take_markers(self.committed):
            for partition in markers.partitions:
                self._mark(markers, partition, self.term)

    def _commit_later(self) -> None:
        term, end = self.term, len(self.log)

        def commit() -> None:
            if self.is_up and self.term == term:
                self.committed = max(self.committed, end)
                self._deliver()

        self.world.after(self.world.random.randint(1, 30), commit)

    # Markers.

    def _mark(self, markers: MarkersToWrite, partition: TopicPartition, term: int) -> None:
        """Send a marker until it is there; it may arrive though its sender is gone by then."""
        is_answered = False

        def written(code: ErrorCode) -> None:
            nonlocal is_answered
            is_answered = True
            fenced = (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
            assert code is ErrorCode.NONE or code in fenced
            if code is ErrorCode.NONE and self.is_up:
                self.apply(
                    self.shard.on_marker_written(
                        markers.transactional_id,
                        markers.producer_id,
                        markers.producer_epoch,
                        partition,
                        self.world.now,
                        prepared_offset=markers.prepared_offset,
                    )
                )

        def arrive() -> None:
            code = self.world.partitions[partition.topic].mark(markers)
            self.world.network(lambda: written(code))

        def send() -> None:
            current = self.shard.transactions.get(markers.transactional_id)
            is_due = current is not None and current.state.is_prepared
            if is_answered or not is_due or not self.is_up or self.term != term:
                return
            if not self.world.chance(self.world.faults.marker_loss):
                self.world.network(arrive)
            self.world.after(MARKER_RETRY_MS, send)

        send()

    # Time.

    def _arm(self) -> None:
        due_ms = self.shard.next_deadline_ms()
        if due_ms is None or (self._tick_due_ms is not None and self._tick_due_ms <= due_ms):
            return
        self._tick_due_ms = due_ms
        self.world.after(max(due_ms - self.world.now_ms, 0), self._tick)

    def _tick(self) -> None:
        self._tick_due_ms = None
        if self.is_up:
            for result in self.shard.tick(self.world.now):
                self.apply(result)
            if self.shard.wants_producer_id:
                self.shard.give_producer_id(self.world.new_producer_id())
            self._arm()

    # To look at.

    def begin_in_epoch(self, transactional_id: str, epoch: int) -> None:
        """Have a record of an id that has seen much already."""
        value = TransactionLogValue(
            producer_id=self.world.new_producer_id(),
            producer_epoch=epoch,
            transaction_timeout_ms=1_000,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=self.world.now.wall_ms,
            transaction_start_timestamp_ms=-1,
        )
        record = transaction_record(loaded_metadata(transactional_id, value), 2)
        self.log.append((record.key_bytes(), record.value_bytes()))
        key = TransactionLogKey(transactional_id=transactional_id)
        self.shard.replay(key, value, offset=len(self.log) - 1, producer_id=-1)
