"""The anomalies, which of them Kafka's promises allow, and the report that lists those found."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from odradek.core.ids import TopicPartition

KEPT_PER_KIND_MAX: Final = 100


class Kind(Enum):
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    """An offset held two values. Acknowledgements and all polls say what it held, polls of aborted
    transactions too: a reader gets sound data whatever becomes of it. Truncation of committed
    records and answers with someone else's offset look like this."""

    DUPLICATE = "duplicate"
    """A value is at two offsets: a retry was appended again, or the acknowledged offset was not
    where the value went."""

    UNWRITTEN_READ = "unwritten-read"
    """A poll gave a value that nobody sent to this partition."""

    ABORTED_READ = "G1a"
    """A poll gave a value of a send that failed, or, to a read_committed reader, of a transaction
    that was aborted. Who reads uncommitted may see the latter."""

    INTERMEDIATE_READ = "intermediate-read"
    """A read_committed reader had a value in hand before its transaction asked to be committed."""

    PRECOMMITTED_READ = "precommitted-read"
    """A transaction read, with read_committed, a value that it sent itself."""

    LOST_WRITE = "lost-write"
    """A committed value lies before the furthest that was read and nobody read it. Judged among
    all readers, and among read_committed readers alone: those may miss what the others see. The
    history needs a read_committed reader that began at the start of the log."""

    UNSEEN = "unseen"
    """A committed value was never read although its partition was read to the end: lost at the
    tail, or stuck behind a transaction that does not end."""

    TORN_TRANSACTION = "torn-transaction"
    """Of a transaction's values one was read by read_committed readers, which proves its commit,
    and another one, which they passed or whose partition was read to the end, was not."""

    INT_POLL_SKIP = "int-poll-skip"
    """Within one operation a reader went from one record to a later one, past a record that it
    should have had. Not judged for partitions that came or went meanwhile."""

    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    """Within one operation a reader was given a record again, or an earlier one."""

    POLL_SKIP = "poll-skip"
    """The first record of a poll is past one that should have come after the previous poll, or
    after a seek. Allowed for subscribers: a rebalance moves their position."""

    NONMONOTONIC_POLL = "nonmonotonic-poll"
    """The first record of a poll is not after the last one of the previous poll. Allowed for
    subscribers: a rebalance takes them back to what was committed."""

    INT_SEND_SKIP = "int-send-skip"
    """Between two values that one transaction sent to a partition lies one of somebody else.
    Allowed: Kafka promises order, not that nobody comes between."""

    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    """One transaction's later send to a partition got the lower offset."""

    NONMONOTONIC_SEND = "nonmonotonic-send"
    """A process's later send to a partition got the lower offset."""

    REALTIME_NONMONOTONIC_SEND = "realtime-nonmonotonic-send"
    """A send began after another one was acknowledged and was given a lower offset than that."""

    G0 = "G0"
    """Transactions wrote before one another in a circle, in different partitions. Allowed: Kafka
    does not order the writes of open transactions."""

    G1C = "G1c"
    """Information went in a circle: each transaction read what the one before it wrote."""

    G1C_WITH_WRITES = "G1c-ww"
    """A circle of reads and of the order of writes. Allowed, for the reason that G0 is."""

    G1C_REALTIME = "G1c-realtime"
    """A circle of reads and of time: something was read before, by the clock, it can have been
    there."""

    ABORTED_OFFSET = "aborted-offset"
    """A group was told an offset that only aborted transactions or failed commits had set."""

    UNWRITTEN_OFFSET = "unwritten-offset"
    """A group was told an offset that nobody ever tried to commit."""

    OFFSET_WENT_BACK = "offset-went-back"
    """A group was told an offset although a later one had replaced it before it asked."""

    PROCESSED_TWICE = "processed-twice"
    """Two transactions of a group committed what they made from the same record."""

    UNPROCESSED = "unprocessed"
    """A group's committed offset is past a record that no committed transaction of it handled.
    Judged for groups that say what they made their values from, and that began at offset 0."""


ALLOWED: Final = frozenset({Kind.INT_SEND_SKIP, Kind.G0, Kind.G1C_WITH_WRITES})
ALLOWED_WHEN_SUBSCRIBED: Final = frozenset({Kind.POLL_SKIP, Kind.NONMONOTONIC_POLL})


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: Kind
    message: str
    operations: tuple[int, ...]
    """Places in the history, for those who want to see more."""
    key: TopicPartition | None = None
    is_allowed: bool = False

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"


@dataclass(slots=True)
class Report:
    """What was found; of each kind all are counted and the first ones kept."""

    operations: int = 0
    records_sent: int = 0
    records_read: int = 0
    allowed: frozenset[Kind] = ALLOWED
    subscribers: frozenset[int] = frozenset()
    """Processes whose partitions the group decides about."""
    counts: Counter[Kind] = field(default_factory=Counter)
    anomalies: list[Anomaly] = field(default_factory=list)
    _kept: Counter[tuple[Kind, bool]] = field(default_factory=Counter)

    def add(
        self,
        kind: Kind,
        message: str,
        operations: Iterable[int],
        key: TopicPartition | None = None,
        process: int | None = None,
    ) -> None:
        is_allowed = kind in self.allowed or (
            kind in ALLOWED_WHEN_SUBSCRIBED and process in self.subscribers
        )
        self.counts[kind] += 1
        self._kept[kind, is_allowed] += 1
        if self._kept[kind, is_allowed] <= KEPT_PER_KIND_MAX:
            self.anomalies.append(Anomaly(kind, message, tuple(operations), key, is_allowed))

    @property
    def bad(self) -> list[Anomaly]:
        """Those that are not allowed."""
        return [each for each in self.anomalies if not each.is_allowed]

    @property
    def kinds(self) -> set[Kind]:
        return set(self.counts)

    def __str__(self) -> str:
        head = (
            f"{self.operations} operations, {self.records_sent} values sent, "
            f"{self.records_read} records read"
        )
        found = [f"{count} {kind.value}" for kind, count in self.counts.items()]
        return "\n".join([f"{head}: {', '.join(found) or 'no anomaly'}", *map(str, self.bad)])
