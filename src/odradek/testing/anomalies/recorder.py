"""Writes down what clients do, from any number of threads, as a history for the checker.

An operation has its place in the history from the moment it begins, which keeps the sends of a
process in the order in which it made them although their acknowledgements come when they like.
What never ended is taken to be of unknown outcome, except a transaction that nobody asked to
commit: it cannot have happened.
"""

import threading
from collections.abc import Iterable
from itertools import count
from types import TracebackType
from typing import Final, Self

from odradek.core.clock import Clock
from odradek.core.ids import TopicPartition
from odradek.testing.anomalies.history import (
    Action,
    Assignment,
    CommitOffset,
    Event,
    FetchOffset,
    Isolation,
    Operation,
    Outcome,
    Poll,
    Record,
    Seek,
    Send,
    Source,
    Value,
)

EVENTS_MAX: Final = 10_000_000


class Sending:
    """A send that waits for its acknowledgement."""

    __slots__ = ("key", "offset", "source", "value")

    def __init__(self, key: TopicPartition, value: Value, source: Source | None) -> None:
        self.key = key
        self.value = value
        self.source = source
        self.offset: int | None = None

    def acknowledged(self, offset: int | None) -> None:
        """Note where the broker put it; an offset below zero is none."""
        self.offset = offset if offset is not None and offset >= 0 else None


class Recording:
    """An operation that goes on. As a context manager it ends when the block does.

    Its outcome is then, unless it was given one: ok if all went well (a transaction: if it was
    asked to commit), otherwise unknown (a transaction: failed, if it was not).
    """

    def __init__(self, clock: Clock, process: int, *, is_transaction: bool) -> None:
        self.process = process
        self.outcome: Outcome | None = None
        self._clock = clock
        self._is_transaction = is_transaction
        self._invoked_at = clock.monotonic_us()
        self._completed_at: int | None = None
        self._commit_at: int | None = None
        self._actions: list[Action | Sending] = []
        self._rebalanced: set[TopicPartition] = set()

    def sends(self, key: TopicPartition, value: Value, source: Source | None = None) -> Sending:
        """To be called before the client's own; tell the result its offset when it is known."""
        sending = Sending(key, value, source)
        self._actions.append(sending)
        return sending

    def sent(self, key: TopicPartition, value: Value, offset: int | None = None) -> None:
        self._actions.append(Send(key, value, offset))

    def polled(
        self,
        key: TopicPartition,
        records: Iterable[tuple[int, Value]],
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> None:
        found = tuple(Record(offset, value) for offset, value in records)
        self._actions.append(Poll(key, found, isolation))

    def commits_offset(self, group: str, key: TopicPartition, offset: int) -> None:
        self._actions.append(CommitOffset(group, key, offset))

    def fetched_offset(self, group: str, key: TopicPartition, offset: int | None) -> None:
        self._actions.append(FetchOffset(group, key, offset))

    def rebalances(self, keys: Iterable[TopicPartition]) -> None:
        """Note partitions that came or went."""
        self._rebalanced.update(keys)

    def commits(self) -> None:
        """To be called right before the client is asked to commit for the first time."""
        if self._commit_at is None:
            self._commit_at = self._clock.monotonic_us()

    def end(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self._completed_at = self._clock.monotonic_us()
            self.outcome = outcome

    def abandon(self) -> None:
        """End it after a crash or a timeout: failed if that is certain, otherwise unknown."""
        self.end(self._outcome_unless_told(is_done=False))

    @property
    def is_empty(self) -> bool:
        return not self._actions and not self._rebalanced

    def event(self) -> Operation:
        """Give the operation as it is known now."""
        completed_at = self._completed_at
        return Operation(
            self.process,
            self.outcome or self._outcome_unless_told(is_done=False),
            tuple(_action(each) for each in self._actions),
            self._invoked_at,
            self._clock.monotonic_us() if completed_at is None else completed_at,
            self._is_transaction,
            self._commit_at,
            frozenset(self._rebalanced),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(self._outcome_unless_told(is_done=kind is None))

    def _outcome_unless_told(self, *, is_done: bool) -> Outcome:
        if self._is_transaction and self._commit_at is None:
            return Outcome.FAIL
        return Outcome.OK if is_done else Outcome.INFO


class Recorder:
    """Collects the operations of all processes."""

    def __init__(self, clock: Clock, *, events_max: int = EVENTS_MAX) -> None:
        self._clock = clock
        self._events_max = events_max
        self._events: list[Recording | Assignment | Seek] = []
        self._lock = threading.Lock()
        self._processes = count(1)

    def new_process(self) -> int:
        """A number nobody had: for a client that starts, or starts anew after a crash."""
        return next(self._processes)

    def operation(self, process: int) -> Recording:
        """Begin a send of one value, a poll, or something about offsets."""
        return self._begin(process, is_transaction=False)

    def transaction(self, process: int) -> Recording:
        return self._begin(process, is_transaction=True)

    def assigned(
        self, process: int, keys: Iterable[TopicPartition], *, is_subscription: bool = False
    ) -> None:
        self._add(Assignment(process, frozenset(keys), is_subscription))

    def sought(self, process: int, key: TopicPartition, offset: int | None) -> None:
        self._add(Seek(process, key, offset))

    def history(self) -> list[Event]:
        """Give everything so far; what has not ended is given as it stands.

        Operations in which nothing happened, polls that gave nothing say, are left out.
        """
        with self._lock:
            events = list(self._events)
        return [
            each.event() if isinstance(each, Recording) else each
            for each in events
            if not (isinstance(each, Recording) and each.is_empty)
        ]

    def _begin(self, process: int, *, is_transaction: bool) -> Recording:
        recording = Recording(self._clock, process, is_transaction=is_transaction)
        self._add(recording)
        return recording

    def _add(self, event: Recording | Assignment | Seek) -> None:
        with self._lock:
            if len(self._events) >= self._events_max:
                raise OverflowError(f"more than {self._events_max} events; check and start anew")
            self._events.append(event)


def _action(action: Action | Sending) -> Action:
    if isinstance(action, Sending):
        return Send(action.key, action.value, action.offset, action.source)
    return action
