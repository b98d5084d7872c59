"""Sound histories, some of them close to unsound: no anomaly."""

import pytest

from odradek.testing.anomalies import (
    Assignment,
    CommitOffset,
    Event,
    FetchOffset,
    Seek,
    check,
)
from tests.unit.testing.anomaly_words import (
    FAIL,
    INFO,
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

SOUND: dict[str, list[Event]] = {
    "nothing": [],
    "a crashed send that is there": [
        op(send("a"), outcome=INFO),
        op(poll((0, "a")), process=2),
    ],
    "a crashed send that is not": [
        op(send("a"), outcome=INFO),
        op(send("b", 0), process=2),
        op(poll((0, "b")), process=2),
    ],
    "a crashed transaction that is there as a whole": [
        txn(send("a", 0), send("b", key=B), outcome=INFO),
        op(poll((0, "a")), poll((3, "b"), key=B), process=2),
    ],
    "a crashed transaction that is not, seen by a dirty reader": [
        txn(send("a", 0), send("b", 0, key=B), outcome=INFO),
        op(send("c", 2), process=3),
        op(dirty((0, "a"), (2, "c")), process=2),
        op(poll((2, "c")), process=4),
    ],
    "an aborted transaction between two reads": [
        op(send("a", 0)),
        txn(send("x", 1), outcome=FAIL),
        op(send("b", 3)),
        op(poll((0, "a"), (3, "b")), process=2),
        op(dirty((0, "a"), (1, "x"), (3, "b")), process=3),
    ],
    "a dirty read of an open transaction": [
        txn(send("a", 0), at=(10, 50), commit_at=40),
        op(dirty((0, "a")), process=2, at=(20, 25)),
        op(poll((0, "a")), process=3, at=(60, 65)),
    ],
    "a read while the commit goes on": [
        txn(send("a", 0), at=(10, 50), commit_at=40),
        op(poll((0, "a")), process=2, at=(41, 45)),
    ],
    "a transaction that reads its own sends before they are committed, on purpose": [
        txn(send("a", 0), dirty((0, "a"))),
        op(poll((0, "a")), process=2),
    ],
    "a reader that seeks back": [
        *three(),
        op(poll((0, "a"), (1, "b"), (2, "c")), process=2),
        Seek(2, A, 1),
        op(poll((1, "b")), process=2),
    ],
    "a reader that loses a partition and gets it again": [
        *three(),
        op(poll((0, "a"), (1, "b"), (2, "c")), process=2),
        Assignment(2, frozenset({B})),
        Assignment(2, frozenset({A})),
        op(poll((0, "a")), process=2),
    ],
    "a rebalance within a poll": [
        *three(),
        op(poll((0, "a"), (1, "b"), (2, "c")), process=2),
        op(poll((2, "c"), (1, "b")), process=2, rebalanced=[A]),
        op(poll((1, "b")), process=2),
    ],
    "a poll after one that came to nothing": [
        *three(),
        txn(poll((0, "a"), (1, "b"), (2, "c")), process=2, outcome=FAIL),
        op(poll((0, "a"), (1, "b"), (2, "c")), process=2),
    ],
    "a tail that was not read yet": three(),
    "sends that overlap": [
        op(send("a", 1), at=(10, 30)),
        op(send("b", 0), process=2, at=(20, 25)),
        op(poll((0, "b"), (1, "a")), process=3, at=(40, 45)),
    ],
    "a chain of transactions that read from one another": [
        txn(send("a", 0)),
        txn(poll((0, "a")), send("b", 0, key=B), process=2),
        txn(poll((0, "b"), key=B), send("c", 2), process=3),
        op(poll((0, "a"), (2, "c")), process=4),
    ],
    "offsets that were committed, aborted, or perhaps committed": [
        op(FetchOffset("g", A, None), process=2),
        op(CommitOffset("g", A, 3)),
        txn(CommitOffset("g", A, 4), outcome=FAIL),
        op(FetchOffset("g", A, 3), process=2),
        txn(CommitOffset("g", A, 5), outcome=INFO),
        op(FetchOffset("g", A, 3), process=2),
        op(FetchOffset("g", A, 5), process=2),
        op(CommitOffset("h", A, 9)),
        op(FetchOffset("g", A, 5), process=2),
    ],
    "an offset that a crashed member committed late": [
        op(CommitOffset("g", A, 3), outcome=INFO),
        op(CommitOffset("g", A, 5), process=2),
        op(FetchOffset("g", A, 3), process=3),
    ],
    "transactions that look at each other's uncommitted records": [
        txn(send("a", 0), dirty((0, "b"), key=B), process=1, at=(10, 50)),
        txn(send("b", 0, key=B), dirty((0, "a")), process=2, at=(10, 50)),
    ],
    "an offset that is set back on purpose": [
        op(CommitOffset("g", A, 3)),
        op(CommitOffset("g", A, 1)),
        op(FetchOffset("g", A, 1), process=2),
    ],
    "a record handled again after an abort": [
        op(send("a", 0)),
        txn(
            poll((0, "a")),
            made("a1", 0, of=0),
            CommitOffset("g", A, 1),
            process=2,
            outcome=FAIL,
        ),
        txn(poll((0, "a")), made("a2", 2, of=0), CommitOffset("g", A, 1), process=3),
    ],
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_histories_have_none(name: str) -> None:
    assert str(check(SOUND[name])).endswith("no anomaly")
