"""DescribeTransactions and ListTransactions."""

import pytest

from odradek.coordinator.transaction.listing import TransactionFilter
from odradek.coordinator.transaction.state import TransactionState
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.re2_patterns import PATTERN_CHARACTERS_MAX
from odradek.protocol.generated import describe_transactions, list_transactions
from odradek.protocol.generated.list_transactions import ListTransactionsRequest
from tests.unit.coordinator.transaction.transaction_driver import (
    FIRST_PRODUCER_ID,
    P0,
    P1,
    Q0,
    WALL_MS,
    TransactionDriver,
)

S = TransactionState
ID = FIRST_PRODUCER_ID


def test_describe_what_is_open() -> None:
    driver = TransactionDriver()
    driver.now_ms = 5
    who = driver.at(S.ONGOING)
    driver.add(who, Q0)
    assert driver.shard.describe("t") == describe_transactions.TransactionState(
        error_code=0,
        transactional_id="t",
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=WALL_MS + 5,
        producer_id=ID,
        producer_epoch=0,
        topics=[
            describe_transactions.TopicData(topic="orders", partitions=[0, 1]),
            describe_transactions.TopicData(topic="payments", partitions=[0]),
        ],
    )


def test_describe_shows_which_markers_are_missing() -> None:
    driver = TransactionDriver()
    driver.at(S.PREPARE_ABORT)
    (markers,) = driver.shard.take_markers()
    driver.wrote(markers, P0)
    described = driver.shard.describe("t")
    assert described.transaction_state == "PrepareAbort"
    assert [(each.topic, each.partitions) for each in described.topics] == [
        (P1.topic, [P1.partition])
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [("", ErrorCode.INVALID_REQUEST), ("other", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)],
)
def test_describe_what_is_not_there(name: str, code: ErrorCode) -> None:
    driver = TransactionDriver()
    assert driver.shard.describe(name) == describe_transactions.TransactionState(
        error_code=code, transactional_id=name
    )


def several() -> TransactionDriver:
    """``a`` at rest since 0 ms, ``b1`` open since 100 ms, ``b2`` since 200 ms, at 300 ms."""
    driver = TransactionDriver()
    for number, name in enumerate(("a", "b1", "b2")):
        driver.now_ms = 100 * number
        response = driver.init(name)
        if number:
            driver.add((response.producer_id, 0), P0, of=name)
    driver.now_ms = 300
    return driver


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (ListTransactionsRequest(), ["a", "b1", "b2"]),
        (ListTransactionsRequest(state_filters=["Ongoing"]), ["b1", "b2"]),
        (ListTransactionsRequest(state_filters=["Ongoing", "Empty"]), ["a", "b1", "b2"]),
        (ListTransactionsRequest(state_filters=["Dead", "PrepareEpochFence"]), []),
        (ListTransactionsRequest(state_filters=["Strange"]), []),
        (ListTransactionsRequest(state_filters=["Strange", "Empty"]), ["a"]),
        (ListTransactionsRequest(producer_id_filters=[ID + 1, 99]), ["b1"]),
        (ListTransactionsRequest(duration_filter=0), ["a", "b1", "b2"]),
        (ListTransactionsRequest(duration_filter=100), ["a", "b1"]),
        (ListTransactionsRequest(duration_filter=99), ["a", "b1", "b2"]),
        (ListTransactionsRequest(duration_filter=200), ["a"]),
        (ListTransactionsRequest(transactional_id_pattern=""), ["a", "b1", "b2"]),
        (ListTransactionsRequest(transactional_id_pattern="b"), []),
        (ListTransactionsRequest(transactional_id_pattern="b[0-9]|c"), ["b1", "b2"]),
        (
            ListTransactionsRequest(transactional_id_pattern="b.", producer_id_filters=[ID + 2]),
            ["b2"],
        ),
    ],
)
def test_filters(request_: ListTransactionsRequest, names: list[str]) -> None:
    driver = several()
    wanted = TransactionFilter.from_request(request_)
    listed = driver.shard.list_transactions(wanted, driver.now)
    assert [each.transactional_id for each in listed] == names


def test_what_is_listed() -> None:
    driver = TransactionDriver()
    driver.at(S.COMPLETE_COMMIT)
    assert list(driver.shard.list_transactions(TransactionFilter(), driver.now)) == [
        list_transactions.TransactionState(
            transactional_id="t", producer_id=ID, transaction_state="CompleteCommit"
        )
    ]


def test_names_that_are_no_states_are_told() -> None:
    request = ListTransactionsRequest(state_filters=["Odd", "Ongoing", "ongoing"])
    assert TransactionFilter.from_request(request).unknown_states == ("Odd", "ongoing")


@pytest.mark.parametrize("pattern", ["(", "(?=x)", "x" * (PATTERN_CHARACTERS_MAX + 1)])
def test_bad_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ApiError) as caught:
        TransactionFilter.from_request(ListTransactionsRequest(transactional_id_pattern=pattern))
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_titles_are_those_of_kafka() -> None:
    assert [state.title for state in S] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
