"""Encoding and decoding messages: odradek, kio, kafka-python, aiokafka.

Every library gets the same bytes; the objects to encode are what each made of them itself.
aiokafka stops at Produce v8 and Fetch v11, so those versions are compared, and the newest ones are
shown for us and kio.
"""

import io
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, ClassVar

import aiokafka.protocol.fetch
import aiokafka.protocol.produce
import kafka.protocol.consumer
import kafka.protocol.producer
from kio.serial import entity_reader, entity_writer

from bench.timing import Row, microseconds
from odradek.core.ids import Uuid
from odradek.protocol.apis import message_class
from odradek.protocol.generated.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.message import Message

KIB = 1024
Call = Callable[[], object]


def produce_request(records_bytes: int, version: int) -> bytes:
    partition = PartitionProduceData(index=3, records=bytes(records_bytes))
    topic = TopicProduceData(partition_data=[partition])
    if version < 13:
        topic.name = "orders"
    else:
        topic.topic_id = Uuid(b"orders-topic-id!")
    return ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic]).to_bytes(version)


def fetch_response(partitions: int, records_bytes: int, version: int) -> bytes:
    topic = FetchableTopicResponse()
    if version < 13:
        topic.topic = "orders"
    topic.partitions = [
        PartitionData(
            partition_index=index,
            high_watermark=1000,
            last_stable_offset=1000,
            log_start_offset=0,
            aborted_transactions=None,
            records=bytes(records_bytes),
        )
        for index in range(partitions)
    ]
    return FetchResponse(responses=[topic]).to_bytes(version)


class Odradek:
    name = "odradek"

    def decoder(self, message: str, version: int, data: bytes) -> Call | None:
        kind, view = message_class(message), memoryview(bytearray(data))
        return lambda: kind.decode(view, version)

    def encoder(self, message: str, version: int, data: bytes) -> Call | None:
        made: Message = message_class(message).decode(data, version)
        return lambda: made.encode(version)


class Kio:
    name = "kio"

    def _kind(self, message: str, version: int) -> Any:
        api, part = ("produce", "request") if message == "ProduceRequest" else ("fetch", "response")
        return getattr(import_module(f"kio.schema.{api}.v{version}.{part}"), message)

    def decoder(self, message: str, version: int, data: bytes) -> Call | None:
        read, view = entity_reader(self._kind(message, version)), memoryview(data)
        return lambda: read(view, 0)

    def encoder(self, message: str, version: int, data: bytes) -> Call | None:
        kind = self._kind(message, version)
        made = entity_reader(kind)(memoryview(data), 0)[0]
        write = entity_writer(kind)

        def encode() -> bytes:
            buffer = io.BytesIO()
            write(buffer, made)
            return buffer.getvalue()

        return encode


class KafkaPython:
    name = "kafka-python"
    kinds: ClassVar = {
        "ProduceRequest": kafka.protocol.producer.ProduceRequest,
        "FetchResponse": kafka.protocol.consumer.FetchResponse,
    }

    def decoder(self, message: str, version: int, data: bytes) -> Call | None:
        kind, view = self.kinds[message], memoryview(data)
        return lambda: kind.decode(view, version=version)

    def encoder(self, message: str, version: int, data: bytes) -> Call | None:
        made = self.kinds[message].decode(data, version=version)
        made._header = None  # decoding without a header leaves it unset, encoding wants it set
        return lambda: made.encode(version=version)


class Aiokafka:
    name = "aiokafka"

    def _kind(self, message: str, version: int) -> Any:
        part = "produce" if message == "ProduceRequest" else "fetch"
        return getattr(getattr(aiokafka.protocol, part), f"{message}_v{version}", None)

    def decoder(self, message: str, version: int, data: bytes) -> Call | None:
        kind = self._kind(message, version)
        return None if kind is None else lambda: kind.decode(data)

    def encoder(self, message: str, version: int, data: bytes) -> Call | None:
        kind = self._kind(message, version)
        if kind is None:
            return None
        made = kind.decode(data)
        return lambda: made.encode()


LIBRARIES = (Odradek(), Kio(), KafkaPython(), Aiokafka())


def run() -> Iterator[Row]:
    for version, size in ((8, 16), (8, 1024), (9, 16), (13, 16)):
        data = produce_request(size * KIB, version)
        title = f"decode Produce v{version}, 1 x {size} KiB"
        for library in LIBRARIES:
            if call := library.decoder("ProduceRequest", version, data):
                yield Row(title, library.name, microseconds(call), "µs")
    for version, size in ((11, 64), (11, 1024), (17, 64)):
        data = fetch_response(10, size * KIB, version)
        title = f"encode Fetch v{version} response, 10 x {size} KiB"
        for library in LIBRARIES:
            if call := library.encoder("FetchResponse", version, data):
                yield Row(title, library.name, microseconds(call), "µs")
