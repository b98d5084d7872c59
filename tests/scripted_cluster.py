"""Several brokers in one process that do as a test says: one topic, one partition, who leads it.

For what a single node cannot show a client: a leader that moves, a replica to fetch from, a log
that a new leader has less of. Answers Fetch (without sessions), ListOffsets and
OffsetForLeaderEpoch from a log that the test writes; remembers who was asked what.
"""

import asyncio
from collections.abc import Callable
from typing import Self

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.apis import ALL_APIS
from odradek.protocol.framing import FrameReader, frame_response, open_request
from odradek.protocol.generated import (
    api_versions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from odradek.protocol.message import Message
from odradek.records import BatchBuilder

TOPIC = "t"
TOPIC_ID = Uuid(b"the-topic-id-16b")
SPOKEN = {"Fetch", "ListOffsets", "Metadata", "ApiVersions", "OffsetForLeaderEpoch"}
LATEST = -1
NO_REPLICA = -1


class ScriptedCluster:
    """Starts with ``async with``; ``leader``, ``leader_epoch`` and the rest may change any time."""

    def __init__(self, nodes: int = 3) -> None:
        self.leader = 0
        self.leader_epoch = 0
        self.preferred_replica = NO_REPLICA
        self.tells_new_leader = False
        """Whether a broker that is asked in vain says who leads (KIP-951)."""
        self.log: list[tuple[int, bytes]] = []
        """Epoch and value of each record; its place is its offset."""
        self.asked: list[tuple[int, str]] = []
        self.metadata_leader: tuple[int, int] | None = None
        """What metadata says, where that is not so any more."""
        self._count = nodes
        self._servers: list[asyncio.Server] = []
        self._connections: list[_Connection] = []
        self.ports: list[int] = []

    def write(self, *values: bytes) -> None:
        self.log += [(self.leader_epoch, value) for value in values]

    def elect(self, leader: int) -> None:
        self.leader, self.leader_epoch = leader, self.leader_epoch + 1

    def stop(self, node_id: int) -> None:
        """Have a broker accept nobody any more."""
        self._servers[node_id].close()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for node_id in range(self._count):

            def connect(node_id: int = node_id) -> _Connection:
                made = _Connection(lambda request: self._answer(node_id, request))
                self._connections.append(made)
                return made

            server = await loop.create_server(connect, "127.0.0.1", 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.close()

    def _answer(self, node_id: int, request: Message) -> Message:
        self.asked.append((node_id, type(request).__name__.removesuffix("Request")))
        match request:
            case api_versions.ApiVersionsRequest():
                return _versions()
            case metadata.MetadataRequest():
                return self._metadata()
            case fetch.FetchRequest():
                return self._fetch(node_id, request)
            case list_offsets.ListOffsetsRequest():
                return self._list_offsets(request)
            case offset_for_leader_epoch.OffsetForLeaderEpochRequest():
                return self._epoch_end(request)
        raise AssertionError(f"not asked for: {request!r}")

    def _metadata(self) -> metadata.MetadataResponse:
        leader, epoch = self.metadata_leader or (self.leader, self.leader_epoch)
        nodes = list(range(self._count))
        partition = metadata.MetadataResponsePartition(
            leader_id=leader, leader_epoch=epoch, replica_nodes=nodes, isr_nodes=nodes
        )
        topic = metadata.MetadataResponseTopic(
            name=TOPIC, topic_id=TOPIC_ID, partitions=[partition]
        )
        brokers = [
            metadata.MetadataResponseBroker(node_id=n, host="127.0.0.1", port=port)
            for n, port in enumerate(self.ports)
        ]
        return metadata.MetadataResponse(brokers=brokers, controller_id=0, topics=[topic])

    def _fetch(self, node_id: int, request: fetch.FetchRequest) -> fetch.FetchResponse:
        data = fetch.PartitionData(high_watermark=len(self.log), log_start_offset=0)
        for topic in request.topics:
            for asked in topic.partitions:
                self._fetch_partition(node_id, asked, data)
        found = fetch.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        return fetch.FetchResponse(responses=[found] if request.topics else [])

    def _fetch_partition(
        self, node_id: int, asked: fetch.FetchPartition, data: fetch.PartitionData
    ) -> None:
        is_leader = node_id == self.leader
        if not is_leader and node_id != self.preferred_replica:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if self.tells_new_leader:
                data.current_leader = fetch.LeaderIdAndEpoch(
                    leader_id=self.leader, leader_epoch=self.leader_epoch
                )
        elif asked.current_leader_epoch < self.leader_epoch:
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.fetch_offset > len(self.log):
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif is_leader and self.preferred_replica not in (NO_REPLICA, node_id):
            data.preferred_read_replica = self.preferred_replica
        else:
            data.records = self._batches(asked.fetch_offset)

    def _batches(self, offset: int) -> bytes:
        batches = b""
        for place, (epoch, value) in enumerate(self.log[offset:], offset):
            builder = BatchBuilder(base_offset=place, partition_leader_epoch=epoch)
            builder.append(0, None, value)
            batches += bytes(builder.build())
        return batches

    def _list_offsets(
        self, request: list_offsets.ListOffsetsRequest
    ) -> list_offsets.ListOffsetsResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        found = list_offsets.ListOffsetsPartitionResponse(
            offset=len(self.log) if asked.timestamp == LATEST else 0, leader_epoch=0
        )
        return list_offsets.ListOffsetsResponse(
            topics=[list_offsets.ListOffsetsTopicResponse(name=TOPIC, partitions=[found])]
        )

    def _epoch_end(
        self, request: offset_for_leader_epoch.OffsetForLeaderEpochRequest
    ) -> offset_for_leader_epoch.OffsetForLeaderEpochResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        before = [epoch for epoch, _ in self.log if epoch <= asked.leader_epoch]
        end = offset_for_leader_epoch.EpochEndOffset(
            leader_epoch=max(before, default=-1), end_offset=len(before) if before else -1
        )
        result = offset_for_leader_epoch.OffsetForLeaderTopicResult(topic=TOPIC, partitions=[end])
        return offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=[result])


def _versions() -> api_versions.ApiVersionsResponse:
    known = [
        api_versions.ApiVersion(
            api_key=api.key, min_version=api.version_min, max_version=api.version_stable_max
        )
        for api in ALL_APIS
        if api.name in SPOKEN
    ]
    return api_versions.ApiVersionsResponse(api_keys=known)


class _Connection(asyncio.Protocol):
    def __init__(self, answer: Callable[[Message], Message]) -> None:
        self._answer = answer
        self._reader = FrameReader(1 << 20)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.receive(data)
        while (frame := self._reader.next_frame()) is not None:
            request = open_request(frame)
            answer = self._answer(request.decode())
            # An idle fetch is held back a little, as a broker does: clients ask again at once.
            delay = 0.005 if request.api.name == "Fetch" else 0.0
            asyncio.get_running_loop().call_later(
                delay,
                self._send,
                frame_response(answer, request.api, request.version, request.correlation_id),
            )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self, frame: list[bytes | bytearray | memoryview]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(frame)
