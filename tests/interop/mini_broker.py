"""The least broker that real clients will produce to and fetch from: one topic, in memory.

It stores the record bytes of Produce requests as they came and serves what it is given, so that
tests can hold our record formats against other people's clients before there is a real broker.
"""

import socket
import socketserver
import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from odradek.core.ids import Uuid
from odradek.protocol.apis import ALL_APIS
from odradek.protocol.framing import FrameReader, Request, frame_response, open_request
from odradek.protocol.generated import api_versions, fetch, list_offsets, metadata, produce
from odradek.protocol.message import Message

TOPIC = "t"
TOPIC_ID = Uuid(b"the-topic-id-16b")
FRAME_BYTES_MAX = 10_000_000
# No InitProducerId, no groups: clients are told to go without. The caps keep topics named.
# FindCoordinator is never asked for, but without it librdkafka takes us for a Kafka 0.8 that
# cannot read LZ4 and sends uncompressed batches.
VERSION_MAX = {
    "Produce": 12,
    "Fetch": 12,
    "ListOffsets": 7,
    "Metadata": 9,
    "ApiVersions": 3,
    "FindCoordinator": 2,
}


class MiniBroker(AbstractContextManager["MiniBroker"]):
    def __init__(self, log: list[bytes] | None = None, log_end_offset: int = 0) -> None:
        """Serve ``log``, blobs of batches whose offsets are already right."""
        self.log = log or []
        self.log_end_offset = log_end_offset
        self.produced: list[bytes] = []
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: Request) -> Message | None:
        message = None if request.is_unknown_api_versions else request.decode()
        match message:
            case None:
                return self._api_versions(error_code=35)
            case api_versions.ApiVersionsRequest():
                return self._api_versions()
            case metadata.MetadataRequest():
                return self._metadata()
            case produce.ProduceRequest():
                return self._produce(message)
            case list_offsets.ListOffsetsRequest():
                return self._list_offsets(message)
            case fetch.FetchRequest():
                return self._fetch(message)
        raise AssertionError(f"{request.api.name} was not advertised")

    def _api_versions(self, error_code: int = 0) -> Message:
        keys = [
            api_versions.ApiVersion(
                api_key=api.key,
                min_version=0 if api.name == "Produce" else api.version_min,
                max_version=VERSION_MAX[api.name],
            )
            for api in ALL_APIS
            if api.name in VERSION_MAX
        ]
        return api_versions.ApiVersionsResponse(error_code=error_code, api_keys=keys)

    def _metadata(self) -> Message:
        partition = metadata.MetadataResponsePartition(
            leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = metadata.MetadataResponseTopic(name=TOPIC, partitions=[partition])
        node = metadata.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return metadata.MetadataResponse(
            brokers=[node], cluster_id="mini", controller_id=1, topics=[topic]
        )

    def _produce(self, request: produce.ProduceRequest) -> Message | None:
        topics = []
        for topic in request.topic_data:
            done = []
            for partition in topic.partition_data:
                assert partition.records is not None
                self.produced.append(bytes(partition.records))
                done.append(produce.PartitionProduceResponse(index=partition.index))
            topics.append(produce.TopicProduceResponse(name=topic.name, partition_responses=done))
        return produce.ProduceResponse(responses=topics) if request.acks else None

    def _list_offsets(self, request: list_offsets.ListOffsetsRequest) -> Message:
        topics = [
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index,
                        offset=0 if partition.timestamp == -2 else self.log_end_offset,
                        leader_epoch=0,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _fetch(self, request: fetch.FetchRequest) -> Message:
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partitions:
                # Everything or nothing: clients skip what lies before the offset they want.
                rest = partition.fetch_offset < self.log_end_offset
                partitions.append(
                    fetch.PartitionData(
                        partition_index=partition.partition,
                        high_watermark=self.log_end_offset,
                        last_stable_offset=self.log_end_offset,
                        log_start_offset=0,
                        records=b"".join(self.log) if rest else b"",
                    )
                )
            topics.append(fetch.FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        return fetch.FetchResponse(responses=topics)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, broker: MiniBroker) -> None:
        self.broker = broker
        super().__init__(("127.0.0.1", 0), _Connection)


class _Connection(socketserver.BaseRequestHandler):
    request: socket.socket
    server: _Server

    def handle(self) -> None:
        reader = FrameReader(FRAME_BYTES_MAX)
        while count := self._receive(reader.writable()):
            reader.wrote(count)
            while (frame := reader.next_frame()) is not None:
                self._reply(open_request(frame))

    def _receive(self, space: memoryview) -> int:
        try:
            return self.request.recv_into(space)
        except ConnectionError:
            return 0

    def _reply(self, request: Request) -> None:
        response = self.server.broker.answer(request)
        if response is not None:
            version = 0 if request.is_unknown_api_versions else request.version
            parts = frame_response(response, request.api, version, request.correlation_id)
            self.request.sendall(b"".join(parts))
