"""Raft's values survive the way over the wire, in the versions that can carry them."""

from typing import get_args

import pytest

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated import fetch, fetch_snapshot, vote
from odradek.protocol.message import Message
from odradek.quorum.raft_channel_port import LeaderAddress, Sender
from odradek.quorum.raft_requests import leader_named_by, request_from_wire, request_to_wire
from odradek.quorum.raft_responses import (
    leader_address_in,
    refusal_to_wire,
    response_from_wire,
    response_to_wire,
)
from odradek.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderResponse,
    OffsetAndEpoch,
    ReplicaKey,
    Request,
    Response,
    VoterEndpoint,
    VoteRequest,
    VoteResponse,
)

ME, PEER = (ReplicaKey(i, Uuid(bytes([i] * 16))) for i in (1, 2))
SENDER = Sender("cluster-a", (VoterEndpoint("CONTROLLER", "host-2", 9093),), 1 << 20)
LEADER = LeaderAddress(2, "host-2", 9093)
NONE = ErrorCode.NONE

REQUESTS: list[tuple[Request, int]] = [
    (VoteRequest(7, ME, PEER, 5, 40, 4, pre_vote=True), 2),
    (VoteRequest(7, ME, PEER, 5, 40, 4, pre_vote=False), 1),
    (BeginQuorumEpochRequest(7, ME, 2, 5), 1),
    (EndQuorumEpochRequest(7, 2, 5, (ME, ReplicaKey(3, Uuid(bytes([3] * 16))))), 1),
    (FetchRequest(7, PEER, 5, 40, 4, 33, 500), 18),
    (FetchRequest(7, PEER, 5, 40, 4, None, 500), 18),
    (FetchRequest(7, PEER, 5, 40, 4, (1 << 63) - 1, 500), 17),
    (FetchSnapshotRequest(7, PEER, 5, OffsetAndEpoch(30, 3), 100, 1 << 20), 1),
]
RESPONSES: list[tuple[Response, int]] = [
    (VoteResponse(7, 2, NONE, 2, 5, True), 2),
    (VoteResponse(7, 2, ErrorCode.FENCED_LEADER_EPOCH, None, 6, False), 1),
    (BeginQuorumEpochResponse(7, 2, NONE, 2, 5), 1),
    (EndQuorumEpochResponse(7, 2, ErrorCode.INVALID_REQUEST, None, 5), 1),
    (FetchResponse(7, 2, NONE, 2, 5, 33, records=b"batches"), 18),
    (FetchResponse(7, 2, NONE, 2, 5, None), 17),
    (FetchResponse(7, 2, NONE, 2, 5, 33, diverging_epoch=OffsetAndEpoch(20, 3)), 17),
    (FetchResponse(7, 2, NONE, 2, 5, 33, snapshot_id=OffsetAndEpoch(30, 4)), 12),
    (FetchSnapshotResponse(7, 2, NONE, 2, 5, OffsetAndEpoch(30, 4), 500, 100, b"piece"), 1),
]


def over_the_wire(message: Message, version: int) -> Message:
    return type(message).decode(memoryview(message.to_bytes(version)), version)


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda value: str(value)[:30])
def test_requests_arrive_as_they_were_meant(request_: Request, version: int) -> None:
    received = over_the_wire(request_to_wire(request_, SENDER), version)
    assert request_from_wire(received, 7, cluster_id="cluster-a", own_id=1) == request_


@pytest.mark.parametrize(("response", "version"), RESPONSES, ids=lambda value: str(value)[:30])
def test_responses_arrive_as_they_were_meant(response: Response, version: int) -> None:
    received = over_the_wire(response_to_wire(response, LEADER, version), version)
    assert response_from_wire(received, 7, 2) == response
    has_addresses = version != 12  # Fetch 12 is from before KIP-853
    assert leader_address_in(received) == (LEADER if has_addresses else None)


def test_a_peer_from_before_directory_ids_means_the_one_it_has_reached() -> None:
    sent = VoteRequest(7, ME, PEER, 5, 40, 4, pre_vote=False)
    received = over_the_wire(request_to_wire(sent, SENDER), 0)
    found = request_from_wire(received, 7, cluster_id="cluster-a", own_id=1)
    assert found == VoteRequest(7, ReplicaKey(1), ReplicaKey(2), 5, 40, 4, pre_vote=False)


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda value: str(value)[:30])
def test_requests_of_another_cluster_are_refused(request_: Request, version: int) -> None:
    received = over_the_wire(request_to_wire(request_, SENDER), version)
    with pytest.raises(ApiError) as refused:
        request_from_wire(received, 7, cluster_id="cluster-b", own_id=1)
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    refusal = over_the_wire(refusal_to_wire(received, refused.value.code), version)
    response = response_from_wire(refusal, 7, 2)
    assert response.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert isinstance(response, get_args(LeaderResponse))
    assert response.leader_epoch == -1, "nothing is learnt from it"


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [fetch_snapshot.RequestTopicSnapshot(name="__cluster_metadata", partitions=[])],
        [fetch_snapshot.RequestTopicSnapshot(name="orders")],
        [fetch_snapshot.RequestTopicSnapshot(name="__cluster_metadata")] * 2,
    ],
)
def test_misshapen_requests_are_refused(
    topics: list[fetch_snapshot.RequestTopicSnapshot],
) -> None:
    for topic in topics[1:] or topics[:1]:
        if topic.name == "orders":
            topic.partitions = [fetch_snapshot.RequestPartitionSnapshot()]
    received = fetch_snapshot.FetchSnapshotRequest(cluster_id="cluster-a", topics=topics)
    with pytest.raises(ApiError) as refused:
        request_from_wire(received, 7, cluster_id="cluster-a", own_id=1)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_partitions_that_are_not_the_metadata_log_are_refused() -> None:
    partition = fetch.FetchPartition(partition=1)
    topic = fetch.FetchTopic(topic="__cluster_metadata", partitions=[partition])
    received = fetch.FetchRequest(topics=[topic])
    with pytest.raises(ApiError, match="__cluster_metadata-1 is not __cluster_metadata-0"):
        request_from_wire(received, 7, cluster_id="cluster-a", own_id=1)


def test_responses_about_nothing_are_bad_bytes() -> None:
    with pytest.raises(CorruptionError):
        response_from_wire(vote.VoteResponse(), 7, 2)


def test_codes_of_tomorrow_are_errors_all_the_same() -> None:
    response = response_from_wire(vote.VoteResponse(error_code=31_000), 7, 2)
    assert response.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_leader_says_where_it_listens() -> None:
    sent = request_to_wire(BeginQuorumEpochRequest(7, ME, 2, 5), SENDER)
    assert leader_named_by(over_the_wire(sent, 1), "CONTROLLER") == LEADER
    assert leader_named_by(over_the_wire(sent, 1), "OTHER") is None
    assert leader_named_by(request_to_wire(REQUESTS[0][0], SENDER), "CONTROLLER") is None
