"""Cleaning changes nothing that a reader or a producer was promised, whatever happened before.

The model is the list of all records ever appended, with what became of their transaction. The log
is made of tiny segments, cleaned at any time with a map of any size, stopped and opened again.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from odradek.records import CompressionType, ControlRecordType, Record
from odradek.records.legacy import build_message_set
from odradek.storage.cleaner.cleaning import DedupeBufferTooSmallError
from odradek.storage.cleaner.offset_map import ENTRY_BYTES
from tests.long_searches import examples
from tests.unit.storage.cleaner.compacted_log import DAY_MS, CompactedLog, encode

COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT

keys = st.sampled_from(["a", "b", "c", "long" * 10, None])
rows = st.lists(st.tuples(keys, st.sampled_from(["v", "w" * 50, None])), min_size=1, max_size=4)
codecs = st.sampled_from(CompressionType)
old_codecs = st.sampled_from([CompressionType.NONE, CompressionType.GZIP])


@dataclass
class Appended:
    record: Record
    producer_id: int | None = None  # of its transaction
    end: ControlRecordType | None = None  # None: not decided, or not in a transaction
    cleaned_ms: int | None = None
    """When a cleaning first got past it."""

    @property
    def is_committed(self) -> bool:
        return self.producer_id is None or self.end == COMMIT


class CleanerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.made = CompactedLog(segment_bytes=300, delete_retention_ms=DAY_MS)
        self.model: list[Appended] = []
        self.open: set[int] = set()
        self.epochs: dict[int, int] = {}
        self.is_old = True

    # What happens to the log.

    def note(self, base_offset: int, batch: Any, timestamp: int, in_txn: int | None) -> None:
        self.is_old = False
        for number, (key, value) in enumerate(batch):
            record = Record(base_offset + number, timestamp + number, encode(key), encode(value))
            self.model.append(Appended(record, in_txn))

    @rule(batch=rows, codec=codecs)
    def append(self, batch: Any, codec: CompressionType) -> None:
        self.note(self.made.append(*batch, codec=codec), batch, self.made.now_ms, None)

    @rule(batch=rows, codec=codecs, producer_id=st.integers(10, 11))
    def append_idempotent(self, batch: Any, codec: CompressionType, producer_id: int) -> None:
        offset = self.made.append(*batch, codec=codec, producer_id=producer_id)
        self.note(offset, batch, self.made.now_ms, None)

    @rule(batch=rows, codec=codecs, producer_id=st.integers(1, 3))
    def append_in_transaction(self, batch: Any, codec: CompressionType, producer_id: int) -> None:
        self.open.add(producer_id)
        offset = self.made.append(
            *batch,
            codec=codec,
            producer_id=producer_id,
            epoch=self.epochs.get(producer_id, 0),
            transactional=True,
        )
        self.note(offset, batch, self.made.now_ms, producer_id)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), kind=st.sampled_from([COMMIT, ABORT]), bump=st.booleans())
    def end_transaction(self, data: st.DataObject, kind: ControlRecordType, bump: bool) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open)))
        self.open.remove(producer_id)
        if bump:
            self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
            self.made.next_sequence[producer_id] = 0
        self.made.end(producer_id, kind, self.epochs.get(producer_id, 0))
        for each in self.model:
            if each.producer_id == producer_id and each.end is None:
                each.end = kind

    @precondition(lambda self: self.is_old)  # no log goes back to an older format
    @rule(batch=rows, magic=st.sampled_from([0, 1]), codec=old_codecs)
    def append_old_format(self, batch: Any, magic: int, codec: CompressionType) -> None:
        start = self.made.log.log_end_offset
        timestamp = self.made.now_ms if magic else -1
        records = [
            Record(start + number, timestamp, encode(key), encode(value))
            for number, (key, value) in enumerate(batch)
        ]
        self.made.append_bytes(build_message_set(records, magic=magic, codec=codec))
        self.model += map(Appended, records)

    @rule()
    def roll(self) -> None:
        self.made.roll()

    @rule(days=st.sampled_from([0.01, 0.5, 1, 3]))
    def wait(self, days: float) -> None:
        self.made.now_ms += int(days * DAY_MS)
        self.made.log.producer_states.remove_expired(self.made.now_ms)

    @rule(map_entries=st.sampled_from([1, 2, 3, 100]))
    def clean(self, map_entries: int) -> None:
        try:
            self.made.clean(dedupe_buffer_bytes=map_entries * ENTRY_BYTES, load_factor=1.0)
        except DedupeBufferTooSmallError:
            assert map_entries < 4
            return
        assert self.made.checkpoint is not None
        for each in self.model:
            if each.record.offset < self.made.checkpoint and each.cleaned_ms is None:
                each.cleaned_ms = self.made.now_ms
        self.check_clean_part(self.made.checkpoint)

    @rule(clean=st.booleans())
    def open_again(self, clean: bool) -> None:
        before = self.producers(), self.made.log.last_stable_offset, self.made.log.log_end_offset
        if not clean:
            self.made.disk.kill()
        self.made.reopen(clean=clean)
        after = self.producers(), self.made.log.last_stable_offset, self.made.log.log_end_offset
        assert after == before

    def producers(self) -> dict[int, tuple[int, int, int | None]]:
        return {
            producer_id: (state.producer_epoch, state.last_sequence, state.current_txn_first_offset)
            for producer_id, state in self.made.log.producer_states.active_producers.items()
            if self.made.now_ms - state.last_timestamp < 7 * DAY_MS
        }

    # What must be true.

    def check_clean_part(self, end_offset: int) -> None:
        found = [record for record in self.made.records() if record.offset < end_offset]
        assert len(found) == len({record.key for record in found}), "one record per key"
        committed = {each.record.offset for each in self.model if each.is_committed}
        assert {record.offset for record in found} <= committed

    @invariant()
    def records_are_those_that_were_appended_in_their_order(self) -> None:
        original = {each.record.offset: each.record for each in self.model}
        offsets = []
        for record in self.made.records():
            assert record == original[record.offset]
            offsets.append(record.offset)
        assert offsets == sorted(set(offsets))

    @invariant()
    def the_newest_committed_value_of_each_key_is_there(self) -> None:
        end_offset = self.made.log.last_stable_offset
        expected = [r.record for r in self.model if r.is_committed and r.record.offset < end_offset]
        seen = self.made.records(committed=True)
        assert newest_values(seen) == newest_values(expected)
        assert {record.offset for record in seen} <= {record.offset for record in expected}

    @invariant()
    def a_tombstone_stays_for_its_time(self) -> None:
        offsets = {record.offset for record in self.made.records()}
        latest = {each.record.key: each for each in self.model if each.is_committed}
        for key, each in latest.items():
            if key is None or each.record.value is not None:
                continue
            if each.cleaned_ms is None or self.made.now_ms < each.cleaned_ms + DAY_MS:
                assert each.record.offset in offsets

    @invariant()
    def reading_can_start_anywhere(self) -> None:
        end = self.made.log.log_end_offset
        for committed in (False, True):
            everything = self.made.records(committed=committed)
            for offset in {0, end // 3, end // 2, max(end - 2, 0), end}:
                expected = [record for record in everything if record.offset >= offset]
                assert self.made.records(offset, committed=committed) == expected

    @invariant()
    def segments_follow_each_other_without_gaps(self) -> None:
        segments = list(self.made.log.segments)
        for segment, following in pairwise(segments):
            assert segment.next_offset() == following.base_offset

    @invariant()
    def the_log_is_sound(self) -> None:
        self.made.log.check_invariants()
        self.made.log.producer_states.check_invariants()


def newest_values(records: list[Record]) -> dict[bytes, Record]:
    newest = {record.key: record for record in records if record.key is not None}
    return {key: record for key, record in newest.items() if record.value is not None}


@pytest.mark.seed_row("0.9")
def test_cleaning_keeps_its_promises() -> None:
    run_state_machine_as_test(
        CleanerMachine, settings=settings(max_examples=15, stateful_step_count=25, deadline=None)
    )


@pytest.mark.slow
def test_cleaning_keeps_its_promises_for_long() -> None:
    run_state_machine_as_test(
        CleanerMachine,
        settings=settings(max_examples=examples(60, exploring=150), stateful_step_count=60),
    )
