"""What a consumer hands out and takes in: records, offsets, the listener for rebalances."""

from collections.abc import Awaitable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias

from odradek.core.ids import TopicPartition
from odradek.records import Header, TimestampType

NO_EPOCH: Final = -1
NO_GENERATION: Final = -1


if TYPE_CHECKING:
    # What Python 3.13 has; type checkers know it from typing_extensions without that being there.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record and where it comes from.

    ``timestamp`` is in milliseconds since 1970: when the producer made the record, or, with a
    ``timestamp_type`` of LOG_APPEND_TIME, when the broker took it. ``key`` and ``value`` are bytes
    or None, or what the consumer's deserializers made of the bytes. ``ConsumerRecord`` alone, for
    type checkers, has bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: tuple[Header, ...] = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


AnyRecord: TypeAlias = ConsumerRecord[Any, Any]
"""A record on its way out, whatever deserializers have made of it."""


class OffsetAndMetadata(NamedTuple):
    """An offset to commit: that of the next record to read; with any text one likes."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int = NO_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """Who commits, for a producer that commits offsets within its transaction."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]


class RebalanceListener:
    """Told what comes and goes. Methods may be async; they run inside ``poll`` or ``async for``.

    Whatever was handed out before has been dealt with then, so ``on_revoked`` is the place to
    commit. ``on_lost`` comes instead where it is too late for that: others may have the partitions
    already.
    """

    def on_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are new; what was there before is not among them."""

    def on_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions go to somebody else, as soon as this returns."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are gone; by default the same happens as when they are revoked."""
        return self.on_revoked(partitions)
