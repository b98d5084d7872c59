"""What a cluster says of itself over the wire: the same for nodes of any kind, also real Kafka's.

Every node that can answer is asked, because one that is cut off believes what was true before; of
two answers about a partition the one with the later epoch counts.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from odradek.net.event_loop import new_event_loop
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.message import Message
from odradek.wire.connection import Connection
from odradek.wire.errors import KafkaError

T = TypeVar("T")
R = TypeVar("R", bound=Message)

ANSWER_MS_MAX: Final = 1_000
CREATE_MS_MAX: Final = 30_000
NOBODY: Final = -1
METADATA_TOPIC: Final = "__cluster_metadata"

Address = tuple[str, int]


class PartitionState(NamedTuple):
    """A partition as clients see it; ``leader`` is None while there is none."""

    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the nodes that answered say."""

    controller: int | None = None
    brokers: frozenset[int] = frozenset()
    """Those that are registered and not fenced."""
    topics: Mapping[str, Mapping[int, PartitionState]] = field(default_factory=dict)

    @property
    def partitions(self) -> Iterable[tuple[str, int, PartitionState]]:
        for topic, partitions in self.topics.items():
            for number, state in partitions.items():
                yield topic, number, state


class Asker:
    """Asks from a thread of its own, for callers with and without an event loop."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._connections: dict[Address, Connection] = {}
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="odradek-asker", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        async def close() -> None:
            for connection in self._connections.values():
                connection.close()
            await asyncio.gather(*(each.closed for each in self._connections.values()))

        self._call(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def state(self, addresses: Iterable[Address]) -> ClusterState:
        return self._call(self._state(addresses))

    def create_topic(
        self,
        addresses: Iterable[Address],
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
    ) -> None:
        """Create a topic by whichever node answers.

        Raises:
            ValueError: The controller refuses.
            KafkaError: No node answers.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_MS_MAX)
        answer = self._call(self._ask_any(addresses, request, CreateTopicsResponse))
        result = answer.topics[0]
        if result.error_code:
            raise ValueError(f"cannot create topic {name}: {result.error_message}")

    async def _state(self, addresses: Iterable[Address]) -> ClusterState:
        answers = await asyncio.gather(*map(self._state_by, addresses))
        known = [each for each in answers if each is not None]
        topics: dict[str, dict[int, PartitionState]] = {}
        for metadata, _ in known:
            _add_partitions(topics, metadata)
        led = [(quorum, metadata) for metadata, quorum in known if not quorum.error_code]
        if not led:
            return ClusterState(topics=topics)
        # Of those that think they know who leads, the one that knows of the latest.
        newest, metadata = max(led, key=lambda each: each[0].leader_epoch)
        brokers = frozenset(broker.node_id for broker in metadata.brokers)
        return ClusterState(newest.leader_id, brokers, topics)

    async def _state_by(
        self, address: Address
    ) -> tuple[MetadataResponse, ResponsePartitionData] | None:
        topic = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData()])
        request = DescribeQuorumRequest(topics=[topic])
        try:
            metadata = await self._ask(address, MetadataRequest(topics=None), MetadataResponse)
            quorum = await self._ask(address, request, DescribeQuorumResponse)
        except KafkaError:
            return None
        return metadata, quorum.topics[0].partitions[0]

    async def _ask_any(
        self, addresses: Iterable[Address], request: Message, response: type[R]
    ) -> R:
        failure: KafkaError | None = None
        for address in addresses:
            try:
                return await self._ask(address, request, response, timeout_ms=CREATE_MS_MAX)
            except KafkaError as error:
                failure = error
        raise failure or KafkaError("no node is there to ask")

    async def _ask(
        self,
        address: Address,
        request: Message,
        response: type[R],
        timeout_ms: float = ANSWER_MS_MAX,
    ) -> R:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await Connection.open(
                *address, client_id="odradek-testing", timeout_ms=ANSWER_MS_MAX
            )
            self._connections[address] = connection
        return await connection.ask(request, response, timeout_ms=timeout_ms)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _add_partitions(
    topics: dict[str, dict[int, PartitionState]], metadata: MetadataResponse
) -> None:
    for topic in metadata.topics:
        partitions = topics.setdefault(topic.name or "", {})
        for each in topic.partitions:
            before = partitions.get(each.partition_index)
            if before is None or each.leader_epoch >= before.leader_epoch:
                partitions[each.partition_index] = PartitionState(
                    None if each.leader_id == NOBODY else each.leader_id,
                    each.leader_epoch,
                    tuple(each.replica_nodes),
                    frozenset(each.isr_nodes),
                )
