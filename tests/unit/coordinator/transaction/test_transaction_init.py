"""InitProducerId: new ids, next epochs, repetitions, fencing, and the last epoch."""

import pytest

from odradek.coordinator.result import Caller, Reply, Result
from odradek.coordinator.transaction import shard as shard_module
from odradek.coordinator.transaction.metadata import EPOCH_MAX
from odradek.coordinator.transaction.shard import TRANSACTIONAL_ID_BYTES_MAX
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.unit.coordinator.transaction.transaction_driver import (
    FIRST_PRODUCER_ID,
    NONE,
    P0,
    P1,
    TransactionDriver,
)

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
S = TransactionState
ID = FIRST_PRODUCER_ID


def told(driver: TransactionDriver, had: tuple[int, int] = (-1, -1)) -> tuple[int, int, int]:
    response = driver.init(had=had)
    return response.error_code, response.producer_id, response.producer_epoch


@pytest.mark.parametrize("level", [0, 1, 2])
def test_each_incarnation_has_the_next_epoch(level: int) -> None:
    driver = TransactionDriver(level)
    assert [told(driver) for _ in range(3)] == [(NONE, ID, 0), (NONE, ID, 1), (NONE, ID, 2)]
    assert driver.state() is S.EMPTY


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1), 42),
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 42),
        (InitProducerIdRequest(transactional_id="é" * 16_384, transaction_timeout_ms=1), 42),
        (InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=0), 50),
        (InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=-1), 50),
        (InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=900_001), 50),
        (
            InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1, producer_id=3),
            42,
        ),
        (
            InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1, producer_epoch=3),
            42,
        ),
        (
            InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1, enable2_pc=True),
            53,
        ),
        (
            InitProducerIdRequest(
                transactional_id="t", transaction_timeout_ms=1, keep_prepared_txn=True
            ),
            35,
        ),
    ],
)
def test_refusals(request_: InitProducerIdRequest, code: int) -> None:
    driver = TransactionDriver()
    assert not driver.shard.needs_producer_id(request_)
    result = driver.shard.init_producer_id(request_, Caller("me", 6, "", ""), driver.now, 5)
    response = InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    assert result == Result(replies=(Reply("me", response),))


def test_longest_id_and_longest_timeout_are_accepted() -> None:
    driver = TransactionDriver()
    longest = "é" * 16_383 + "x"
    assert len(longest.encode()) == TRANSACTIONAL_ID_BYTES_MAX
    assert driver.init(longest, timeout_ms=900_000).error_code == NONE
    assert driver.init("t", timeout_ms=1).error_code == NONE


def test_number_of_ids_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "TRANSACTIONAL_IDS_MAX", 2)
    driver = TransactionDriver()
    codes = [driver.init(name).error_code for name in ("a", "b", "c", "a")]
    assert codes == [NONE, NONE, ErrorCode.POLICY_VIOLATION, NONE]


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_producer_that_goes_on_gets_the_next_epoch_once(state: S) -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.at(state)
    assert told(driver, (producer_id, epoch)) == (NONE, producer_id, epoch + 1)
    # The answer was lost: the same request again, as often as it takes.
    for _ in range(2):
        assert told(driver, (producer_id, epoch)) == (NONE, producer_id, epoch + 1)
    assert told(driver, (producer_id, epoch + 2)) == (FENCED, -1, -1)
    assert told(driver, (producer_id + 1, epoch + 1)) == (FENCED, -1, -1)
    assert told(driver, (producer_id, epoch + 1)) == (NONE, producer_id, epoch + 2)


def test_new_incarnation_fences_the_one_that_goes_on() -> None:
    driver = TransactionDriver()
    old = driver.init_ok()
    assert told(driver) == (NONE, ID, 1)
    assert told(driver, old) == (FENCED, -1, -1)
    assert driver.add(old, P0) == FENCED
    assert driver.end(old, commit=False)[0] == FENCED


def test_repetition_is_not_recognised_by_the_next_coordinator() -> None:
    """The last epoch is not on disk, as in Kafka: better fenced than two with one epoch."""
    driver = TransactionDriver()
    old = driver.init_ok()
    driver.init(had=old)
    driver.reload()
    assert told(driver, old) == (FENCED, -1, -1)


def test_producer_whose_id_was_forgotten_gets_a_new_one() -> None:
    driver = TransactionDriver()
    assert told(driver, (77, 3)) == (NONE, ID, 0)


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90), (6, 90)])
def test_old_clients_hear_of_an_invalid_epoch(version: int, code: int) -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.init_ok()
    driver.init_ok()
    assert driver.init(had=(producer_id, epoch), version=version).error_code == code


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_init_waits_for_markers(level: int, state: S) -> None:
    driver = TransactionDriver(level)
    producer_id, epoch = driver.at(state)
    records = len(driver.log)
    assert told(driver) == (BUSY, -1, -1)
    assert told(driver, (producer_id, epoch)) == (BUSY, -1, -1)
    assert len(driver.log) == records
    driver.write_markers()
    assert told(driver) == (NONE, producer_id, epoch + 1)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_init_aborts_what_is_open_and_fences_its_producer(level: int) -> None:
    driver = TransactionDriver(level)
    driver.shard.coordinator_epoch = 4
    old = driver.at(S.ONGOING)
    assert told(driver) == (BUSY, -1, -1)
    assert driver.state() is S.PREPARE_ABORT
    assert told(driver) == (BUSY, -1, -1)
    (markers,) = driver.write_markers()
    spoken = 2 if level == 2 else 0
    assert markers[:7] == ("t", ID, old[1] + 1, False, 4, (P0, P1), spoken)
    assert driver.state() is S.COMPLETE_ABORT
    assert driver.add(old, P0) == FENCED
    assert told(driver) == (NONE, ID, old[1] + 2)
    assert driver.add(old, P0) == FENCED
    assert told(driver, old) == (FENCED, -1, -1)


def test_zombie_cannot_have_its_successors_work_aborted() -> None:
    driver = TransactionDriver()
    zombie = driver.init_ok()
    now = driver.init_ok()
    driver.add(now, P0)
    assert told(driver, zombie) == (FENCED, -1, -1)
    assert driver.state() is S.ONGOING


@pytest.mark.parametrize("had", [False, True])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_last_epoch_is_followed_by_a_new_producer_id(level: int, had: bool) -> None:
    driver = TransactionDriver(level)
    old = driver.put(EPOCH_MAX - 1)
    new = ID + 1, 0
    assert told(driver, old if had else (-1, -1)) == (NONE, *new)
    if had:
        assert told(driver, old) == (NONE, *new)  # repeated
        assert told(driver, (old[0], old[1] - 1)) == (FENCED, -1, -1)
        assert told(driver, new) == (NONE, ID + 1, 1)
    assert told(driver, old) == (FENCED, -1, -1)


def test_last_epoch_reached_by_a_bump_whose_answer_was_lost() -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR here."""
    driver = TransactionDriver()
    had = driver.put(EPOCH_MAX - 2)
    assert told(driver, had) == (NONE, ID, EPOCH_MAX - 1)
    assert told(driver, had) == (NONE, ID, EPOCH_MAX - 1)


@pytest.mark.parametrize("level", [1, 2])
def test_what_is_open_in_the_last_epoch_is_aborted_with_the_one_beyond(level: int) -> None:
    driver = TransactionDriver(level)
    old = driver.put(EPOCH_MAX - 1)
    driver.add(old, P0)
    assert told(driver) == (BUSY, -1, -1)
    (markers,) = driver.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (ID, EPOCH_MAX)
    identity = {1: (ID, EPOCH_MAX), 2: (ID + 1, 0)}[level]
    assert driver.metadata.identity == identity
    assert told(driver) == (NONE, *{1: (ID + 1, 0), 2: (ID + 1, 1)}[level])


def test_init_without_the_producer_id_it_takes_is_to_be_repeated() -> None:
    driver = TransactionDriver()
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
    result = driver.shard.init_producer_id(request, Caller("me", 5, "", ""), driver.now, None)
    assert result.records == ()
    assert [reply.message.error_code for reply in result.replies] == [  # type: ignore[attr-defined]
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ]
