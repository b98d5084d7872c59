"""Short words for histories."""

from collections.abc import Iterable
from itertools import count

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import (
    Action,
    Event,
    Isolation,
    Operation,
    Outcome,
    Poll,
    Record,
    Send,
    Source,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
ALL = frozenset({A, B})

_starts = count(10, 10)


def _take(at: tuple[int, int] | None) -> tuple[int, int]:
    """One operation after the other, each from 10 n to 10 n + 5, unless told otherwise."""
    start = next(_starts)
    return at or (start, start + 5)


def op(
    *actions: Action,
    process: int = 1,
    outcome: Outcome = OK,
    at: tuple[int, int] | None = None,
    rebalanced: Iterable[TopicPartition] = (),
) -> Operation:
    begin, end = _take(at)
    return Operation(process, outcome, actions, begin, end, rebalanced=frozenset(rebalanced))


def txn(
    *actions: Action,
    process: int = 1,
    outcome: Outcome = OK,
    at: tuple[int, int] | None = None,
    commit_at: int | None = None,
) -> Operation:
    """A transaction that asks for its commit right before it ends."""
    begin, end = _take(at)
    asked = None if outcome is FAIL else (commit_at or end - 1)
    return Operation(process, outcome, actions, begin, end, True, asked)


def poll(
    *records: tuple[int, str], key: TopicPartition = A, isolation: Isolation = COMMITTED
) -> Poll:
    return Poll(key, tuple(Record(*each) for each in records), isolation)


def dirty(*records: tuple[int, str], key: TopicPartition = A) -> Poll:
    return poll(*records, key=key, isolation=UNCOMMITTED)


def send(value: str, offset: int | None = None, key: TopicPartition = A) -> Send:
    return Send(key, value, offset)


def made(value: str, offset: int, of: int, key: TopicPartition = B) -> Send:
    return Send(key, value, offset, Source("g", A, of))


def three() -> list[Event]:
    """a, b and c at 0, 1 and 2 of A, acknowledged."""
    return [op(send(value, offset)) for offset, value in enumerate("abc")]
