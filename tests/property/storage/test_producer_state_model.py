"""Producer state is a function of the batches in the log, whatever happened to get there.

The model is the list of batches and a few questions asked of it by going through it from the
start. Snapshots, truncation, reloading and power loss must change none of the answers; only the
memory of duplicates may shrink, to what a snapshot keeps.
"""

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from odradek.core.errors import ApiError, ErrorCode
from odradek.records.batch import (
    CONTROL_FLAG,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.producer_state import (
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    ProducerStates,
)
from odradek.testing.disk import SimulatedDisk
from tests.long_searches import examples

FOLDER = PurePosixPath("/log")
SEQUENCE_MAX = 2**31 - 1
START_MS = 1_000_000

producer_ids = st.integers(1, 3)


@dataclass(frozen=True)
class Batch:
    header: BatchHeader
    marker: EndTransactionMarker | None = None

    @property
    def is_data(self) -> bool:
        return not self.header.is_control


@dataclass
class Model:
    """The log, and from where on it is known what was in it."""

    log: list[Batch] = field(default_factory=list)
    known_from: int = 0  # batches before this offset have been forgotten
    reloaded_at: int = 0  # of those before this one, only the last of each producer is remembered

    @property
    def end_offset(self) -> int:
        return self.log[-1].header.next_offset if self.log else self.known_from

    def of(self, producer_id: int, before: int | None = None) -> list[Batch]:
        """Return what says something about the producer."""
        return [
            batch
            for batch in self.log
            if batch.header.producer_id == producer_id
            and batch.header.base_offset >= self.known_from
            and (before is None or batch.header.base_offset < before)
            and (batch.is_data or batch.marker is not None)
        ]

    def epoch(self, producer_id: int) -> int:
        batches = self.of(producer_id)
        return batches[-1].header.producer_epoch if batches else -1

    def run(self, producer_id: int) -> list[Batch]:
        """Return the data batches since the epoch last changed."""
        run: list[Batch] = []
        for batch in reversed(self.of(producer_id)):
            if batch.header.producer_epoch != self.epoch(producer_id):
                break
            run.insert(0, batch)
        return [batch for batch in run if batch.is_data]

    def remembered(self, producer_id: int) -> list[BatchMetadata]:
        run = self.run(producer_id)
        old = [batch for batch in run if batch.header.base_offset < self.reloaded_at]
        result = [_metadata(b.header, b.header.max_timestamp) for b in run[len(old) :]]
        if old:
            last_of_all = self.of(producer_id, before=self.reloaded_at)[-1].header
            result.insert(0, _metadata(old[-1].header, last_of_all.max_timestamp))
        return result[-5:]

    def duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        if header.base_sequence < 0 or header.producer_epoch != self.epoch(header.producer_id):
            return None
        for known in self.remembered(header.producer_id):
            if known[:2] == (header.base_sequence, header.last_sequence):
                return known
        return None

    def coordinator_epoch(self, producer_id: int) -> int:
        markers = [batch.marker for batch in self.of(producer_id) if batch.marker]
        return markers[-1].coordinator_epoch if markers else -1

    def last_sequence(self, producer_id: int) -> int:
        run = self.run(producer_id)
        return run[-1].header.last_sequence if run else NO_SEQUENCE

    def open_at(self, producer_id: int) -> int | None:
        first = None
        for batch in self.of(producer_id):
            if batch.marker is not None:
                first = None
            elif first is None and batch.header.is_transactional:
                first = batch.header.base_offset
        return first

    def undecided(self, without: int = 0) -> list[int]:
        firsts = [self.open_at(i) for i in self.producer_ids if i != without]
        return sorted(first for first in firsts if first is not None)

    @property
    def producer_ids(self) -> list[int]:
        return [i for i in range(10) if self.of(i)]

    def refusal(self, header: BatchHeader, transaction_version: int) -> ErrorCode | None:
        """Return the error code for a client's batch."""
        producer_id, sequence = header.producer_id, header.base_sequence
        if not self.of(producer_id):
            strict = transaction_version == 2 and header.is_transactional and sequence != 0
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if strict else None
        if header.producer_epoch < self.epoch(producer_id):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        last = self.last_sequence(producer_id)
        is_new = header.producer_epoch > self.epoch(producer_id)
        if sequence != (0 if is_new or last == SEQUENCE_MAX else last + 1):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_at(producer_id) is not None and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def marker_refusal(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int
    ) -> ErrorCode | None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        is_open = self.open_at(producer_id) is not None
        if epoch < self.epoch(producer_id):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch == self.epoch(producer_id) and is_open and transaction_version == 2:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < self.coordinator_epoch(producer_id):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None


def _metadata(header: BatchHeader, timestamp: int) -> BatchMetadata:
    return BatchMetadata(
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.last_offset,
        timestamp,
    )


class ProducerStateMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.disk = SimulatedDisk(Random(seed), block_bytes=16)
        self.disk.make_folder(FOLDER)
        self.disk.sync_all()
        self.states = self.new_states()
        self.model = Model()
        self.now_ms = START_MS
        self.log_start_offset = 0
        self.flushed_count = 0
        # By offset: "synced", "written", or "doubtful": that was not synced and power was lost.
        self.snapshots: dict[int, str] = {}
        self.unreplicated: list[CompletedTransaction] = []

    def new_states(self) -> ProducerStates:
        return ProducerStates(
            self.disk, FOLDER, producer_id_expiration_ms=2**40, transaction_timeout_ms_max=1000
        )

    def restart(self) -> None:
        self.states = self.new_states()
        self.unreplicated = []
        self.model.reloaded_at = 0

    def header(self, producer_id: int, epoch: int, sequence: int, **fields: Any) -> BatchHeader:
        self.now_ms += 1
        place = (self.model.end_offset, 100, 0, 2, 0)
        rest = (0, 0, 0, self.now_ms, producer_id, epoch, sequence, 1, 0)
        return BatchHeader(*place, *rest)._replace(**fields)

    def append(self, batch: Batch) -> None:
        self.model.log.append(batch)
        self.apply(batch)

    def apply(self, batch: Batch) -> None:
        header, marker = batch.header, batch.marker
        if not header.has_producer_id:
            self.states.update_map_end_offset(header.next_offset)
            return
        completed = self.states.apply(header, 0, marker)
        if completed is not None:
            self.unreplicated.append(completed)
            self.states.complete(completed)

    @rule(
        producer_id=producer_ids,
        epoch=st.sampled_from([-1, 0, 0, 0, 0, 1]),
        sequence=st.sampled_from(["next", "next", "next", "zero", "gap"]),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
        transaction_version=st.sampled_from([-1, 0, 2]),
    )
    def produce(
        self,
        producer_id: int,
        epoch: int,
        sequence: str,
        count: int,
        is_transactional: bool,
        transaction_version: int,
    ) -> None:
        last = self.model.last_sequence(producer_id)
        following = 0 if last == SEQUENCE_MAX else last + 1
        header = self.header(
            producer_id,
            max(0, self.model.epoch(producer_id) + epoch),
            {"next": following, "zero": 0, "gap": (following + 7) % 2**31}[sequence],
            last_offset_delta=count - 1,
            attributes=TRANSACTIONAL_FLAG if is_transactional else 0,
        )
        duplicate = self.states.find_duplicate(header)
        assert duplicate == self.model.duplicate(header)
        if duplicate is not None:
            return
        code = _refusal(self.states, header, AppendOrigin.CLIENT, None, transaction_version)
        assert code == self.model.refusal(header, transaction_version)
        if code is None:
            self.append(Batch(header))

    @rule(data=st.data(), producer_id=producer_ids)
    def send_again(self, data: st.DataObject, producer_id: int) -> None:
        run = self.model.run(producer_id)[-8:]
        if not run:
            return
        old = data.draw(st.sampled_from(run)).header
        assert self.states.find_duplicate(old) == self.model.duplicate(old)

    @rule(
        producer_id=producer_ids,
        epoch=st.integers(0, 3),
        sequence=st.sampled_from([0, 5, SEQUENCE_MAX - 2, SEQUENCE_MAX, NO_SEQUENCE]),
        count=st.integers(1, 5),
        is_transactional=st.booleans(),
    )
    def replicate(
        self, producer_id: int, epoch: int, sequence: int, count: int, is_transactional: bool
    ) -> None:
        """What a leader has accepted is not for a follower to judge."""
        header = self.header(
            producer_id,
            epoch,
            sequence,
            last_offset_delta=count - 1,
            attributes=TRANSACTIONAL_FLAG if is_transactional else 0,
        )
        assert _refusal(self.states, header, AppendOrigin.REPLICATION, None, -1) is None
        self.append(Batch(header))

    @rule(
        producer_id=producer_ids,
        epoch=st.sampled_from([-1, 0, 0, 1, 1]),
        coordinator_epoch=st.integers(0, 2),
        kind=st.sampled_from([ControlRecordType.ABORT, ControlRecordType.COMMIT]),
        transaction_version=st.sampled_from([0, 2]),
    )
    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        kind: ControlRecordType,
        transaction_version: int,
    ) -> None:
        epoch = max(0, self.model.epoch(producer_id) + epoch)
        flags = TRANSACTIONAL_FLAG | CONTROL_FLAG
        header = self.header(producer_id, epoch, NO_SEQUENCE, attributes=flags)
        marker = EndTransactionMarker(kind, coordinator_epoch)
        code = _refusal(self.states, header, AppendOrigin.COORDINATOR, marker, transaction_version)
        assert code == self.model.marker_refusal(header, marker, transaction_version)
        if code is not None:
            return
        first = self.model.open_at(producer_id)
        others = self.model.undecided(without=producer_id)
        self.model.log.append(Batch(header, marker))
        completed = self.states.apply(header, 0, marker)
        if first is None:
            assert completed is None
            return
        is_aborted = kind == ControlRecordType.ABORT
        expected = CompletedTransaction(producer_id, first, header.base_offset, is_aborted)
        assert completed == expected
        stable = others[0] if others else header.next_offset
        assert self.states.last_stable_offset(expected) == stable
        self.states.complete(expected)
        self.unreplicated.append(expected)

    @rule(is_emptied_marker=st.booleans())
    def append_what_says_nothing(self, is_emptied_marker: bool) -> None:
        if is_emptied_marker:
            header = self.header(
                1, 9, NO_SEQUENCE, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG, records_count=0
            )
        else:
            header = self.header(NO_PRODUCER_ID, -1, NO_SEQUENCE, last_offset_delta=3)
        self.append(Batch(header))

    @rule(data=st.data())
    def replicated(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.model.end_offset))
        self.states.on_high_watermark_updated(offset)
        self.unreplicated = [done for done in self.unreplicated if done.last_offset >= offset]

    @rule(sync=st.booleans())
    def take_snapshot(self, sync: bool) -> None:
        offset = self.model.end_offset
        latest = max(self.snapshots, default=self.states._last_snapshot_offset)
        path = self.states.take_snapshot(sync=sync)
        assert (path is not None) == (offset > latest)
        if path is not None:
            self.snapshots[offset] = "synced" if sync else "written"
        assert self.states.snapshots.latest == max(self.snapshots, default=None)

    @rule()
    def flush_log(self) -> None:
        self.flushed_count = len(self.model.log)

    @precondition(lambda self: self.model.log)
    @rule(data=st.data())
    def move_log_start(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from([b.header.next_offset for b in self.model.log]))
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.states.on_log_start_offset_incremented(offset)
        self.unreplicated = [done for done in self.unreplicated if done.last_offset >= offset]

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self.cut_log(data, floor=0)
        self.reload()

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        self.disk.crash()
        self.cut_log(data, floor=self.flushed_count)
        for offset, state in self.snapshots.items():
            self.snapshots[offset] = "synced" if state == "synced" else "doubtful"
        self.restart()
        self.reload()
        self.disk.sync_all()

    @rule()
    def damage_latest_snapshot(self) -> None:
        latest = self.states.snapshots.latest
        if latest is not None:
            path = self.states.snapshots.path(latest)
            self.disk.flip_bit(path, self.disk.size(path) // 2)
            self.snapshots.pop(latest)
            self.restart()
            self.reload()

    @rule()
    def truncate_fully(self) -> None:
        offset = self.model.end_offset
        self.states.truncate_fully_and_start_at(offset)
        self.model = Model(known_from=offset, reloaded_at=offset)
        self.log_start_offset = offset
        self.flushed_count = 0
        self.snapshots = {}
        self.unreplicated = []

    def cut_log(self, data: st.DataObject, floor: int) -> None:
        ends = [
            count
            for count in range(floor, len(self.model.log) + 1)
            if self.end_of(count) >= self.log_start_offset
        ]
        del self.model.log[data.draw(st.sampled_from(ends)) :]
        self.flushed_count = min(self.flushed_count, len(self.model.log))

    def end_of(self, count: int) -> int:
        return Model(self.model.log[:count], self.model.known_from).end_offset

    def reload(self) -> None:
        end = self.model.end_offset
        kept = self.states.map_end_offset == end
        self.states.truncate_and_reload(self.log_start_offset, end, self.now_ms)
        start = self.states.map_end_offset
        usable = {o: s for o, s in self.snapshots.items() if self.log_start_offset < o <= end}
        sound = [offset for offset, state in usable.items() if state != "doubtful"]
        left = self.states.snapshots.offsets
        assert set(sound) <= set(left) <= set(usable)
        if not kept:
            assert start == max(left, default=self.log_start_offset)
        self.snapshots = {o: s for o, s in usable.items() if o in left}
        if not kept:
            self.unreplicated = []
            self.model.reloaded_at = start
            if start == self.log_start_offset:
                self.model.known_from = start
            for batch in self.model.log:
                if batch.header.base_offset >= start:
                    self.apply(batch)

    @invariant()
    def state_is_what_the_log_says(self) -> None:
        self.states.check_invariants()
        states = self.states.active_producers
        assert sorted(states) == self.model.producer_ids
        for producer_id, state in states.items():
            assert state.producer_epoch == self.model.epoch(producer_id)
            assert state.coordinator_epoch == self.model.coordinator_epoch(producer_id)
            assert state.last_sequence == self.model.last_sequence(producer_id)
            last = self.model.of(producer_id)[-1].header
            assert state.last_timestamp == last.max_timestamp
            assert state.current_txn_first_offset == self.model.open_at(producer_id)
            assert state.batches == self.model.remembered(producer_id)
        assert self.states.map_end_offset == self.model.end_offset

    @invariant()
    def transactions_are_what_the_log_says(self) -> None:
        undecided = self.model.undecided()
        unstable = sorted([*undecided, *(done.first_offset for done in self.unreplicated)])
        assert self.states.first_undecided_offset == next(iter(undecided), None)
        assert self.states.first_unstable_offset == next(iter(unstable), None)


def _refusal(
    states: ProducerStates,
    header: BatchHeader,
    origin: AppendOrigin,
    marker: EndTransactionMarker | None,
    transaction_version: int,
) -> ErrorCode | None:
    try:
        states.check(header, origin, marker, transaction_version=transaction_version)
    except ApiError as error:
        return error.code
    return None


def test_state_is_a_function_of_the_log() -> None:
    run_state_machine_as_test(
        ProducerStateMachine,
        settings=settings(max_examples=25, stateful_step_count=30, deadline=None),
    )


@pytest.mark.slow
def test_state_is_a_function_of_the_log_at_length() -> None:
    run_state_machine_as_test(
        ProducerStateMachine,
        settings=settings(max_examples=examples(150, exploring=400), stateful_step_count=60),
    )
