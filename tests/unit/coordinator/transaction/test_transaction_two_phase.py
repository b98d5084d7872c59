"""Two-phase commit (KIP-939): transactions that wait for a decision made elsewhere."""

import pytest

from odradek.coordinator.result import Result
from odradek.coordinator.transaction.metadata import EPOCH_MAX, NO_TIMEOUT_MS, Identity
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ErrorCode
from tests.unit.coordinator.transaction.transaction_driver import (
    FIRST_PRODUCER_ID,
    NONE,
    P0,
    Q0,
    TransactionDriver,
)

FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
S = TransactionState
ID = FIRST_PRODUCER_ID
WEEK_MS = 7 * 24 * 3600 * 1000


def enabled() -> TransactionDriver:
    driver = TransactionDriver()
    driver.settings.transaction_two_phase_commit_enable = True
    return driver


def told(driver: TransactionDriver, *, keep: bool = True) -> tuple[int, int, int, int, int]:
    answer = driver.init(keep=keep, two_phase=True, version=6)
    return (
        answer.error_code,
        answer.producer_id,
        answer.producer_epoch,
        answer.ongoing_txn_producer_id,
        answer.ongoing_txn_producer_epoch,
    )


def prepared(driver: TransactionDriver, epoch: int = 0) -> tuple[int, int]:
    who = driver.put(epoch) if epoch else driver.init_ok(two_phase=True)
    assert driver.add(who, P0) == NONE
    return who


def test_it_never_times_out() -> None:
    driver = enabled()
    response = driver.init(two_phase=True, timeout_ms=1)
    assert driver.metadata.timeout_ms == NO_TIMEOUT_MS
    driver.add((response.producer_id, 0), P0)
    driver.pass_time(2 * WEEK_MS)
    assert driver.state() is S.ONGOING


def test_timeout_is_not_looked_at() -> None:
    assert enabled().init(two_phase=True, timeout_ms=-5).error_code == NONE


@pytest.mark.parametrize("level", [0, 1])
def test_keeping_needs_transaction_version_2(level: int) -> None:
    driver = enabled()
    driver.settings.transaction_version = level
    assert driver.init(keep=True).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("is_reloaded", [True, False])
def test_new_incarnation_ends_what_the_old_one_prepared(is_commit: bool, is_reloaded: bool) -> None:
    driver = enabled()
    old = prepared(driver)
    assert told(driver) == (NONE, old[0], old[1] + 1, *old)
    assert driver.state() is S.ONGOING
    if is_reloaded:
        driver.reload()
    new = old[0], old[1] + 1
    assert driver.end(old, commit=is_commit)[0] == FENCED
    following = old[0], old[1] + 2
    assert driver.end(new, commit=is_commit) == (NONE, *following)
    (markers,) = driver.write_markers()
    # Above the epoch of its records, as version 2 wants it.
    assert markers[1:4] == (old[0], old[1] + 1, is_commit)
    assert driver.metadata.identity == following
    assert driver.end(new, commit=is_commit) == (NONE, *following)
    assert driver.end(old, commit=is_commit)[0] == FENCED
    assert driver.add(following, P0) == NONE


def test_every_incarnation_fences_the_one_before() -> None:
    driver = enabled()
    old = prepared(driver)
    for number in range(1, 4):
        assert told(driver) == (NONE, old[0], old[1] + number, *old)
    assert driver.end((old[0], old[1] + 2))[0] == FENCED
    assert driver.end((old[0], old[1] + 3)) == (NONE, old[0], old[1] + 4)


def test_prepared_transaction_can_only_be_ended() -> None:
    driver = enabled()
    old = prepared(driver)
    driver.init(keep=True)
    new = old[0], old[1] + 1
    assert driver.add(new, Q0) == ErrorCode.INVALID_TXN_STATE
    assert driver.add(old, Q0) == FENCED
    assert driver.verify(old, P0) == [FENCED]
    assert driver.metadata.partitions == {P0}


def test_init_without_keeping_aborts_it_and_fences_all() -> None:
    driver = enabled()
    old = prepared(driver)
    driver.init(keep=True)
    kept = old[0], old[1] + 1
    assert told(driver, keep=False) == (BUSY, -1, -1, -1, -1)
    (markers,) = driver.write_markers()
    assert markers[1:4] == (old[0], old[1] + 1, False)
    assert driver.metadata.identity == (old[0], old[1] + 2)
    assert told(driver, keep=False) == (NONE, old[0], old[1] + 3, -1, -1)
    for who in (old, kept):
        assert driver.end(who, commit=False)[0] == FENCED


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_keeping_where_nothing_is_open_is_a_normal_start(state: S) -> None:
    driver = enabled()
    producer_id, epoch = driver.at(state)
    assert told(driver) == (NONE, producer_id, epoch + 1, -1, -1)
    assert driver.state() is S.EMPTY


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_keeping_what_is_decided_waits(state: S) -> None:
    driver = enabled()
    driver.at(state)
    assert told(driver) == (BUSY, -1, -1, -1, -1)


def test_keeping_does_not_give_a_prepared_transaction_a_timeout() -> None:
    driver = enabled()
    prepared(driver)
    driver.init(keep=True, two_phase=False, timeout_ms=1_000)
    assert driver.metadata.timeout_ms == NO_TIMEOUT_MS


def test_epochs_of_incarnations_run_out() -> None:
    driver = enabled()
    old = prepared(driver, EPOCH_MAX - 1)
    assert told(driver) == (NONE, ID + 1, 0, *old)
    assert told(driver) == (NONE, ID + 1, 1, *old)
    assert driver.end((ID + 1, 0))[0] == FENCED
    assert driver.end(old)[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.end((ID + 1, 1)) == (NONE, ID + 1, 2)
    (markers,) = driver.write_markers()
    assert markers[1:3] == (old[0], EPOCH_MAX)
    assert driver.metadata.identity == (ID + 1, 2)
    assert driver.end((ID + 1, 1)) == (NONE, ID + 1, 2)


def test_epochs_of_incarnations_run_out_at_the_end() -> None:
    driver = enabled()
    old = prepared(driver, EPOCH_MAX - 2)
    assert told(driver) == (NONE, ID, EPOCH_MAX - 1, *old)
    assert driver.end((ID, EPOCH_MAX - 1)) == (NONE, ID + 1, 0)
    driver.write_markers()
    assert driver.metadata.identity == (ID + 1, 0)
    assert driver.end((ID, EPOCH_MAX - 1)) == (NONE, ID + 1, 0)
    assert driver.end(old)[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_epochs_of_incarnations_run_out_at_the_end_of_another_producer_id() -> None:
    driver = enabled()
    prepared(driver)
    last = Identity(ID + 7, EPOCH_MAX - 1)
    taken_over = driver.metadata.taken_over(last, is_two_phase=True, now_ms=driver.now.wall_ms)
    driver.apply(Result(driver.shard._write(taken_over)))
    assert driver.end(last) == (NONE, ID + 1, 0)
    driver.write_markers()
    assert driver.end(last) == (NONE, ID + 1, 0)
    driver.reload()
    assert driver.end(last) == (NONE, ID + 1, 0)


def test_ended_by_an_older_client_after_a_downgrade() -> None:
    driver = enabled()
    old = prepared(driver)
    driver.init(keep=True)
    driver.settings.transaction_version = 1
    new = old[0], old[1] + 1
    assert driver.end(new, version=4) == (NONE, -1, -1)
    driver.write_markers()
    assert driver.metadata.identity == new
