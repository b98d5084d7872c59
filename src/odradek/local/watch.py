"""Looks at a local cluster all the time, as a client would, and tells what becomes of it.

It asks one broker after the other until one of them answers, with Metadata and DescribeQuorum. One
that the controller does not answer any more is not asked for its view, which may be an old one.
Looks come more often after a fault, and more seldom where they take long.

A new leader has acknowledged a record when its high watermark is beyond the offset at which its
epoch began: what lies before was acknowledged by its predecessor.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from odradek.core.clock import Clock
from odradek.core.errors import OdradekError
from odradek.core.ids import TopicPartition
from odradek.local.events import EventLog
from odradek.local.layout import HOST, NodeLayout
from odradek.local.story import ClusterView, Effect, PartitionView, Story
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.message import Message
from odradek.replication.isr_flaps import Flapping
from odradek.wire.connection import Connection

CLIENT_ID: Final = "odradek-local"
ANSWER_MS_MAX: Final = 1_000
IDLE_SECONDS: Final = 1.0
BUSY_SECONDS: Final = 0.05
IDLE_SHARE: Final = 20
"""A look is followed by a wait that is as many times longer, with nothing going on; and below."""
BUSY_SHARE: Final = 3
ACK_MS_MAX: Final = 60_000
_METADATA_TOPIC: Final = "__cluster_metadata"
_LATEST: Final = -1

R = TypeVar("R", bound=Message)


class Watch:
    """``run`` looks until it is cancelled; ``on_down`` and ``on_back`` make it look closely."""

    def __init__(
        self, brokers: Callable[[], Iterable[NodeLayout]], clock: Clock, events: EventLog
    ) -> None:
        """``brokers`` gives those that run and may be asked."""
        self.story = Story()
        self._brokers = brokers
        self._clock = clock
        self._events = events
        self._connections: dict[int, Connection] = {}
        self._wanted = asyncio.Event()
        self._ack_deadline_ms = 0

    def on_down(self, nodes: Iterable[int]) -> None:
        self.story.on_down(nodes, self._clock.monotonic_ms())
        self._look_closely()

    @property
    def flapping(self) -> list[Flapping]:
        """Brokers whose replicas leave ISRs and rejoin them, as far as looks have shown it."""
        return self.story.flaps.find(self._clock.monotonic_ms())

    def on_back(self, nodes: Iterable[int]) -> None:
        self.story.on_back(nodes, self._clock.monotonic_ms())
        self._look_closely()

    def forget(self) -> None:
        """Take what comes for another cluster."""
        self.story = Story()

    def _look_closely(self) -> None:
        self._ack_deadline_ms = self._clock.monotonic_ms() + ACK_MS_MAX
        self._wanted.set()

    async def run(self) -> None:
        try:
            while True:
                begun_ms = self._clock.monotonic_ms()
                await self.look()
                await self._look_for_ack()
                took = (self._clock.monotonic_ms() - begun_ms) / 1000
                self._wanted.clear()
                busy = max(BUSY_SECONDS, BUSY_SHARE * took)
                wait = busy if self._is_busy else max(IDLE_SECONDS, IDLE_SHARE * took)
                try:
                    await asyncio.wait_for(self._wanted.wait(), wait)
                except TimeoutError:
                    continue
        finally:
            for connection in self._connections.values():
                connection.close()

    async def look(self) -> ClusterView | None:
        """Take a view, and tell what is new; None if no broker can give one."""
        for node in self._brokers():
            try:
                view = await self._view_of(node)
            except (OdradekError, OSError):
                self._drop(node.id)
                continue
            for effect in self.story.on_view(view, self._clock.monotonic_ms()):
                self._tell(effect)
            return view
        return None

    @property
    def _is_busy(self) -> bool:
        is_awaited = bool(self.story.awaited_acks)
        return not self.story.is_settled() or (is_awaited and not self._is_ack_late)

    @property
    def _is_ack_late(self) -> bool:
        return self._clock.monotonic_ms() > self._ack_deadline_ms

    async def _view_of(self, node: NodeLayout) -> ClusterView:
        topic = RequestTopicData(
            topic_name=_METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)]
        )
        quorum = await self._ask(
            node, DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse
        )
        if quorum.error_code or quorum.topics[0].partitions[0].error_code:
            raise OdradekError("the controller does not answer it")
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = await self._ask(node, request, MetadataResponse)
        return ClusterView(
            quorum.topics[0].partitions[0].leader_id,
            frozenset(each.node_id for each in metadata.brokers),
            {
                TopicPartition(topic.name or "", each.partition_index): PartitionView(
                    each.leader_id,
                    each.leader_epoch,
                    tuple(each.replica_nodes),
                    tuple(each.isr_nodes),
                )
                for topic in metadata.topics
                for each in topic.partitions
            },
        )

    async def _look_for_ack(self) -> None:
        if self._is_ack_late:
            self.story.awaited_acks = {}
        awaited = self.story.awaited_acks
        brokers = {node.id: node for node in self._brokers()}
        for leader in {each.leader for each in awaited.values()} & brokers.keys():
            led = {key: each for key, each in awaited.items() if each.leader == leader}
            try:
                has_acked = await self._has_acknowledged(brokers[leader], led)
            except (OdradekError, OSError):
                self._drop(leader)
                continue
            if has_acked and awaited is self.story.awaited_acks:
                self._tell(self.story.on_ack(self._clock.monotonic_ms()))
                return

    async def _has_acknowledged(
        self, leader: NodeLayout, led: dict[TopicPartition, PartitionView]
    ) -> bool:
        begins = await self._ask(
            leader,
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    OffsetForLeaderTopic(
                        topic=key.topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=key.partition, leader_epoch=each.leader_epoch - 1
                            )
                        ],
                    )
                    for key, each in led.items()
                ],
            ),
            OffsetForLeaderEpochResponse,
        )
        asked = [
            ListOffsetsTopic(
                name=key.topic,
                partitions=[ListOffsetsPartition(partition_index=key.partition, timestamp=_LATEST)],
            )
            for key in led
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=asked)
        ends = await self._ask(leader, request, ListOffsetsResponse)
        began = {
            TopicPartition(topic.topic, each.partition): each.end_offset
            for topic in begins.topics
            for each in topic.partitions
            if not each.error_code and each.end_offset >= 0
        }
        return any(
            not each.error_code
            and (at := began.get(TopicPartition(topic.name, each.partition_index))) is not None
            and each.offset > at
            for topic in ends.topics
            for each in topic.partitions
        )

    async def _ask(self, node: NodeLayout, request: Message, response: type[R]) -> R:
        connection = self._connections.get(node.id)
        if connection is None or not connection.is_open:
            assert node.port is not None
            connection = await Connection.open(
                HOST, node.port, client_id=CLIENT_ID, timeout_ms=ANSWER_MS_MAX
            )
            self._connections[node.id] = connection
        return await connection.ask(request, response, timeout_ms=ANSWER_MS_MAX)

    def _drop(self, node_id: int) -> None:
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def _tell(self, effect: Effect) -> None:
        if effect.after_ms is None:
            self._events.fault(effect.text)
        else:
            self._events.effect(effect.after_ms, effect.text)
