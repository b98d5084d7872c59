"""Time: transactions that take too long, transactional ids that nobody uses."""

from random import Random

import pytest

from odradek.coordinator.transaction import upkeep
from odradek.coordinator.transaction.metadata import EPOCH_MAX
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ErrorCode
from tests.unit.coordinator.transaction.transaction_driver import (
    NONE,
    P0,
    P1,
    WALL_MS,
    TransactionDriver,
)

FENCED = ErrorCode.PRODUCER_FENCED
S = TransactionState
SCAN_MS = 10_000
WEEK_MS = 7 * 24 * 3600 * 1000
HOUR_MS = 3_600_000


@pytest.mark.parametrize("level", [0, 1, 2])
def test_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(level: int) -> None:
    driver = TransactionDriver(level)
    who = driver.at(S.ONGOING)
    driver.pass_time(60_000)
    assert driver.state() is S.ONGOING
    driver.pass_time(SCAN_MS)
    assert driver.state() is S.PREPARE_ABORT
    (markers,) = driver.write_markers()
    spoken = 2 if level == 2 else 0
    assert markers[1:] == (who[0], who[1] + 1, False, 0, (P0, P1), spoken, len(driver.log) - 2)
    assert driver.add(who, P0) == FENCED
    assert driver.end(who, commit=True, version=4)[0] == FENCED


def test_producer_may_find_out_by_its_own_abort() -> None:
    """From version 2 on: its abort is answered as a repetition, with the epoch to go on with."""
    driver = TransactionDriver()
    who = driver.at(S.ONGOING)
    driver.pass_time(60_000 + SCAN_MS)
    driver.write_markers()
    assert driver.end(who, commit=True)[0] == ErrorCode.INVALID_TXN_STATE
    assert driver.end(who, commit=False) == (NONE, who[0], who[1] + 1)


def test_the_last_millisecond_is_still_within_the_timeout() -> None:
    driver = TransactionDriver()
    driver.at(S.ONGOING)
    driver.now_ms = 60_000
    assert list(driver.shard.tick(driver.now)) == []
    driver.now_ms += SCAN_MS
    assert len(list(driver.shard.tick(driver.now))) == 1


def test_what_began_anew_between_two_slices_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "ABORTS_PER_TURN_MAX", 1)
    driver = TransactionDriver()
    for name in ("a", "b"):
        response = driver.init(name)
        driver.add((response.producer_id, 0), P0, of=name)
    driver.now_ms = 80_000
    (result,) = driver.shard.tick(driver.now)
    driver.apply(result)
    (left,) = (each for each in driver.shard.transactions.values() if each.state is S.ONGOING)
    _, *following = driver.end(left.identity, of=left.transactional_id)
    driver.write_markers()
    driver.add((following[0], following[1]), P0, of=left.transactional_id)
    assert list(driver.shard.tick(driver.now)) == []


def test_adding_partitions_gives_no_more_time() -> None:
    driver = TransactionDriver()
    who = driver.init_ok()
    driver.add(who, P0)
    driver.pass_time(59_000)
    driver.add(who, P1)
    driver.pass_time(1_001 + SCAN_MS)
    assert driver.state() is S.PREPARE_ABORT


def test_time_goes_on_while_there_is_no_coordinator() -> None:
    driver = TransactionDriver()
    driver.at(S.ONGOING)
    driver.now_ms += 60_001
    driver.reload()
    assert driver.state() is S.ONGOING
    driver.pass_time(SCAN_MS)
    assert driver.state() is S.PREPARE_ABORT


def test_what_rests_or_is_decided_does_not_time_out() -> None:
    for state in (S.EMPTY, S.PREPARE_COMMIT, S.COMPLETE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_ABORT):
        driver = TransactionDriver()
        driver.at(state)
        driver.pass_time(10 * 60_000)
        assert driver.state() is state


def test_abort_in_the_last_epoch_waits_for_a_producer_id() -> None:
    driver = TransactionDriver()
    who = driver.put(EPOCH_MAX - 1)
    driver.add(who, P0)
    driver.pass_time(60_000 + SCAN_MS)
    assert driver.state() is S.ONGOING
    before = driver.shard.wants_producer_id
    driver.shard.give_producer_id(driver.new_producer_id())
    assert (before, driver.shard.wants_producer_id) == (True, False)
    driver.pass_time(SCAN_MS)
    (markers,) = driver.write_markers()
    assert markers[1:4] == (who[0], EPOCH_MAX, False)
    assert driver.metadata.identity == (who[0] + 1, 0)
    assert driver.end(who, commit=False) == (NONE, who[0] + 1, 0)


def test_the_spare_producer_id_is_used_once() -> None:
    driver = TransactionDriver()
    for name in ("a", "b"):
        driver.init(name)
        jumped = driver.shard.transactions[name]
        identity = type(jumped.identity)(jumped.producer_id, EPOCH_MAX - 1)
        for record in driver.shard._write(jumped.initialised(identity, -1, 60_000, WALL_MS)):
            driver._append(record)
        driver.add(identity, P0, of=name)
    driver.shard.give_producer_id(7)
    driver.pass_time(60_000 + SCAN_MS)
    states = sorted(each.state for each in driver.shard.transactions.values())
    assert states == [S.ONGOING, S.PREPARE_ABORT]
    assert driver.shard.wants_producer_id


def test_aborts_come_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ABORTS_PER_TURN_MAX", 2)
    driver = TransactionDriver()
    for number in range(5):
        response = driver.init(str(number))
        driver.add((response.producer_id, 0), P0, of=str(number))
    driver.now_ms = 80_000
    aborted = []
    for _ in range(3):
        assert (driver.shard.next_deadline_ms() or 0) <= driver.now_ms
        before = len(driver.log)
        for result in driver.shard.tick(driver.now):
            driver.apply(result)
        aborted.append(len(driver.log) - before)
    assert aborted == [2, 2, 1]
    assert not any(each.expires_ms for each in driver.shard.transactions.values())


def test_abort_that_the_log_refused_comes_again() -> None:
    driver = TransactionDriver()
    driver.at(S.ONGOING)
    driver.is_log_broken = True
    driver.pass_time(60_000 + SCAN_MS)
    driver.is_log_broken = False
    driver.check()
    assert driver.state() is S.ONGOING
    driver.pass_time(SCAN_MS)
    assert driver.state() is S.PREPARE_ABORT


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_id_that_nobody_uses_is_forgotten(state: S) -> None:
    driver = TransactionDriver()
    who = driver.at(state)
    driver.pass_time(WEEK_MS - 1)
    assert driver.shard.transactions
    driver.pass_time(HOUR_MS + 1)
    assert not driver.shard.transactions
    assert driver.log[-1][1] is None
    assert driver.add(who, P0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.shard.next_deadline_ms() is None


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_id_with_markers_to_write_is_kept(state: S) -> None:
    driver = TransactionDriver()
    driver.at(state)
    driver.pass_time(2 * WEEK_MS)
    assert driver.state() is state


def test_forgetting_comes_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "IDS_PER_TURN_MAX", 2)
    driver = TransactionDriver()
    for number in range(5):
        driver.init(str(number))
    driver.now_ms = WEEK_MS
    forgotten = []
    for _ in range(3):
        assert (driver.shard.next_deadline_ms() or 0) <= driver.now_ms
        for result in driver.shard.tick(driver.now):
            forgotten.append(len(result.records))
            driver.apply(result)
    assert forgotten == [2, 2, 1]


def test_shards_loaded_at_once_do_not_look_around_at_once() -> None:
    due = set()
    for seed in range(20):
        driver = TransactionDriver()
        driver.at(S.ONGOING)
        driver.shard._upkeep._random = Random(seed)
        list(driver.shard.on_loaded(driver.now))
        due_ms = driver.shard.next_deadline_ms()
        assert due_ms is not None
        assert 0 < due_ms <= SCAN_MS
        due.add(due_ms)
    assert len(due) > 10
