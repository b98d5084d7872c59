"""Record bytes pass through the codec without being copied, whatever their size."""

import tracemalloc

import pytest

from odradek.protocol.generated.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.message import Buffer

MEBIBYTE = 1 << 20


def produce(*records: Buffer | None) -> ProduceRequest:
    partitions = [PartitionProduceData(index=i, records=r) for i, r in enumerate(records)]
    return ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="t", partition_data=partitions)]
    )


@pytest.mark.parametrize("version", [3, 9])
def test_decoded_records_are_views_into_the_input(version: int) -> None:
    data = produce(b"first batch", b"", None).to_bytes(version)
    partitions = ProduceRequest.decode(data, version).topic_data[0].partition_data
    views = [p.records for p in partitions]
    assert isinstance(views[0], memoryview)
    assert views[0].obj is data
    assert views == [b"first batch", b"", None]


def test_a_view_follows_the_buffer_it_was_read_from() -> None:
    data = bytearray(produce(b"first batch").to_bytes(9))
    records = ProduceRequest.decode(data, 9).topic_data[0].partition_data[0].records
    assert records is not None
    data[data.index(b"first")] = ord("F")
    assert bytes(records) == b"First batch"


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_encode_hands_on_the_same_buffer_objects(version: int, kind: type) -> None:
    first, second = kind(b"first"), kind(b"second")
    parts = produce(first, second).encode(version)
    assert [part for part in parts if part is first or part is second] == [first, second]
    assert b"".join(parts) == produce(b"first", b"second").to_bytes(version)


@pytest.mark.seed_row("1.16")
def test_fetch_responses_hand_on_the_same_buffer_objects() -> None:
    records = memoryview(bytes(100))
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])]
    )
    for version in (4, 11, 12, 18):
        response.responses[0].topic = "t" if version < 13 else ""
        assert any(part is records for part in response.encode(version))


@pytest.mark.parametrize("version", [3, 9])
def test_a_mebibyte_of_records_costs_a_few_hundred_bytes(version: int) -> None:
    data = produce(bytes(MEBIBYTE)).to_bytes(version)
    request = ProduceRequest.decode(data, version)
    tracemalloc.start()
    try:
        decoded = ProduceRequest.decode(data, version)
        parts = request.encode(version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoded == request
    assert sum(map(len, parts)) == len(data)
    assert peak < 8 * 1024


def test_encode_continues_behind_what_is_already_written() -> None:
    parts: list[Buffer] = []
    tail = produce(b"records").encode_after(bytearray(b"header"), parts, 9)
    assert b"".join([*parts, tail]) == b"header" + produce(b"records").to_bytes(9)
