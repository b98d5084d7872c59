"""A history: what processes did to a log, as they saw it.

A process does one thing after the other: it is one producer, one consumer, or one of each. After a
crash it goes on under another number. What it does are operations:

- a send of one value (``actions`` is one ``Send``);
- a poll (any number of ``Poll``, one for each partition that had records);
- a commit or a fetch of a group's offsets (``CommitOffset``, ``FetchOffset``);
- a transaction, with any of these in the order in which they happened.

Between them it may get another assignment, or seek. A history lists all this so that what one
process did is in order; how processes are mixed does not matter, times tell who was first.

Each value is sent once: whoever sends the same bytes again makes them another value.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from odradek.core.ids import TopicPartition

Value = Hashable


class Outcome(Enum):
    """What a process knows about an operation of its own."""

    OK = "ok"
    FAIL = "fail"  # it surely has not happened: refused, or its transaction was aborted
    INFO = "info"  # it may have happened, or may happen yet: a timeout, a crash


class Isolation(Enum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Record(NamedTuple):
    offset: int
    value: Value


class Source(NamedTuple):
    """The record that a value was made from by a consumer of ``group``."""

    group: str
    key: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Send:
    key: TopicPartition
    value: Value
    offset: int | None = None  # None: not acknowledged, or acknowledged without an offset
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    key: TopicPartition
    records: tuple[Record, ...]
    isolation: Isolation = Isolation.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """A group goes on from ``offset`` (exclusive: the next one to read)."""

    group: str
    key: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class FetchOffset:
    """What the coordinator said a group has committed; None: nothing."""

    group: str
    key: TopicPartition
    offset: int | None


Action = Send | Poll | CommitOffset | FetchOffset


@dataclass(frozen=True, slots=True)
class Operation:
    """Times are of one clock that never goes back, in any unit."""

    process: int
    outcome: Outcome
    actions: tuple[Action, ...]
    invoked_at: int
    completed_at: int
    is_transaction: bool = False
    commit_at: int | None = None
    """When a transaction's commit was first asked for; None: never."""
    rebalanced: frozenset[TopicPartition] = frozenset()
    """Partitions that came or went while this was going on."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A process reads these from now on; it keeps its position in those it had before."""

    process: int
    keys: frozenset[TopicPartition]
    is_subscription: bool = False


@dataclass(frozen=True, slots=True)
class Seek:
    """A process goes on from ``offset``; None: from wherever the broker says."""

    process: int
    key: TopicPartition
    offset: int | None = None


Event = Operation | Assignment | Seek
