"""Which batches are duplicates, which are refused, and what is remembered: a test per rule."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from random import Random
from typing import Final

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.records.batch import CONTROL_FLAG, NO_SEQUENCE, TRANSACTIONAL_FLAG, BatchHeader
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.producer_state import (
    BATCHES_MAX,
    LATE_TRANSACTION_BUFFER_MS,
    AppendOrigin,
    BatchMetadata,
    CompletedTransaction,
    ProducerStates,
)
from odradek.testing.disk import SimulatedDisk

FOLDER: Final = PurePosixPath("/log")
SEQUENCE_MAX: Final = 2**31 - 1
EXPIRATION_MS: Final = 1000
TIMEOUT_MS: Final = 500
CHECKED: Final = [origin for origin in AppendOrigin if origin is not AppendOrigin.REPLICATION]
LENIENT: Final = [origin for origin in AppendOrigin if origin is not AppendOrigin.CLIENT]

CLIENT: Final = AppendOrigin.CLIENT
COORDINATOR: Final = AppendOrigin.COORDINATOR
REPLICATION: Final = AppendOrigin.REPLICATION
ABORT: Final = EndTransactionMarker(ControlRecordType.ABORT, 0)
COMMIT: Final = EndTransactionMarker(ControlRecordType.COMMIT, 0)


@pytest.fixture
def states() -> ProducerStates:
    disk = SimulatedDisk(Random(0))
    disk.make_folder(FOLDER)
    return ProducerStates(
        disk,
        FOLDER,
        producer_id_expiration_ms=EXPIRATION_MS,
        transaction_timeout_ms_max=TIMEOUT_MS,
    )


def batch(
    offset: int,
    sequence: int,
    *,
    producer_id: int = 7,
    epoch: int = 3,
    count: int = 1,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = 100,
) -> BatchHeader:
    attributes = TRANSACTIONAL_FLAG * transactional | CONTROL_FLAG * control
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        records_count=count,
        position=0,
    )


def marker(
    offset: int, *, producer_id: int = 7, epoch: int = 3, timestamp: int = 100
) -> BatchHeader:
    return batch(
        offset,
        NO_SEQUENCE,
        producer_id=producer_id,
        epoch=epoch,
        transactional=True,
        control=True,
        timestamp=timestamp,
    )


def add(
    states: ProducerStates, header: BatchHeader, ends: EndTransactionMarker | None = None
) -> None:
    completed = states.apply(header, header.max_timestamp, ends)
    if completed is not None:
        states.complete(completed)
    states.check_invariants()


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(ApiError) as caught:
        yield
    assert caught.value.code == code


@pytest.mark.seed_row("0.6")
def test_a_batch_that_is_sent_again_is_answered_with_its_first_offsets(
    states: ProducerStates,
) -> None:
    add(states, batch(10, 0, count=4, timestamp=55))
    again = batch(99, 0, count=4, timestamp=55)
    assert states.find_duplicate(again) == BatchMetadata(0, 3, 10, 13, 55)


def test_the_last_five_batches_are_remembered(states: ProducerStates) -> None:
    for number in range(7):
        add(states, batch(number, number))
    found = [states.find_duplicate(batch(99, number)) for number in range(7)]
    assert [known and known.first_offset for known in found] == [None, None, 2, 3, 4, 5, 6]
    assert len(states.active_producers[7].batches) == BATCHES_MAX
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        states.check(batch(99, 1), CLIENT)


@pytest.mark.parametrize(
    "other",
    [
        batch(99, 0, count=3),
        batch(99, 0, count=5),
        batch(99, 1, count=4),
        batch(99, 0, count=4, epoch=2),
        batch(99, 0, count=4, epoch=4),
        batch(99, 0, count=4, producer_id=8),
    ],
    ids=["shorter", "longer", "later", "older epoch", "newer epoch", "other producer"],
)
def test_only_the_same_batch_is_a_duplicate(states: ProducerStates, other: BatchHeader) -> None:
    add(states, batch(10, 0, count=4))
    assert states.find_duplicate(other) is None


def test_batches_without_sequence_are_never_duplicates(states: ProducerStates) -> None:
    """A group coordinator writes offset commits of transactions, one like the other."""
    add(states, batch(10, NO_SEQUENCE, transactional=True))
    assert states.find_duplicate(batch(11, NO_SEQUENCE, transactional=True)) is None
    states.check(batch(11, NO_SEQUENCE, transactional=True), COORDINATOR)
    assert states.active_producers[7].last_sequence == NO_SEQUENCE


def test_a_duplicate_that_wraps_around_is_found(states: ProducerStates) -> None:
    add(states, batch(2000, SEQUENCE_MAX - 10, count=21))
    duplicate = states.find_duplicate(batch(3000, SEQUENCE_MAX - 10, count=21))
    assert duplicate == BatchMetadata(SEQUENCE_MAX - 10, 9, 2000, 2020, 100)
    assert states.active_producers[7].last_sequence == 9


def test_of_an_unknown_producer_any_sequence_is_accepted(states: ProducerStates) -> None:
    states.check(batch(0, 0), CLIENT)
    states.check(batch(0, 17), CLIENT)
    states.check(batch(0, 17, transactional=True), CLIENT, transaction_version=1)


def test_with_version_2_an_unknown_producer_starts_its_transaction_at_0(
    states: ProducerStates,
) -> None:
    states.check(batch(0, 0, transactional=True), CLIENT, transaction_version=2)
    states.check(batch(0, 5), CLIENT, transaction_version=2)
    states.check(batch(0, 5, transactional=True), COORDINATOR, transaction_version=2)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        states.check(batch(0, 5, transactional=True), CLIENT, transaction_version=2)


@pytest.mark.parametrize("origin", CHECKED)
def test_an_older_epoch_is_refused(states: ProducerStates, origin: AppendOrigin) -> None:
    add(states, batch(0, 0))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        states.check(batch(1, 1, epoch=2), origin)


@pytest.mark.parametrize("sequence", [1, 3, 17, NO_SEQUENCE])
def test_a_newer_epoch_starts_at_0(states: ProducerStates, sequence: int) -> None:
    add(states, batch(0, 0, count=3))
    states.check(batch(3, 0, epoch=4), CLIENT)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        states.check(batch(3, sequence, epoch=4), CLIENT)


@pytest.mark.seed_row("0.6")
@pytest.mark.parametrize("sequence", [0, 2, 4, 17, NO_SEQUENCE])
def test_the_next_sequence_is_the_only_one_accepted(states: ProducerStates, sequence: int) -> None:
    add(states, batch(0, 0, count=3))
    states.check(batch(3, 3), CLIENT)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        states.check(batch(3, sequence), CLIENT)


def test_after_the_largest_sequence_comes_0(states: ProducerStates) -> None:
    add(states, batch(0, SEQUENCE_MAX))
    states.check(batch(1, 0), CLIENT)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        states.check(batch(1, 1), CLIENT)


@pytest.mark.parametrize("origin", LENIENT)
def test_only_clients_have_their_sequences_checked(
    states: ProducerStates, origin: AppendOrigin
) -> None:
    add(states, batch(0, 0))
    states.check(batch(1, 17), origin)
    states.check(batch(1, 17, epoch=4), origin)


@pytest.mark.parametrize("origin", CHECKED)
def test_nothing_is_written_beside_an_open_transaction(
    states: ProducerStates, origin: AppendOrigin
) -> None:
    add(states, batch(0, 0, transactional=True))
    with refused(ErrorCode.INVALID_TXN_STATE):
        states.check(batch(1, 1), origin)
    with refused(ErrorCode.INVALID_TXN_STATE):
        states.check(batch(1, 0, epoch=4), origin)
    states.check(batch(1, 1, transactional=True), origin)
    states.check(batch(1, 1, producer_id=8), origin)


def test_epoch_is_looked_at_before_sequence_and_sequence_before_transaction(
    states: ProducerStates,
) -> None:
    add(states, batch(0, 0, transactional=True))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        states.check(batch(1, 17, epoch=2), CLIENT)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        states.check(batch(1, 17), CLIENT)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_with_an_older_epoch_is_refused(states: ProducerStates, version: int) -> None:
    add(states, batch(0, 0, transactional=True))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        states.check(marker(1, epoch=2), COORDINATOR, COMMIT, transaction_version=version)
    states.check(marker(1, epoch=4), COORDINATOR, COMMIT, transaction_version=version)


def test_before_version_2_a_marker_has_the_epoch_of_its_transaction(
    states: ProducerStates,
) -> None:
    add(states, batch(0, 0, transactional=True))
    states.check(marker(1), COORDINATOR, COMMIT, transaction_version=1)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        states.check(marker(1), COORDINATOR, COMMIT, transaction_version=2)


def test_a_marker_of_version_2_may_come_twice(states: ProducerStates) -> None:
    """The coordinator lost the answer (KAFKA-19999). Once the next transaction runs it is late."""
    add(states, batch(0, 0, transactional=True))
    add(states, marker(1, epoch=4), COMMIT)
    states.check(marker(2, epoch=4), COORDINATOR, COMMIT, transaction_version=2)
    add(states, batch(2, 0, epoch=4, transactional=True))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        states.check(marker(3, epoch=4), COORDINATOR, COMMIT, transaction_version=2)


def test_the_largest_epoch_cannot_be_raised(states: ProducerStates) -> None:
    add(states, batch(0, 0, epoch=32767, transactional=True))
    states.check(marker(1, epoch=32767), COORDINATOR, ABORT, transaction_version=2)


def test_a_marker_of_an_older_coordinator_is_refused(states: ProducerStates) -> None:
    add(states, marker(0), EndTransactionMarker(ControlRecordType.COMMIT, 5))
    for epoch in (5, 6):
        same = EndTransactionMarker(ControlRecordType.ABORT, epoch)
        states.check(marker(1), COORDINATOR, same, transaction_version=0)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        zombie = EndTransactionMarker(ControlRecordType.COMMIT, 4)
        states.check(marker(1), COORDINATOR, zombie, transaction_version=0)


def test_a_marker_needs_to_say_its_version(states: ProducerStates) -> None:
    with pytest.raises(AssertionError):
        states.check(marker(0), COORDINATOR, COMMIT)


def test_replicas_accept_what_their_leader_accepted(states: ProducerStates) -> None:
    add(states, batch(0, 0, transactional=True))
    add(states, marker(1), EndTransactionMarker(ControlRecordType.COMMIT, 5))
    for header in (batch(2, 17), batch(2, 17, epoch=2), batch(2, 0, epoch=9)):
        states.check(header, REPLICATION)
    states.check(marker(2, epoch=1), REPLICATION, COMMIT)
    add(states, batch(2, 17, epoch=2))
    assert states.active_producers[7].producer_epoch == 2
    assert states.active_producers[7].last_sequence == 17


def test_checking_changes_nothing(states: ProducerStates) -> None:
    states.check(batch(0, 0, transactional=True), CLIENT)
    states.check(marker(0), COORDINATOR, COMMIT, transaction_version=0)
    assert states.is_empty
    assert states.map_end_offset == 0


def test_a_newer_epoch_forgets_the_batches_of_the_older(states: ProducerStates) -> None:
    add(states, batch(0, 0))
    add(states, batch(1, 0, epoch=4, count=2))
    assert states.active_producers[7].batches == [BatchMetadata(0, 1, 1, 2, 100)]
    assert states.find_duplicate(batch(9, 0)) is None


def test_a_marker_with_the_same_epoch_keeps_the_batches(states: ProducerStates) -> None:
    add(states, batch(0, 0, transactional=True))
    add(states, marker(1, timestamp=200), COMMIT)
    state = states.active_producers[7]
    assert (state.last_sequence, state.last_data_offset, state.last_timestamp) == (0, 0, 200)
    assert states.find_duplicate(batch(9, 0)) is not None
    states.check(batch(2, 1), CLIENT)


def test_a_marker_with_a_newer_epoch_resets_the_sequence(states: ProducerStates) -> None:
    add(states, batch(0, 0, transactional=True))
    add(states, marker(1, epoch=4), ABORT)
    state = states.active_producers[7]
    assert (state.producer_epoch, state.last_sequence) == (4, NO_SEQUENCE)
    assert state.last_data_offset is None
    states.check(batch(2, 0, epoch=4), CLIENT)
    for sequence, epoch in ((1, 4), (2, 5)):
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            states.check(batch(2, sequence, epoch=epoch), CLIENT)


def test_a_marker_alone_is_enough_to_fence(states: ProducerStates) -> None:
    add(states, marker(27), COMMIT)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        states.check(batch(28, 0, epoch=2), CLIENT)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        states.check(batch(28, 17), CLIENT)
    states.check(batch(28, 0), CLIENT)


def test_a_marker_that_compaction_emptied_says_nothing(states: ProducerStates) -> None:
    emptied = marker(4)._replace(records_count=0, last_offset_delta=2)
    states.check(emptied, CLIENT)
    assert states.apply(emptied, 0) is None
    assert states.is_empty
    assert states.map_end_offset == 7


def test_a_batch_is_applied_once(states: ProducerStates) -> None:
    add(states, batch(0, 0))
    with pytest.raises(AssertionError):
        states.apply(batch(0, 0), 0)


def test_an_idle_producer_expires(states: ProducerStates) -> None:
    add(states, batch(0, 0, timestamp=100))
    add(states, batch(1, 0, producer_id=8, timestamp=101))
    assert states.remove_expired(100 + EXPIRATION_MS - 1) == 0
    assert states.remove_expired(100 + EXPIRATION_MS) == 1
    assert list(states.active_producers) == [8]
    states.check(batch(2, 17), CLIENT)


def test_a_producer_of_old_records_is_not_idle(states: ProducerStates) -> None:
    states.apply(batch(0, 0, timestamp=100), now_ms=50_000)
    assert states.active_producers[7].last_timestamp == 100
    assert states.remove_expired(50_000 + EXPIRATION_MS - 1) == 0
    assert states.remove_expired(50_000 + EXPIRATION_MS) == 1


def test_a_producer_with_an_open_transaction_does_not_expire(states: ProducerStates) -> None:
    add(states, batch(0, 0, transactional=True))
    assert states.remove_expired(10**12) == 0
    add(states, marker(1), ABORT)
    assert states.remove_expired(10**12) == 1


def test_a_transaction_goes_from_its_first_batch_to_its_marker(states: ProducerStates) -> None:
    add(states, batch(5, 0))
    add(states, batch(16, 1, count=5, transactional=True))
    add(states, batch(26, 6, count=5, transactional=True))
    assert states.active_producers[7].current_txn_first_offset == 16
    assert states.apply(marker(40), 0, COMMIT) == CompletedTransaction(7, 16, 40, False)
    assert states.active_producers[7].current_txn_first_offset is None


def test_an_empty_transaction_is_of_no_interest(states: ProducerStates) -> None:
    assert states.apply(marker(0), 0, COMMIT) is None
    assert states.apply(marker(1), 0, ABORT) is None
    assert states.first_unstable_offset is None


def test_what_was_never_open_cannot_be_completed(states: ProducerStates) -> None:
    with pytest.raises(AssertionError):
        states.complete(CompletedTransaction(7, 16, 40, False))


def edges(states: ProducerStates) -> tuple[int | None, int | None]:
    return states.first_undecided_offset, states.first_unstable_offset


def test_unstable_until_the_marker_is_replicated(states: ProducerStates) -> None:
    assert edges(states) == (None, None)
    add(states, batch(99, 0, transactional=True))
    add(states, batch(105, 0, producer_id=8, transactional=True))
    assert edges(states) == (99, 99)

    add(states, marker(109), COMMIT)
    assert edges(states) == (105, 99)
    states.on_high_watermark_updated(109)  # exclusive: the marker is not replicated
    assert edges(states) == (105, 99)
    states.on_high_watermark_updated(110)
    assert edges(states) == (105, 105)

    add(states, marker(112, producer_id=8), ABORT)
    assert edges(states) == (None, 105)
    states.on_high_watermark_updated(113)
    assert edges(states) == (None, None)


def test_the_last_stable_offset_is_where_the_next_transaction_began(
    states: ProducerStates,
) -> None:
    for producer_id, offset in ((1, 10), (2, 20), (3, 30)):
        add(states, batch(offset, 0, producer_id=producer_id, transactional=True))
    for offset, producer_id, stable in ((40, 3, 10), (41, 1, 20), (42, 2, 43)):
        completed = states.apply(marker(offset, producer_id=producer_id), 0, ABORT)
        assert completed is not None
        assert completed.is_aborted
        assert states.last_stable_offset(completed) == stable
        states.complete(completed)
    assert states.first_unstable_offset == 10
    states.on_high_watermark_updated(42)
    assert states.first_unstable_offset == 20


def test_transactions_that_never_end_are_counted(states: ProducerStates) -> None:
    add(states, batch(0, 0, transactional=True, timestamp=1000))
    add(states, batch(1, 0, producer_id=8, transactional=True, timestamp=1500))
    limit_ms = TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS
    assert states.late_transactions(1000 + limit_ms) == 0
    assert states.late_transactions(1001 + limit_ms) == 1
    assert states.late_transactions(1501 + limit_ms) == 2
    add(states, marker(2), COMMIT)
    assert states.late_transactions(1501 + limit_ms) == 1
    states.truncate_fully_and_start_at(0)
    assert states.late_transactions(1501 + limit_ms) == 0


def test_the_log_start_takes_replicated_transactions_along(states: ProducerStates) -> None:
    add(states, batch(0, 0, transactional=True))
    add(states, marker(1), COMMIT)
    states.on_log_start_offset_incremented(1)
    assert edges(states) == (None, 0)
    states.on_log_start_offset_incremented(2)
    assert edges(states) == (None, None)
    assert list(states.active_producers) == [7]  # retention does not make a producer forgotten
    states.on_log_start_offset_incremented(9)
    assert states.map_end_offset == 9
