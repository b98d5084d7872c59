"""Indexes and leader epochs do what the dumbest list would do, through reopening and crashes.

Limits are tiny, so that a few steps fill an index; some begin with so many entries that they have
pages which a search does not try first. The disk is simulated.
"""

from pathlib import PurePosixPath
from random import Random

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

from odradek.core.errors import CorruptionError
from odradek.storage.leader_epochs import EpochEntry, LeaderEpochs
from odradek.storage.offset_index import IndexEntry, OffsetIndex
from odradek.storage.time_index import TimeIndex
from odradek.storage.transaction_index import AbortedTransaction, TransactionIndex
from odradek.testing.disk import SimulatedDisk
from tests.long_searches import examples

BASE = 1000
LOG_SIZE = 2**31
PATH = PurePosixPath("/index")
SMALL = st.integers(1, 5)
PLACES = st.integers(-3, 60) | st.integers(0, 20_000)


class OffsetIndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Random(0))
        self.model: list[tuple[int, int]] = []
        self.capacity = 0

    def make(self) -> OffsetIndex:
        return OffsetIndex(self.disk, PATH, BASE, bytes_max=self.capacity * 8 + 5)

    @initialize(capacity=st.integers(1, 8), is_large=st.booleans())
    def start(self, capacity: int, is_large: bool) -> None:
        self.capacity = capacity + 3000 if is_large else capacity
        self.room = self.capacity
        self.index = self.make()
        if is_large:
            for i in range(1, 3001):
                self.append_entry(BASE + 5 * i, 3 * i)

    def append_entry(self, offset: int, position: int) -> None:
        self.index.append(offset, position)
        self.model.append((offset, position))

    @precondition(lambda self: len(self.model) < self.room)
    @rule(offset=SMALL, position=SMALL)
    def append(self, offset: int, position: int) -> None:
        last = self.model[-1] if self.model else (BASE - 1, 0)
        self.append_entry(last[0] + offset, last[1] + position)

    @precondition(lambda self: len(self.model) == self.room)
    @rule()
    def append_to_a_full_index(self) -> None:
        with pytest.raises(AssertionError):
            self.index.append(2**30, 2**30)

    @rule(where=PLACES)
    def lookup(self, where: int) -> None:
        before = [entry for entry in self.model if entry[0] <= BASE + where]
        assert self.index.lookup(BASE + where) == (before[-1] if before else (BASE, 0))

    @rule(position=st.integers(0, 9000), count=st.integers(1, 30))
    def upper_bound(self, position: int, count: int) -> None:
        beyond = [entry for entry in self.model if entry[1] >= position + count]
        found = self.index.upper_bound(IndexEntry(BASE, position), count)
        assert found == (beyond[0] if beyond else None)

    @rule(where=PLACES)
    def truncate(self, where: int) -> None:
        self.index.truncate_to(BASE + where)
        self.model = [entry for entry in self.model if entry[0] < BASE + where]

    @rule(entries=st.integers(0, 10), rest=st.integers(0, 7))
    def resize(self, entries: int, rest: int) -> None:
        self.index.resize(entries * 8 + rest)
        self.room = entries
        del self.model[entries:]

    @rule()
    def grow(self) -> None:
        self.index.grow()
        self.room = self.capacity
        del self.model[self.room :]

    @rule()
    def reset(self) -> None:
        self.index.reset()
        self.room = self.capacity
        self.model.clear()

    @rule()
    def unmap(self) -> None:
        self.index.close()

    @rule()
    def stop_cleanly_and_crash(self) -> None:
        self.index.trim()
        self.index.sync()
        self.index.close()
        self.disk.sync_folder(PATH.parent)
        self.disk.crash()
        self.index = self.make()
        self.index.check(LOG_SIZE)
        self.room = len(self.model)

    @rule()
    def stop_uncleanly(self) -> None:
        """Leave preallocated space behind the entries, which the next to open must notice."""
        self.index.reset()
        self.room = self.capacity
        for entry in self.model[: self.room - 1]:
            self.index.append(*entry)
        self.disk.kill()
        self.index = self.make()
        with pytest.raises(CorruptionError):
            self.index.check(LOG_SIZE)
        self.reset()

    @invariant()
    def same(self) -> None:
        assert self.index.entries == len(self.model)
        assert self.index.is_full == (len(self.model) >= self.room)
        assert self.index.last_offset == (self.model[-1][0] if self.model else BASE)
        for slot in {0, len(self.model) // 2, len(self.model) - 1} if self.model else ():
            assert self.index.entry(slot) == self.model[slot]


class TimeIndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Random(0))
        self.model: list[tuple[int, int]] = []

    @initialize(is_large=st.booleans())
    def start(self, is_large: bool) -> None:
        self.room = 2008 if is_large else 8
        self.index = TimeIndex(self.disk, PATH, BASE, bytes_max=self.room * 12)
        for i in range(2000 if is_large else 0):
            self.offer(2 + i % 2, i % 3)

    @precondition(lambda self: len(self.model) < self.room - 1)
    @rule(later=st.integers(0, 4), further=st.integers(0, 4))
    def offer(self, later: int, further: int) -> None:
        timestamp, offset = self.model[-1] if self.model else (-1, BASE)
        self.index.maybe_append(timestamp + later, offset + further)
        if later:
            self.model.append((timestamp + later, offset + further))

    @precondition(lambda self: len(self.model) < self.room)
    @rule()
    def roll(self) -> None:
        timestamp, offset = self.model[-1] if self.model else (-1, BASE)
        self.index.maybe_append(timestamp + 1, offset + 1, even_if_full=True)
        self.model.append((timestamp + 1, offset + 1))
        self.index.trim()
        self.index.check(LOG_SIZE)
        self.index.grow()

    @rule(where=PLACES)
    def lookup(self, where: int) -> None:
        before = [entry for entry in self.model if entry[0] <= where]
        assert self.index.lookup(where) == (before[-1] if before else (-1, BASE))

    @rule(where=PLACES)
    def truncate(self, where: int) -> None:
        self.index.truncate_to(BASE + where)
        self.model = [entry for entry in self.model if entry[1] < BASE + where]

    @invariant()
    def same(self) -> None:
        assert self.index.last_entry == (self.model[-1] if self.model else (-1, BASE))
        assert self.index.entries == len(self.model)
        assert self.index.is_full == (len(self.model) >= self.room - 1)


class TransactionIndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Random(0))
        self.index = TransactionIndex(self.disk, PATH, BASE)
        self.model: list[AbortedTransaction] = []

    @rule(length=st.integers(0, 20), step=SMALL, undecided=st.integers(0, 20))
    def append(self, length: int, step: int, undecided: int) -> None:
        last = self.model[-1] if self.model else AbortedTransaction(0, 0, BASE, 0)
        end = last.last_offset + step
        # The last stable offset never goes back, and never beyond the marker that was written last.
        stable = max(last.last_stable_offset, end + 1 - undecided)
        transaction = AbortedTransaction(step, end - length, end, stable)
        self.index.append(transaction)
        self.model.append(transaction)

    @rule(offset=st.integers(-30, 90), count=st.integers(1, 30))
    def collect(self, offset: int, count: int) -> None:
        start, end = BASE + offset, BASE + offset + count
        found, is_complete = [], False
        for transaction in self.model:
            if transaction.last_offset >= start and transaction.first_offset < end:
                found.append(transaction)
            if transaction.last_stable_offset >= end:
                is_complete = True
                break
        assert self.index.collect(start, end) == (found, is_complete)

    @rule(offset=st.integers(-10, 90))
    def truncate(self, offset: int) -> None:
        self.index.truncate_to(BASE + offset)
        self.model = [t for t in self.model if t.last_offset < BASE + offset]

    @rule()
    def sync_and_crash(self) -> None:
        self.index.sync()
        self.disk.sync_folder(PATH.parent)
        self.disk.crash()
        self.index = TransactionIndex(self.disk, PATH, BASE)
        self.index.check()

    @invariant()
    def same(self) -> None:
        assert self.index.all() == self.model


class LeaderEpochsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Random(0))
        self.epochs = LeaderEpochs(self.disk, PATH)
        self.model: list[tuple[int, int]] = []
        self.stored: list[list[tuple[int, int]]] = [[]]  # what the file may have after a crash
        self.may_be_damaged = False

    @rule(epoch=st.integers(0, 10), start=st.integers(0, 30))
    def assign(self, epoch: int, start: int) -> None:
        self.epochs.assign(epoch, start)
        if self.model and self.model[-1][0] == epoch and self.model[-1][1] <= start:
            return
        self.model = [e for e in self.model if e[0] < epoch and e[1] < start] + [(epoch, start)]
        self.stored = [*self.stored, self.model]  # not synced
        self.may_be_damaged = True

    @rule(offset=st.integers(0, 35))
    def truncate_from_end(self, offset: int) -> None:
        self.epochs.truncate_from_end(offset)
        left = [e for e in self.model if e[1] < offset]
        if left != self.model:
            self.model, self.stored, self.may_be_damaged = left, [left], False

    @rule(offset=st.integers(0, 35))
    def truncate_from_start(self, offset: int) -> None:
        self.epochs.truncate_from_start(offset)
        gone = [e for e in self.model if e[1] <= offset]
        if gone:
            self.model = [(gone[-1][0], offset), *self.model[len(gone) :]]

    @rule(stops=st.booleans())
    def sync(self, stops: bool) -> None:
        self.epochs.sync()
        self.stored, self.may_be_damaged = [self.model], False
        if stops:
            self.crash()

    @rule()
    def clear(self) -> None:
        self.epochs.clear()
        self.model, self.stored, self.may_be_damaged = [], [[]], False

    @rule()
    def crash(self) -> None:
        self.disk.crash()
        self.epochs = LeaderEpochs(self.disk, PATH)
        if self.may_be_damaged and not self._is_readable():
            # Recovery has them from the batches up to the last flush at least.
            self.epochs.replace(EpochEntry(*each) for each in self.stored[0])
        assert self.epochs.entries in self.stored
        self.model = [(e.epoch, e.start_offset) for e in self.epochs.entries]
        self.stored, self.may_be_damaged = [self.model], False

    def _is_readable(self) -> bool:
        try:
            return bool(self.epochs.entries)
        except CorruptionError:
            return False

    @rule(epoch=st.integers(-1, 12), end=st.integers(36, 40))
    def end_offset_for(self, epoch: int, end: int) -> None:
        below = [e for e in self.model if e[0] <= epoch]
        above = [e for e in self.model if e[0] > epoch]
        if epoch == -1 or (not above and (not below or below[-1][0] != epoch)):
            expected = (-1, -1)
        elif not above:
            expected = (epoch, end)
        else:
            expected = (below[-1][0] if below else epoch, above[0][1])
        assert self.epochs.end_offset_for(epoch, end) == expected

    @rule(offset=st.integers(0, 40), epoch=st.integers(0, 12))
    def other_questions(self, offset: int, epoch: int) -> None:
        starts = [e[0] for e in self.model if e[1] <= offset]
        assert self.epochs.epoch_for_offset(offset) == (starts[-1] if starts else None)
        lower = [e[0] for e in self.model if e[0] < epoch]
        assert self.epochs.previous_epoch(epoch) == (lower[-1] if lower else None)

    @invariant()
    def same(self) -> None:
        assert self.epochs.entries == self.model
        self.epochs.check_invariants()


MACHINES = [OffsetIndexMachine, TimeIndexMachine, TransactionIndexMachine, LeaderEpochsMachine]


@pytest.mark.parametrize("machine", MACHINES)
def test_it_does_what_the_list_does(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=15, deadline=None))


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_it_does_what_the_list_does_for_long(machine: type[RuleBasedStateMachine]) -> None:
    long = settings(max_examples=examples(100, exploring=300), stateful_step_count=60)
    run_state_machine_as_test(machine, settings=long)
