"""Produce, Fetch and ListOffsets in few words, for tests that speak the protocol themselves."""

import time
from collections.abc import Sequence

from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.records import read_all
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch

PRODUCE_VERSION = 8
FETCH_VERSION = 12
_EARLIEST = -2


def produce_request(topic: str, *values: bytes, acks: int = -1) -> ProduceRequest:
    """Return a request in a version with topic names."""
    batch = make_batch(values, timestamp=time.time_ns() // 1_000_000)
    partition = PartitionProduceData(index=0, records=batch)
    data = TopicProduceData(name=topic, partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def fetch_request(topics: Sequence[str], max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition]) for topic in topics],
    )


def values_in(response: FetchResponse) -> list[bytes | None]:
    (topic,) = response.responses
    (partition,) = topic.partitions
    records = read_all(bytes(partition.records or b""))
    return [None if record.value is None else bytes(record.value) for record in records]


def fetched(connection: BrokerConnection, topic: str) -> list[bytes | None]:
    """Return the values in a topic, from its first offset."""
    return values_in(connection.ask(fetch_request([topic]), FetchResponse, FETCH_VERSION))


def earliest_offset(connection: BrokerConnection, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=_EARLIEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
    )
    answer = connection.ask(request, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset
