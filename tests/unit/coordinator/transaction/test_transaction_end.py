"""EndTxn: the tables of both generations of the protocol, repetitions, and the last epoch."""

import pytest

from odradek.coordinator.result import Caller
from odradek.coordinator.transaction.markers import MarkersToWrite
from odradek.coordinator.transaction.metadata import EPOCH_MAX
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse
from tests.unit.coordinator.transaction.transaction_driver import (
    FIRST_PRODUCER_ID,
    NONE,
    P0,
    P1,
    TransactionDriver,
)

ITS = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
S = TransactionState

# state, commit?, epoch relative to the current one → error, state after, epoch answered (relative)
WITH_BUMP = [
    (S.EMPTY, False, -1, FENCED, S.EMPTY, None),
    (S.EMPTY, False, 0, NONE, S.COMPLETE_ABORT, 1),
    (S.EMPTY, True, -1, FENCED, S.EMPTY, None),
    (S.EMPTY, True, 0, ITS, S.EMPTY, None),
    (S.ONGOING, False, -1, FENCED, S.ONGOING, None),
    (S.ONGOING, False, 0, NONE, S.PREPARE_ABORT, 1),
    (S.ONGOING, False, 1, FENCED, S.ONGOING, None),
    (S.ONGOING, True, -1, FENCED, S.ONGOING, None),
    (S.ONGOING, True, 0, NONE, S.PREPARE_COMMIT, 1),
    (S.PREPARE_COMMIT, True, -1, BUSY, S.PREPARE_COMMIT, None),
    (S.PREPARE_COMMIT, True, 0, BUSY, S.PREPARE_COMMIT, None),
    (S.PREPARE_COMMIT, False, -1, BUSY, S.PREPARE_COMMIT, None),
    (S.PREPARE_ABORT, False, -1, BUSY, S.PREPARE_ABORT, None),
    (S.COMPLETE_ABORT, False, -1, NONE, S.COMPLETE_ABORT, 0),
    (S.COMPLETE_ABORT, False, 0, NONE, S.COMPLETE_ABORT, 1),
    (S.COMPLETE_ABORT, True, -1, ITS, S.COMPLETE_ABORT, None),
    (S.COMPLETE_ABORT, True, 0, ITS, S.COMPLETE_ABORT, None),
    (S.COMPLETE_ABORT, False, 1, FENCED, S.COMPLETE_ABORT, None),
    (S.COMPLETE_COMMIT, False, -1, ITS, S.COMPLETE_COMMIT, None),
    (S.COMPLETE_COMMIT, False, 0, NONE, S.COMPLETE_ABORT, 1),
    (S.COMPLETE_COMMIT, True, -1, NONE, S.COMPLETE_COMMIT, 0),
    (S.COMPLETE_COMMIT, True, 0, ITS, S.COMPLETE_COMMIT, None),
]

WITHOUT_BUMP = [
    (S.EMPTY, False, 0, ITS, S.EMPTY),
    (S.EMPTY, True, 0, ITS, S.EMPTY),
    (S.ONGOING, True, 0, NONE, S.PREPARE_COMMIT),
    (S.ONGOING, False, 0, NONE, S.PREPARE_ABORT),
    (S.ONGOING, True, -1, FENCED, S.ONGOING),
    (S.ONGOING, True, 1, FENCED, S.ONGOING),
    (S.PREPARE_COMMIT, True, 0, BUSY, S.PREPARE_COMMIT),
    (S.PREPARE_COMMIT, False, 0, BUSY, S.PREPARE_COMMIT),
    (S.PREPARE_COMMIT, True, -1, FENCED, S.PREPARE_COMMIT),
    (S.PREPARE_ABORT, False, 0, BUSY, S.PREPARE_ABORT),
    (S.COMPLETE_COMMIT, True, 0, NONE, S.COMPLETE_COMMIT),
    (S.COMPLETE_COMMIT, False, 0, ITS, S.COMPLETE_COMMIT),
    (S.COMPLETE_ABORT, False, 0, NONE, S.COMPLETE_ABORT),
    (S.COMPLETE_ABORT, True, 0, ITS, S.COMPLETE_ABORT),
    (S.COMPLETE_ABORT, False, -1, FENCED, S.COMPLETE_ABORT),
]


@pytest.mark.parametrize(("state", "commit", "epoch", "error", "after", "answered"), WITH_BUMP)
def test_end_from_version_5_on(
    state: S, commit: bool, epoch: int, error: ErrorCode, after: S, answered: int | None
) -> None:
    driver = TransactionDriver()
    producer_id, current = driver.at(state)
    told = (-1, -1) if answered is None else (producer_id, current + answered)
    assert driver.end((producer_id, current + epoch), commit=commit) == (error, *told)
    assert driver.state() is after
    if answered:
        assert driver.metadata.successor == told


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(("state", "commit", "epoch", "error", "after"), WITHOUT_BUMP)
def test_end_up_to_version_4(
    state: S, commit: bool, epoch: int, error: ErrorCode, after: S, level: int
) -> None:
    driver = TransactionDriver(level=min(level, 1))
    producer_id, current = driver.at(state)
    driver.settings.transaction_version = level
    who = producer_id, current + epoch
    assert driver.end(who, commit=commit, version=4) == (error, -1, -1)
    assert driver.state() is after
    assert driver.metadata.producer_epoch == current


@pytest.mark.parametrize(("version", "told"), [(0, 47), (1, 47), (2, 90), (4, 90), (5, 90)])
def test_old_clients_hear_of_an_invalid_epoch(version: int, told: int) -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.at(S.ONGOING)
    assert driver.end((producer_id, epoch - 1), version=version)[0] == told


@pytest.mark.parametrize("version", [4, 5])
def test_end_of_what_is_not_known(version: int) -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.at(S.ONGOING)
    assert driver.end((producer_id, epoch), of="other", version=version)[0] == MAPPING
    assert driver.end((producer_id + 7, epoch), version=version)[0] == MAPPING
    assert driver.end((producer_id, epoch), of="", version=version)[0] == ErrorCode.INVALID_REQUEST
    assert driver.state() is S.ONGOING


def test_commit_marks_all_partitions_then_completes() -> None:
    driver = TransactionDriver()
    driver.shard.coordinator_epoch = 7
    who = driver.at(S.ONGOING)
    driver.end(who)
    (markers,) = driver.shard.take_markers()
    offset = len(driver.log) - 1
    assert markers == MarkersToWrite("t", who[0], who[1] + 1, True, 7, (P0, P1), 2, offset)
    driver.wrote(markers, P0)
    assert driver.state() is S.PREPARE_COMMIT
    driver.wrote(markers, P1)
    assert driver.state() is S.COMPLETE_COMMIT
    assert driver.metadata.identity == (who[0], who[1] + 1)


def test_markers_of_older_clients_have_the_epoch_of_their_records() -> None:
    driver = TransactionDriver(level=1)
    who = driver.at(S.PREPARE_ABORT)
    (markers,) = driver.shard.take_markers()
    assert markers[1:4] == (*who, False)
    assert markers.transaction_version == 0


def test_an_end_repeated_in_every_transaction_is_told_the_same() -> None:
    driver = TransactionDriver()
    who = driver.init_ok()
    for number in range(5):
        assert driver.add(who, P0) == NONE
        is_commit = number % 2 == 0
        first = driver.end(who, commit=is_commit)
        assert driver.end(who, commit=is_commit)[0] == BUSY
        driver.write_markers()
        assert driver.end(who, commit=is_commit) == first
        assert driver.end(who, commit=not is_commit)[0] == ITS
        driver.reload()
        assert driver.end(who, commit=is_commit) == first
        who = first[1:]


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    driver = TransactionDriver()
    who = driver.put(EPOCH_MAX - 1)
    driver.add(who, P0)
    new = FIRST_PRODUCER_ID + 1, 0
    assert driver.end(who) == (NONE, *new)
    # The new one may come before the old one's markers are written.
    assert driver.add(new, P1) == BUSY
    assert driver.end(new)[0] == BUSY
    assert driver.end(who)[0] == BUSY
    (markers,) = driver.write_markers()
    assert markers[1:3] == (who[0], EPOCH_MAX)
    assert driver.metadata.identity == new
    assert driver.end(who) == (NONE, *new)
    assert driver.end(who, commit=False)[0] == ITS
    driver.reload()
    assert driver.end(who) == (NONE, *new)
    assert driver.add(new, P1) == NONE
    assert driver.end(who)[0] == MAPPING


def test_without_a_new_producer_id_the_client_is_to_try_again() -> None:
    driver = TransactionDriver()
    who = driver.put(EPOCH_MAX - 1)
    driver.add(who, P0)
    request = EndTxnRequest(
        transactional_id="t", producer_id=who[0], producer_epoch=who[1], committed=True
    )
    result = driver.shard.end(request, Caller("me", 5, "", ""), driver.now)
    assert result.records == ()
    told = EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert result.replies == (("me", told),)


def test_append_that_fails_leaves_everything_as_it_was() -> None:
    driver = TransactionDriver()
    who = driver.at(S.ONGOING)
    driver.is_log_broken = True
    request = EndTxnRequest(
        transactional_id="t", producer_id=who[0], producer_epoch=who[1], committed=True
    )
    result = driver.shard.end(request, Caller("me", 5, "", ""), driver.now)
    assert list(driver.shard.on_append_failed(result.records, driver.now)) == []
    driver.is_log_broken = False
    driver.check()
    assert driver.shard.take_markers() == []
    assert driver.end(who) == (NONE, who[0], who[1] + 1)
