"""What a version cannot carry is refused, not lost; what nobody knows yet is kept."""

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.generated.find_coordinator import FindCoordinatorRequest
from odradek.protocol.generated.produce import ProduceRequest
from odradek.protocol.message import Message


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (ProduceRequest(transactional_id="t"), 2, "transactional_id"),
        (ProduceRequest(transactional_id=""), 0, "transactional_id"),
        (FetchRequest(replica_id=1), 15, "replica_id"),
        (FetchRequest(replica_state=ReplicaState(replica_id=1)), 14, "replica_state"),
        (FetchRequest(forgotten_topics_data=[ForgottenTopic()]), 6, "forgotten_topics_data"),
        (FindCoordinatorRequest(key_type=1), 0, "key_type"),
        (FindCoordinatorRequest(coordinator_keys=["k"]), 3, "coordinator_keys"),
        (FindCoordinatorRequest(key="k", key_type=1), 4, "key"),
        (
            FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=3)])]),
            11,
            "last_fetched_epoch",
        ),
    ],
    ids=str,
)
def test_a_field_that_the_version_would_lose_is_refused(
    message: Message, version: int, field: str
) -> None:
    with pytest.raises(ApiError) as caught:
        message.encode(version)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert caught.value.message == f"version {version} cannot carry {field}"


def test_an_ignorable_field_is_dropped_in_silence() -> None:
    with_rack = FetchRequest(rack_id="r", max_bytes=5, isolation_level=1)
    assert with_rack.to_bytes(2) == FetchRequest().to_bytes(2)
    assert ApiVersionsRequest(client_software_name="x").to_bytes(0) == b""


@pytest.mark.parametrize("version", [-1, 19, 32767, 1 << 40])
def test_unknown_versions_are_refused_both_ways(version: int) -> None:
    with pytest.raises(ApiError) as caught:
        FetchRequest.decode(bytes(100), version)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError) as caught:
        FetchRequest().encode(version)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert "0-18" in caught.value.message


def test_unknown_tags_come_back_byte_for_byte() -> None:
    """Tags 4 and 200 mean nothing to us; between them a known one, all in ascending order."""
    body = bytes.fromhex("0000 01 00000000 03")
    known = bytes.fromhex("01 08 0000000000000009")
    data = body + known + b"\x04\x03abc" + b"\xc8\x01\x00"
    decoded = ApiVersionsResponse.decode(data, 3)
    assert decoded.finalized_features_epoch == 9
    assert decoded.unknown_tags == ((4, b"abc"), (200, b""))
    assert decoded.to_bytes(3) == data


def test_unknown_tags_of_nested_structs_come_back_too() -> None:
    partition = FetchPartition(partition=1, unknown_tags=((9, b"p" * 200),))
    topic = FetchTopic(partitions=[partition], unknown_tags=((0, b"t"),))
    request = FetchRequest(topics=[topic], unknown_tags=((77, b""),))
    decoded = FetchRequest.decode(request.to_bytes(13), 13)
    assert decoded == request
    assert decoded.topics[0].partitions[0].unknown_tags == ((9, b"p" * 200),)


def test_unknown_tags_are_not_written_where_there_are_no_tags() -> None:
    request = FetchRequest(unknown_tags=((77, b"x"),))
    assert request.to_bytes(11) == FetchRequest().to_bytes(11)


def test_a_tagged_field_of_default_value_takes_no_bytes() -> None:
    assert FetchRequest(cluster_id=None).to_bytes(15) == FetchRequest().to_bytes(15)
    unset = FetchRequest(replica_state=ReplicaState())
    assert unset.to_bytes(15) == FetchRequest().to_bytes(15)
    assert FetchRequest.decode(unset.to_bytes(15), 15).replica_state is None


def test_a_tagged_struct_is_sent_as_soon_as_one_field_differs() -> None:
    partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=4))
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    decoded = FetchResponse.decode(response.to_bytes(12), 12)
    assert decoded.responses[0].partitions[0].diverging_epoch == EpochEndOffset(epoch=4)
