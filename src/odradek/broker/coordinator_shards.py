"""A coordinator's shard and what belongs to it: its partition, who waits, what is planned."""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from odradek.broker.coordinator_outbox import NONE_DUE, CoordinatorOutbox
from odradek.broker.coordinator_turn import CoordinatorTurn
from odradek.broker.partition import Partition
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Result
from odradek.core.clock import Instant
from odradek.core.errors import ErrorCode
from odradek.protocol.message import Message
from odradek.records import CompressionType


class Shard(Protocol):
    def replay(
        self, key: Message, value: Message | None, *, offset: int, producer_id: int
    ) -> None: ...

    def replay_marker(self, producer_id: int, *, is_committed: bool) -> None: ...

    def on_append_failed(
        self, records: Iterable[CoordinatorRecord], now: Instant
    ) -> Iterable[Result]:
        """Hear that records of a result are not in the log; its replies were refused."""

    def on_loaded(self, now: Instant) -> Iterable[Result]:
        """All that was written is replayed; from here on requests come."""

    def tick(self, now: Instant) -> Iterable[Result]:
        """Do what is due; each result is carried out before the next is asked for."""

    def next_deadline_ms(self) -> int | None: ...


S = TypeVar("S", bound=Shard)

Deliver = Callable[[Message], None]
Refuse = Callable[[ErrorCode], Message]


class Waiting:
    """A request that a shard has not answered yet."""

    __slots__ = ("deliver", "refuse")

    def __init__(self, deliver: Deliver, refuse: Refuse) -> None:
        self.deliver = deliver
        self.refuse = refuse


class Led(Generic[S]):
    """A partition this node leads, and its shard: for one leader epoch, never longer."""

    __slots__ = (
        "deadline_ms",
        "is_loaded",
        "is_ticking",
        "leader_epoch",
        "loaded_offset",
        "outbox",
        "partition",
        "shard",
        "turn",
        "waiting",
    )

    def __init__(
        self,
        partition: Partition,
        shard: S,
        codec: Callable[[], CompressionType],
        on_committed: "Callable[[Led[S]], None]",
    ) -> None:
        self.partition = partition
        self.shard = shard
        self.leader_epoch = partition.leader_epoch
        self.is_loaded = False
        self.is_ticking = False
        self.loaded_offset = partition.log.log_start_offset
        self.deadline_ms = NONE_DUE
        self.waiting: dict[Waiting, None] = {}
        self.turn = CoordinatorTurn(partition, codec)
        self.outbox = CoordinatorOutbox(partition, lambda: on_committed(self))
