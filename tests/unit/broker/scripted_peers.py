"""A broker with other brokers that do what a test says: no sockets, no logs, no metadata log."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.slices import Slices
from odradek.protocol.message import Message
from odradek.wire.lane import Address, LaneError, LaneFailure, LaneSettings

NODE_ID = 1
OTHERS = (2, 3)
SECONDS_MAX = 60


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


class ScriptedLane:
    """A lane on which requests wait for ``answer`` or ``fail``."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        """All requests, answered or not."""
        self.drops: list[str] = []
        self.is_closed = False
        self._waiting: list[tuple[Callable[[Any], None], Callable[[LaneError], None]]] = []

    def send(
        self,
        request: Message,
        then: Callable[[Any], None],
        failed: Callable[[LaneError], None],
        timeout_ms: int | None = None,
        *,
        version_min: int = 0,
    ) -> None:
        del timeout_ms, version_min
        self.sent.append(request)
        self._waiting.append((then, failed))

    def answer(self, response: Message) -> None:
        then, _ = self._waiting.pop(0)
        then(response)

    def fail(self, failure: LaneFailure = LaneFailure.LOST) -> None:
        _, failed = self._waiting.pop(0)
        failed(LaneError(failure, failure.value, was_sent=True))

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def drop(self, problem: str) -> None:
        self.drops.append(problem)
        while self._waiting:
            self.fail()

    def on_address_changed(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True
        while self._waiting:
            self.fail(LaneFailure.CLOSED)


class LocalPartition:
    """A partition that this broker leads; appends wait for ``commit``, or are refused."""

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.log = SimpleNamespace(log_end_offset=0)
        self.refusal: ErrorCode | None = None
        self.waiting: list[Callable[[ErrorCode], None]] = []

    def append(self, batch: object, now_ms: int, **_: object) -> None:
        del batch, now_ms
        if self.refusal is not None:
            raise ApiError(self.refusal)
        self.log.log_end_offset += 1

    def find_outcome(self, offset: int) -> None:
        assert offset == self.log.log_end_offset

    def when_committed(self, offset: int, outcome: Callable[[ErrorCode], None]) -> None:
        assert offset == self.log.log_end_offset
        self.waiting.append(outcome)

    def commit(self, code: ErrorCode = ErrorCode.NONE) -> None:
        waiting, self.waiting = self.waiting, []
        for outcome in waiting:
            outcome(code)


class ScriptedBroker:
    """What senders need of a ``BrokerServer``."""

    def __init__(self, call_soon: Callable[..., Any]) -> None:
        self.node_id = NODE_ID
        self.lanes: dict[int, ScriptedLane] = {}
        self.fenced: set[int] = set()
        self.leaders: dict[TopicPartition, int] = {}
        self.local: dict[TopicPartition, LocalPartition] = {}
        self.config = SimpleNamespace(integer=lambda _: 30_000)
        self.clock = SimpleNamespace(now_ms=lambda: 0)
        self.slices = Slices(lambda: 0, call_soon)
        self.peers: Any = self
        self.replicas: Any = self

    # The image.

    @property
    def image(self) -> Any:
        topics: dict[str, Any] = {}
        for (name, number), leader in self.leaders.items():
            topic = topics.setdefault(name, SimpleNamespace(partitions={}))
            topic.partitions[number] = SimpleNamespace(leader=leader)
        return SimpleNamespace(topics=topics, brokers=dict.fromkeys((NODE_ID, *OTHERS)))

    # Peers.

    def open_lane(self, purpose: str, broker_id: int, settings: LaneSettings) -> ScriptedLane:
        del purpose, settings
        assert broker_id not in self.lanes
        self.lanes[broker_id] = ScriptedLane()
        return self.lanes[broker_id]

    def find_address(self, broker_id: int) -> Address | None:
        return None if broker_id in self.fenced else (f"broker-{broker_id}", 9092)

    # Replicas.

    def leader(self, partition: TopicPartition) -> LocalPartition:
        return self.local.setdefault(partition, LocalPartition(partition))
