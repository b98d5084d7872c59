"""What a consumer reads and how far it is: topics, partitions, positions. Pure.

A partition goes through phases::

    UNKNOWN     no position: the committed offset is asked for, if there is a group
    RESETTING   the position is looked up by a timestamp (ListOffsets)
    VALIDATING  a new leader is asked whether its log has what was read (OffsetForLeaderEpoch)
    FETCHING    the position is good

``version`` changes with every move of the position that is not by reading on, and no two are alike:
what was fetched for an older one is thrown away. What failed is not tried again before
``retry_at_ms``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from itertools import count
from typing import Final, NamedTuple

from odradek.client.consumer.records import NO_EPOCH, RebalanceListener
from odradek.client.consumer.settings import ResetPolicy
from odradek.core.ids import TopicPartition

NO_REPLICA: Final = -1
TOPICS_MAX: Final = 100_000
_versions = count(1)


class Mode(Enum):
    NONE = "nothing yet"
    TOPICS = "topics by name"
    PATTERN = "topics by pattern"
    ASSIGNED = "partitions of the application's choice"


class Phase(Enum):
    UNKNOWN = "unknown"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"


class Position(NamedTuple):
    """The next offset to read, and the leader epoch of what was read before it."""

    offset: int
    epoch: int = NO_EPOCH


class PartitionState:
    __slots__ = (
        "failures",
        "high_watermark",
        "is_held",
        "is_paused",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "phase",
        "position",
        "preferred_replica",
        "preferred_until_ms",
        "reset",
        "retry_at_ms",
        "validated_epoch",
        "version",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.phase = Phase.UNKNOWN
        self.position: Position | None = None
        self.reset: ResetPolicy | None = None
        self.version = next(_versions)
        self.is_paused = False
        self.is_held = False  # while the listener is told of it
        self.retry_at_ms = 0.0
        self.failures = 0
        self.validated_epoch = NO_EPOCH
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred_replica = NO_REPLICA
        self.preferred_until_ms = 0.0

    @property
    def is_fetchable(self) -> bool:
        return self.phase is Phase.FETCHING and not self.is_paused and not self.is_held

    def seek(self, position: Position) -> None:
        """Go on from there; an epoch known makes the next leader be asked about it."""
        self._move(Phase.FETCHING, position)
        self.validated_epoch = NO_EPOCH

    def reset_to(self, policy: ResetPolicy) -> None:
        """Have the position looked up."""
        assert not policy.is_none
        self._move(Phase.RESETTING, None)
        self.reset = policy

    def advance(self, position: Position) -> None:
        """Read on."""
        self.position = position

    def on_reset(self, policy: ResetPolicy, position: Position, leader_epoch: int) -> None:
        """Take what the leader of an epoch said, unless something else is wanted meanwhile."""
        if self.phase is Phase.RESETTING and self.reset == policy:
            self._move(Phase.FETCHING, position)
            self.validated_epoch = leader_epoch

    def on_leader_epoch(self, leader_epoch: int) -> None:
        """Hear of the leader's epoch: a new one must have what was read (KIP-320)."""
        if self.phase is not Phase.FETCHING or self.position is None:
            return
        if self.position.epoch == NO_EPOCH or leader_epoch <= self.validated_epoch:
            return
        if leader_epoch <= self.position.epoch:
            self.validated_epoch = leader_epoch  # what was read is of this very leader
            return
        self.phase = Phase.VALIDATING

    def on_validated(self, leader_epoch: int) -> None:
        if self.phase is Phase.VALIDATING:
            self.phase = Phase.FETCHING
            self.validated_epoch = leader_epoch
            self.on_success()

    def on_failure(self, retry_at_ms: float) -> None:
        self.failures += 1
        self.retry_at_ms = retry_at_ms

    def on_success(self) -> None:
        self.failures = 0
        self.retry_at_ms = 0.0

    def _move(self, phase: Phase, position: Position | None) -> None:
        self.phase = phase
        self.position = position
        self.reset = None
        self.version = next(_versions)
        self.preferred_replica = NO_REPLICA
        self.on_success()


class Subscription:
    """Changed by the application through the consumer, and by the group."""

    def __init__(self) -> None:
        self.mode = Mode.NONE
        self.topics: frozenset[str] = frozenset()
        self.listener = RebalanceListener()
        self.partitions: dict[TopicPartition, PartitionState] = {}

    @property
    def is_by_group(self) -> bool:
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    # What the application asks for.

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None) -> None:
        wanted = frozenset(topics)
        _check_topics(wanted)
        self._set_mode(Mode.TOPICS)
        self.topics = wanted
        self.listener = listener or RebalanceListener()

    def subscribe_pattern(self, listener: RebalanceListener | None) -> None:
        self._set_mode(Mode.PATTERN)
        self.topics = frozenset()
        self.listener = listener or RebalanceListener()

    def match(self, topics: Iterable[str]) -> bool:
        """Take what the pattern matches now; True if that has changed."""
        assert self.mode is Mode.PATTERN
        matched = frozenset(topics)
        has_changed = matched != self.topics
        self.topics = matched
        return has_changed

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        self._set_mode(Mode.ASSIGNED)
        self.set_partitions(partitions)

    def unsubscribe(self) -> None:
        self.mode = Mode.NONE
        self.topics = frozenset()
        self.listener = RebalanceListener()
        self.partitions = {}

    def _set_mode(self, mode: Mode) -> None:
        by_group = (Mode.TOPICS, Mode.PATTERN)
        is_change = (mode in by_group) != (self.mode in by_group)
        if self.mode is not Mode.NONE and is_change:
            raise RuntimeError(f"the consumer reads {self.mode.value}: unsubscribe first")
        self.mode = mode

    # What the group decides.

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these; those that were there before go on from where they are."""
        old = self.partitions
        self.partitions = {each: old.get(each) or PartitionState(each) for each in partitions}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self.partitions.pop(each, None)

    # Questions.

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return a partition's state.

        Raises:
            ValueError: It is not assigned to this consumer.
        """
        found = self.partitions.get(partition)
        if found is None:
            raise ValueError(f"{partition} is not assigned to this consumer")
        return found

    def find(self, partition: TopicPartition, version: int) -> PartitionState | None:
        """Return a partition's state if it is still the one that a request was made for."""
        found = self.partitions.get(partition)
        return found if found is not None and found.version == version else None

    def in_phase(self, phase: Phase, now_ms: float) -> Iterator[PartitionState]:
        """Iterate over partitions that wait for something and may be tried again."""
        for state in self.partitions.values():
            if state.phase is phase and state.retry_at_ms <= now_ms:
                yield state

    def next_retry_ms(self, now_ms: float) -> float | None:
        """Return when something that failed may be tried again."""
        waiting = (s for s in self.partitions.values() if s.phase is not Phase.FETCHING)
        times = [state.retry_at_ms for state in waiting if state.retry_at_ms > now_ms]
        return min(times, default=None)

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return how far the consumer is, where it knows."""
        return {
            partition: state.position
            for partition, state in self.partitions.items()
            if state.position is not None
        }

    def check_invariants(self) -> None:
        for partition, state in self.partitions.items():
            assert state.partition == partition
            assert (state.position is None) == (state.phase in (Phase.UNKNOWN, Phase.RESETTING))
            assert (state.reset is not None) == (state.phase is Phase.RESETTING)


def _check_topics(topics: Collection[str]) -> None:
    if len(topics) > TOPICS_MAX:
        raise ValueError(f"{len(topics)} topics are more than {TOPICS_MAX}")
    if not all(each.strip() for each in topics):
        raise ValueError("a topic needs a name")
