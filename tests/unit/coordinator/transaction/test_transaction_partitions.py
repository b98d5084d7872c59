"""AddPartitionsToTxn: adding from producers and from brokers, and verifying."""

import pytest

from odradek.coordinator.transaction import partition_rules
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from tests.unit.coordinator.transaction.transaction_driver import (
    NONE,
    P0,
    P1,
    Q0,
    WALL_MS,
    TransactionDriver,
)

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
S = TransactionState


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_first_partition_begins_a_transaction(state: S, version: int) -> None:
    driver = TransactionDriver()
    who = driver.at(state)
    driver.now_ms = 500
    assert driver.add(who, Q0, version=version) == NONE
    assert driver.metadata.identity == who
    assert driver.state() is S.ONGOING
    assert driver.metadata.partitions == {Q0}
    assert driver.metadata.start_ms == WALL_MS + 500
    assert driver.metadata.client_version == version


def test_more_partitions_join_the_same_transaction() -> None:
    driver = TransactionDriver()
    who = driver.at(S.ONGOING)
    driver.now_ms = 500
    assert driver.add(who, P0, Q0) == NONE
    assert driver.metadata.partitions == {P0, P1, Q0}
    assert driver.metadata.start_ms == WALL_MS
    assert driver.metadata.updated_ms == WALL_MS + 500


def test_what_is_there_already_is_not_written_again() -> None:
    driver = TransactionDriver()
    who = driver.at(S.ONGOING)
    records = len(driver.log)
    assert driver.add(who, P1, P0) == NONE
    assert len(driver.log) == records


@pytest.mark.parametrize("state", list(S)[:6])
def test_adding_and_verifying_by_others(state: S) -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.at(state)
    records = len(driver.log)
    busy = BUSY if state.is_prepared else None
    for who, code in (
        ((producer_id, epoch - 1), FENCED),
        ((producer_id, epoch + 1), FENCED),
        ((producer_id + 1, epoch), MAPPING),
    ):
        assert driver.add(who, P0) == (busy or code)
        assert driver.verify(who, P0) == [code]
    assert driver.add((producer_id, epoch), P0, of="other") == MAPPING
    assert driver.add((producer_id, epoch), P0, of="") == ErrorCode.INVALID_REQUEST
    assert len(driver.log) == records


@pytest.mark.parametrize(
    ("state", "codes"),
    [
        (S.EMPTY, [ABORTABLE, ABORTABLE]),
        (S.ONGOING, [NONE, ABORTABLE]),
        (S.PREPARE_COMMIT, [BUSY, BUSY]),
        (S.PREPARE_ABORT, [BUSY, BUSY]),
        (S.COMPLETE_COMMIT, [ABORTABLE, ABORTABLE]),
        (S.COMPLETE_ABORT, [ABORTABLE, ABORTABLE]),
    ],
)
def test_verifying(state: S, codes: list[ErrorCode]) -> None:
    driver = TransactionDriver()
    who = driver.at(state)
    records = len(driver.log)
    assert driver.verify(who, P0, Q0) == codes
    assert len(driver.log) == records
    assert driver.shard.verify_partitions("other", *who, [P0]) == {P0: MAPPING}
    assert driver.shard.verify_partitions("", *who, [P0]) == {P0: ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(
    ("version", "code"), [(0, ErrorCode.INVALID_REQUEST), (2, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_number_of_partitions_has_a_limit(
    version: int, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_rules, "PARTITIONS_PER_TRANSACTION_MAX", 3)
    driver = TransactionDriver()
    who = driver.at(S.ONGOING)
    assert driver.add(who, P0, P1, Q0, version=version) == NONE
    assert driver.add(who, P0, TopicPartition("one", 9), version=version) == code
    assert driver.metadata.partitions == {P0, P1, Q0}


@pytest.mark.parametrize("version", [4, 5])
def test_transaction_without_partitions_ends_without_markers(version: int) -> None:
    """Kafka lets an empty list begin a transaction."""
    driver = TransactionDriver()
    who = driver.init_ok()
    records, codes = driver.shard.add_partitions("t", *who, [], driver.now, transaction_version=0)
    assert codes == {}
    for record in records:
        driver._append(record)
    assert driver.state() is S.ONGOING
    assert driver.end(who, version=version)[0] == NONE
    assert driver.state() is S.COMPLETE_COMMIT
    assert driver.shard.take_markers() == []
