"""Each anomaly in the smallest history that shows it."""

import pytest

from odradek.testing.anomalies import (
    Assignment,
    CommitOffset,
    Event,
    FetchOffset,
    Kind,
    Operation,
    Seek,
    check,
)
from tests.unit.testing.anomaly_words import (
    ALL,
    FAIL,
    INFO,
    OK,
    A,
    B,
    dirty,
    made,
    op,
    poll,
    send,
    three,
    txn,
)

PLANTED: dict[str, tuple[list[Event], set[Kind], str]] = {
    "an offset with two values": (
        [op(send("a", 0), at=(10, 15)), op(send("b", 0), process=2, at=(10, 16))],
        {Kind.INCONSISTENT_OFFSETS},
        "t-0 offset 0 held 'a', 'b'",
    ),
    "an acknowledged offset and a poll that disagree": (
        [op(send("a", 0)), op(send("b", 1)), op(poll((0, "b"), (1, "a")), process=2)],
        {Kind.INCONSISTENT_OFFSETS, Kind.DUPLICATE},
        "'a' is at t-0 0, 1",
    ),
    "a value twice in the log": (
        [op(send("a", 0)), op(poll((0, "a"), (1, "a")), process=2)],
        {Kind.DUPLICATE},
        "'a' is at t-0 0, 1",
    ),
    "a value nobody sent": (
        [op(poll((0, "ghost")))],
        {Kind.UNWRITTEN_READ},
        "nobody sent it",
    ),
    "a read of an aborted transaction": (
        [txn(send("a", 0), outcome=FAIL), op(poll((0, "a")), process=2)],
        {Kind.ABORTED_READ},
        "#1 of process 2",
    ),
    "a read of a send that failed, by a reader who takes everything": (
        [op(send("a"), outcome=FAIL), op(dirty((0, "a")), process=2)],
        {Kind.ABORTED_READ},
        "'a'",
    ),
    "a read in an aborted transaction of another one": (
        [
            txn(send("a", 0), outcome=FAIL),
            txn(poll((0, "a")), process=2, outcome=FAIL),
        ],
        {Kind.ABORTED_READ},
        "(read_committed), sent by transaction #0",
    ),
    "a read before the commit was asked for": (
        [
            txn(send("a", 0), at=(10, 40), commit_at=30),
            op(poll((0, "a")), process=2, at=(20, 25)),
        ],
        {Kind.INTERMEDIATE_READ},
        "operation #1 of process 2 (ok) read 'a'",
    ),
    "a transaction that reads itself": (
        [txn(send("a", 0), poll((0, "a")))],
        {Kind.PRECOMMITTED_READ},
        "#0",
    ),
    "a write that was passed": (
        [*three(), op(poll((0, "a")), process=2), op(poll((2, "c")), process=3)],
        {Kind.LOST_WRITE},
        "'b' at t-0 offset 1",
    ),
    "a committed write that only dirty readers get": (
        [
            txn(send("a", 0)),
            op(send("b", 1)),
            op(dirty((0, "a"), (1, "b")), process=2),
            op(poll((1, "b")), process=3),
        ],
        {Kind.LOST_WRITE},
        "no read_committed reader",
    ),
    "a write that is not there at the end": (
        [op(send("a", 0)), op(send("b")), op(poll((0, "a")), process=2)],
        {Kind.UNSEEN},
        "'b' at an unknown offset of t-0",
    ),
    "a write stuck behind a transaction that does not end": (
        [op(send("a", 0)), op(dirty((0, "a")), process=2)],
        {Kind.UNSEEN},
        "'a' at offset 0",
    ),
    "half a transaction, its commit unknown": (
        [
            txn(send("a", 0), send("b", 0, key=B), outcome=INFO),
            op(send("c", 1, key=B), process=2),
            op(poll((0, "a")), poll((1, "c"), key=B), process=3),
        ],
        {Kind.TORN_TRANSACTION, Kind.LOST_WRITE},
        "'a' in t-0 was read, 'b' in t-1 was not",
    ),
    "half a transaction, an offset unknown": (
        [
            txn(send("a", 0), send("b", key=B), outcome=INFO),
            op(poll((0, "a")), process=3),
        ],
        {Kind.TORN_TRANSACTION, Kind.UNSEEN},
        "'a' in t-0 was read, 'b' in t-1 was not",
    ),
    "a record left out within a poll": (
        [*three(), op(poll((1, "b")), process=2), op(poll((0, "a"), (2, "c")), process=3)],
        {Kind.INT_POLL_SKIP},
        "read t-0 offset 2 and passed 1",
    ),
    "an aborted record left out by a dirty reader": (
        [
            txn(send("x", 0), outcome=FAIL),
            txn(send("y", 1), outcome=FAIL),
            txn(send("z", 2), outcome=FAIL),
            op(dirty((0, "x"), (2, "z")), process=2),
        ],
        {Kind.INT_POLL_SKIP},
        "passed 1",
    ),
    "a poll that goes back": (
        [*three(), op(poll((0, "a"), (1, "b"), (0, "a")), process=2)],
        {Kind.INT_NONMONOTONIC_POLL},
        "read t-0 offset 0, being at 2 already",
    ),
    "a record left out between polls": (
        [
            *three(),
            op(poll((0, "a")), process=2),
            op(poll((2, "c")), process=2),
            op(poll((1, "b")), process=3),
        ],
        {Kind.POLL_SKIP},
        "passed 1",
    ),
    "a record left out after a seek": (
        [*three(), op(poll((0, "a")), process=3), Seek(2, A, 0), op(poll((1, "b")), process=2)],
        {Kind.POLL_SKIP},
        "read t-0 offset 1 and passed 0",
    ),
    "a poll that begins again": (
        [*three(), op(poll((0, "a"), (1, "b")), process=2), op(poll((1, "b")), process=2)],
        {Kind.NONMONOTONIC_POLL},
        "offset 1, being at 2 already",
    ),
    "a transaction with another one's record in it": (
        [
            txn(send("a", 0), send("c", 2), at=(10, 50)),
            op(send("b", 1), process=2, at=(20, 25)),
        ],
        {Kind.INT_SEND_SKIP, Kind.G0},
        "passed 1",
    ),
    "a transaction whose sends changed places": (
        [txn(send("a", 1), send("b", 0))],
        {Kind.INT_NONMONOTONIC_SEND},
        "wrote t-0 offset 0",
    ),
    "sends of one process that changed places": (
        [op(send("a", 1), at=(10, 30)), op(send("b", 0), at=(11, 20))],
        {Kind.NONMONOTONIC_SEND},
        "wrote t-0 offset 0, being at 2 already",
    ),
    "a send that went before what was acknowledged": (
        [op(send("a", 1), at=(10, 15)), op(send("b", 0), process=2, at=(20, 25))],
        {Kind.REALTIME_NONMONOTONIC_SEND},
        "offset 0 after operation #0 of process 1 (ok) had been given 1",
    ),
    "transactions that wrote before each other": (
        [
            txn(send("a", 0), send("x", 1, key=B), process=1, at=(10, 50)),
            txn(send("b", 1), send("y", 0, key=B), process=2, at=(10, 50)),
        ],
        {Kind.G0},
        "transaction #1 of process 2 (ok) → transaction #0",
    ),
    "transactions that read each other": (
        [
            txn(send("a", 0), poll((0, "b"), key=B), process=1, at=(10, 50), commit_at=20),
            txn(send("b", 0, key=B), poll((0, "a")), process=2, at=(10, 50), commit_at=20),
        ],
        {Kind.G1C, Kind.G1C_REALTIME},
        "→ the first again",
    ),
    "a circle of a read and an order of writes": (
        [
            txn(send("a", 0), poll((0, "x"), key=B), process=1, at=(10, 50)),
            txn(send("b", 1), send("x", 0, key=B), process=2, at=(10, 50), commit_at=20),
        ],
        {Kind.G1C_WITH_WRITES},
        "→ the first again",
    ),
    "a read of the future": (
        [
            op(poll((0, "a")), process=2, at=(10, 15)),
            op(send("a", 0), at=(20, 25)),
        ],
        {Kind.G1C_REALTIME},
        "#0",
    ),
    "an offset that was aborted": (
        [
            txn(CommitOffset("g", A, 3), outcome=FAIL),
            op(FetchOffset("g", A, 3), process=2),
        ],
        {Kind.ABORTED_OFFSET},
        "g is at t-0 3, which only transaction #0",
    ),
    "an offset from nowhere": (
        [op(CommitOffset("g", A, 3)), op(FetchOffset("g", A, 2), process=2)],
        {Kind.UNWRITTEN_OFFSET},
        "g is at t-0 2",
    ),
    "an offset that went back": (
        [
            op(CommitOffset("g", A, 3)),
            op(CommitOffset("g", A, 5)),
            op(FetchOffset("g", A, 3), process=2),
        ],
        {Kind.OFFSET_WENT_BACK},
        "3 after operation #1 of process 1 (ok) had committed 5",
    ),
    "an offset that is gone": (
        [op(CommitOffset("g", A, 3)), op(FetchOffset("g", A, None), process=2)],
        {Kind.OFFSET_WENT_BACK},
        "None after operation #0",
    ),
    "a record that was handled twice": (
        [
            op(send("a", 0)),
            txn(poll((0, "a")), made("a1", 0, of=0), CommitOffset("g", A, 1), process=2),
            txn(poll((0, "a")), made("a2", 1, of=0), CommitOffset("g", A, 1), process=3),
        ],
        {Kind.PROCESSED_TWICE},
        "t-0 offset 0 was handled for g by transaction #1",
    ),
    "a record that was not handled": (
        [
            *three(),
            op(poll((0, "a"), (1, "b"), (2, "c")), process=3),
            txn(made("a1", 0, of=0), made("c1", 1, of=2), CommitOffset("g", A, 3), process=2),
        ],
        {Kind.UNPROCESSED},
        "g is at t-0 3 and nothing was made of offset 1",
    ),
}
"""A history, the kinds that must be found in it (and no others), what a message must name."""

DRAINED = {
    "a write that is not there at the end",
    "a write stuck behind a transaction that does not end",
    "half a transaction, an offset unknown",
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_anomaly_is_found(name: str) -> None:
    history, kinds, evidence = PLANTED[name]
    report = check(history, drained=ALL if name in DRAINED else frozenset())
    assert report.kinds == kinds
    assert evidence in "\n".join(map(str, report.anomalies))


def test_every_kind_is_planted_somewhere() -> None:
    assert set().union(*(kinds for _, kinds, _ in PLANTED.values())) == set(Kind)


def test_some_anomalies_are_allowed() -> None:
    history, _, _ = PLANTED["transactions that wrote before each other"]
    report = check(history)
    assert report.counts == {Kind.G0: 1}
    assert not report.bad
    assert check(history, allowed=frozenset()).bad


def test_a_subscriber_may_go_back_and_skip_and_others_may_not() -> None:
    history, kinds, _ = PLANTED["a poll that begins again"]
    assert check(history).bad
    subscribed = check([Assignment(2, ALL, is_subscription=True), *history])
    assert subscribed.kinds == kinds
    assert not subscribed.bad
    assert check([Assignment(3, ALL, is_subscription=True), *history]).bad


@pytest.mark.parametrize(
    "history",
    [
        [Operation(1, OK, (send("a"),), 0, 1), Operation(1, OK, (send("a"),), 2, 3)],
        [Operation(1, OK, (send("a"), send("b")), 0, 1)],
        [Operation(1, OK, (send("a"), poll((0, "a"))), 0, 1)],
        [Operation(1, OK, (), 1, 0)],
    ],
    ids=["a value twice", "two sends", "a send and a poll", "backwards"],
)
def test_what_is_no_history_is_refused(history: list[Event]) -> None:
    with pytest.raises(ValueError):
        check(history)


def test_all_are_counted_and_some_are_kept() -> None:
    report = check([op(*(poll((n, f"ghost {n}")) for n in range(1000)))])
    assert report.counts == {Kind.UNWRITTEN_READ: 1000}
    assert len(report.anomalies) == 100
