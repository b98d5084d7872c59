"""What a history says as a whole: who wrote what, where it is, who read it, what was committed."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies.history import (
    Event,
    Isolation,
    Operation,
    Outcome,
    Poll,
    Send,
    Value,
)

Stored = tuple[TopicPartition, Value]
"""A value in a partition: what a history speaks about."""


class Written(NamedTuple):
    number: int  # of the operation
    operation: Operation
    send: Send


class Read(NamedTuple):
    number: int
    operation: Operation
    offset: int
    isolation: Isolation


class Order:
    """The offsets of one partition that are known to hold something, for one kind of reader."""

    def __init__(self, offsets: set[int]) -> None:
        self.offsets = sorted(offsets)

    def between(self, start: int, end: int) -> list[int]:
        """Known offsets from ``start`` up to ``end``, exclusive."""
        return self.offsets[bisect_left(self.offsets, start) : bisect_left(self.offsets, end)]


class Facts:
    """Operations are known by their place in the history.

    Raises:
        ValueError: The history is not one: a value sent twice, an operation of several sends that
            is no transaction, one that ends before it begins.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.operations = [
            (number, event) for number, event in enumerate(events) if isinstance(event, Operation)
        ]
        self.written: dict[Stored, Written] = {}
        self.reads: dict[Stored, list[Read]] = defaultdict(list)
        for number, operation in self.operations:
            self._take_in(number, operation)
        self.committed = {
            number for number, operation in self.operations if self._is_committed(operation)
        }
        self.places: dict[Stored, set[int]] = defaultdict(set)
        self.orders = self._find_orders()

    def order(self, key: TopicPartition, isolation: Isolation) -> Order:
        return self.orders[isolation].get(key) or Order(set())

    def is_seen(self, stored: Stored, isolation: Isolation | None = None) -> bool:
        """Was it read by an operation that is ok? Without ``isolation``: by anybody."""
        return any(
            read.operation.outcome is Outcome.OK and isolation in (None, read.isolation)
            for read in self.reads.get(stored, ())
        )

    @staticmethod
    def sends_of(operation: Operation) -> list[Send]:
        return [action for action in operation.actions if isinstance(action, Send)]

    def describe(self, number: int) -> str:
        operation = self.events[number]
        assert isinstance(operation, Operation)
        name = "transaction" if operation.is_transaction else "operation"
        return f"{name} #{number} of process {operation.process} ({operation.outcome.value})"

    def _take_in(self, number: int, operation: Operation) -> None:
        _check_shape(number, operation)
        for action in operation.actions:
            if isinstance(action, Send):
                stored = (action.key, action.value)
                if stored in self.written:
                    raise ValueError(f"{action.value!r} was sent twice to {action.key}")
                self.written[stored] = Written(number, operation, action)
            elif isinstance(action, Poll):
                for record in action.records:
                    read = Read(number, operation, record.offset, action.isolation)
                    self.reads[action.key, record.value].append(read)

    def _is_committed(self, operation: Operation) -> bool:
        if operation.outcome is not Outcome.INFO:
            return operation.outcome is Outcome.OK
        isolation = Isolation.READ_COMMITTED if operation.is_transaction else None
        return any(
            self.is_seen((send.key, send.value), isolation) for send in self.sends_of(operation)
        )

    def _find_orders(self) -> dict[Isolation, dict[TopicPartition, Order]]:
        """Which offsets a reader of each kind comes by.

        An acknowledged record of an aborted transaction is in the log all the same, and whoever
        reads uncommitted comes by it.
        """
        found: dict[Isolation, dict[TopicPartition, set[int]]] = {
            isolation: defaultdict(set) for isolation in Isolation
        }
        for stored, written in self.written.items():
            offset = written.send.offset
            if offset is None or not (
                written.operation.is_transaction or written.number in self.committed
            ):
                continue
            self.places[stored].add(offset)
            found[Isolation.READ_UNCOMMITTED][stored[0]].add(offset)
            if written.number in self.committed:
                found[Isolation.READ_COMMITTED][stored[0]].add(offset)
        for stored, reads in self.reads.items():
            for read in reads:
                self.places[stored].add(read.offset)
                found[read.isolation][stored[0]].add(read.offset)
                found[Isolation.READ_UNCOMMITTED][stored[0]].add(read.offset)
        return {
            isolation: {key: Order(offsets) for key, offsets in keys.items()}
            for isolation, keys in found.items()
        }


def _check_shape(number: int, operation: Operation) -> None:
    if operation.completed_at < operation.invoked_at:
        raise ValueError(f"#{number} ends before it begins")
    sends = sum(isinstance(action, Send) for action in operation.actions)
    if not operation.is_transaction and sends and len(operation.actions) > 1:
        raise ValueError(f"#{number} is no transaction: it can send one value and nothing else")
