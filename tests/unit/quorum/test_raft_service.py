"""Requests of the quorum that are wrong, or come at the wrong time: answered, without effect."""

import logging
from typing import TypeVar

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.event import Event
from odradek.core.ids import ZERO_UUID
from odradek.protocol.generated import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from odradek.protocol.message import Message
from odradek.quorum.raft_requests import METADATA_TOPIC, METADATA_TOPIC_ID
from odradek.quorum.raft_service import PENDING_MAX, WAIT_MS_MAX
from odradek.raft.config import PARKED_FETCHES_MAX
from tests.unit.quorum.quorum_members import (
    CLUSTER_ID,
    LISTENER,
    Member,
    QuorumCluster,
    directory_of,
)

M = TypeVar("M", bound=Message)


def ask(member: Member, request: Message, kind: type[M], version: int | None = None) -> M:
    version = request.VERSION_MAX if version is None else version
    answers: list[Message] = []
    member.quorum.handle(request, version, answers.append)
    (answer,) = answers
    assert isinstance(answer, kind)
    return kind.decode(answer.to_bytes(version), version)


def fetch_request(
    leader: Member,
    *,
    topics: int = 1,
    partitions: int = 1,
    cluster_id: str | None = CLUSTER_ID,
    number: int = 0,
    replica_id: int = -1,
    epoch: int | None = None,
    offset: int | None = None,
    wait_ms: int = 0,
) -> fetch.FetchRequest:
    quorum = leader.quorum
    part = fetch.FetchPartition(
        partition=number,
        current_leader_epoch=quorum.epoch if epoch is None else epoch,
        fetch_offset=quorum.log_end_offset if offset is None else offset,
        last_fetched_epoch=0 if offset == 0 else quorum.log.leader_epochs.latest_epoch or 0,
        partition_max_bytes=1 << 20,
        high_watermark=quorum.high_watermark or -1,
    )
    topic = fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[part] * partitions)
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=replica_id),
        max_wait_ms=wait_ms,
        max_bytes=1 << 20,
        topics=[topic] * topics,
    )


def snapshot_request(topics: int, partitions: int) -> fetch_snapshot.FetchSnapshotRequest:
    part = fetch_snapshot.RequestPartitionSnapshot(
        partition=0, snapshot_id=fetch_snapshot.SnapshotId(end_offset=1, epoch=1)
    )
    topic = fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[part] * partitions)
    return fetch_snapshot.FetchSnapshotRequest(cluster_id=CLUSTER_ID, topics=[topic] * topics)


def vote_request(topics: int, partitions: int) -> vote.VoteRequest:
    part = vote.RequestPartitionData(partition_index=0, replica_id=2, replica_epoch=99)
    topic = vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[part] * partitions)
    return vote.VoteRequest(cluster_id=CLUSTER_ID, voter_id=1, topics=[topic] * topics)


def begin_request(
    topics: int, partitions: int, leader_id: int = 2, epoch: int = 99
) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    part = begin_quorum_epoch.RequestPartitionData(
        partition_index=0, leader_id=leader_id, leader_epoch=epoch
    )
    topic = begin_quorum_epoch.RequestTopicData(
        topic_name=METADATA_TOPIC, partitions=[part] * partitions
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID, topics=[topic] * topics
    )


def end_request(topics: int, partitions: int) -> end_quorum_epoch.EndQuorumEpochRequest:
    part = end_quorum_epoch.RequestPartitionData(
        partition_index=0, leader_id=2, leader_epoch=99, preferred_successors=[]
    )
    topic = end_quorum_epoch.RequestTopicData(
        topic_name=METADATA_TOPIC, partitions=[part] * partitions
    )
    return end_quorum_epoch.EndQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[topic] * topics)


@pytest.fixture
def leader() -> Member:
    return QuorumCluster(1).begin()


SHAPES = [(0, 0), (1, 0), (1, 2), (2, 1)]


@pytest.mark.parametrize(("topics", "partitions"), SHAPES)
def test_not_exactly_one_partition_is_refused(
    leader: Member, topics: int, partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = leader.quorum.leader
    invalid = ErrorCode.INVALID_REQUEST
    with caplog.at_level(logging.WARNING, "odradek.quorum"):
        for _ in range(2):
            asked = fetch_request(leader, topics=topics, partitions=partitions)
            assert ask(leader, asked, fetch.FetchResponse).error_code == invalid
            for request, kind in (
                (snapshot_request(topics, partitions), fetch_snapshot.FetchSnapshotResponse),
                (vote_request(topics, partitions), vote.VoteResponse),
                (begin_request(topics, partitions), begin_quorum_epoch.BeginQuorumEpochResponse),
                (end_request(topics, partitions), end_quorum_epoch.EndQuorumEpochResponse),
            ):
                answer: Message = ask(leader, request, kind)
                assert answer.error_code == invalid  # type: ignore[attr-defined]
    assert leader.quorum.leader == before
    assert leader.quorum.pending_count == 0
    logged = [each.msg for each in caplog.records if isinstance(each.msg, Event)]
    assert len(logged) == 5  # one line for each kind of request, however often it comes


def test_another_cluster_is_refused_before_all_else(leader: Member) -> None:
    answer = ask(leader, fetch_request(leader, topics=0, cluster_id="other"), fetch.FetchResponse)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    answer = ask(leader, fetch_request(leader, cluster_id=None), fetch.FetchResponse)
    assert answer.error_code == 0


def test_a_fetch_in_another_epoch_is_refused_and_learns_who_leads(leader: Member) -> None:
    epoch = leader.quorum.epoch
    for asked, code in (
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        answer = ask(leader, fetch_request(leader, epoch=asked, offset=0), fetch.FetchResponse)
        part = answer.responses[0].partitions[0]
        assert part.error_code == code
        assert part.current_leader is not None
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (
            leader.id,
            epoch,
        )
        assert [each.host for each in answer.node_endpoints] == [f"host-{leader.id}"]
    follower = next(each for each in leader.cluster.up() if each is not leader)
    answer = ask(follower, fetch_request(leader, offset=0), fetch.FetchResponse)
    part = answer.responses[0].partitions[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [each.host for each in answer.node_endpoints] == [f"host-{leader.id}"]


def test_records_are_sent_as_they_are_stored(leader: Member) -> None:
    answer = ask(leader, fetch_request(leader, offset=0), fetch.FetchResponse)
    stored = leader.quorum.log.read(0, bytes_max=1 << 20).records
    assert bytes(answer.responses[0].partitions[0].records or b"") == bytes(stored)


def test_no_more_bytes_are_sent_than_asked_for_but_a_whole_batch(leader: Member) -> None:
    request = fetch_request(leader, offset=0)
    request.max_bytes = 1
    answer = ask(leader, request, fetch.FetchResponse)
    first = leader.quorum.log.read(0, bytes_max=1).records
    assert bytes(answer.responses[0].partitions[0].records or b"") == bytes(first)


@pytest.mark.parametrize("number", [1, -1])
def test_another_partition_is_refused(leader: Member, number: int) -> None:
    answer = ask(leader, fetch_request(leader, number=number), fetch.FetchResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_two_leaders_in_one_epoch_are_refused_and_change_nothing(
    leader: Member, caplog: pytest.LogCaptureFixture
) -> None:
    follower = next(each for each in leader.cluster.up() if each is not leader)
    third = next(each for each in leader.cluster.up() if each not in (leader, follower))
    request = begin_request(1, 1, leader_id=third.id, epoch=leader.quorum.epoch)
    with caplog.at_level(logging.WARNING, "odradek.quorum"):
        answer = ask(follower, request, begin_quorum_epoch.BeginQuorumEpochResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert follower.quorum.leader == leader.quorum.leader
    assert follower.failure is None
    assert "has two leaders" in caplog.text
    leader.cluster.wait_loaded(leader.create_topic("goes on"))


def test_waiting_fetches_are_bounded_and_all_answered(leader: Member) -> None:
    cluster = leader.cluster
    answers: list[Message] = []
    count = PARKED_FETCHES_MAX + 50
    for _ in range(count):
        request = fetch_request(leader, wait_ms=2**31 - 1)
        leader.quorum.handle(request, request.VERSION_MAX, answers.append)
    assert len(answers) >= 50
    assert leader.quorum.pending_count <= PENDING_MAX
    cluster.wait_loaded(leader.create_topic("news"))
    assert len(answers) == count
    # Those of the followers may wait, and none of these.
    assert leader.quorum.pending_count <= 2


def test_no_fetch_waits_for_longer_than_the_limit(leader: Member) -> None:
    cluster, answers = leader.cluster, list[Message]()
    request = fetch_request(leader, wait_ms=2**31 - 1)
    leader.quorum.handle(request, request.VERSION_MAX, answers.append)
    assert not answers
    cluster.run_until(lambda: bool(answers), WAIT_MS_MAX / 1000 + 1)


def test_a_negative_wait_is_refused(leader: Member) -> None:
    answer = ask(leader, fetch_request(leader, wait_ms=-1), fetch.FetchResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_one_that_stops_answers_all_who_wait(leader: Member) -> None:
    answers: list[Message] = []
    request = fetch_request(leader, wait_ms=20_000)
    leader.quorum.handle(request, request.VERSION_MAX, answers.append)
    assert not answers
    leader.stop()
    (answer,) = answers
    assert isinstance(answer, fetch.FetchResponse)
    assert answer.error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert leader.quorum.pending_count == 0
    late = ask(leader, fetch_request(leader, offset=0), fetch.FetchResponse)
    assert late.error_code == ErrorCode.BROKER_NOT_AVAILABLE


def test_a_leader_that_resigns_answers_all_who_wait(leader: Member) -> None:
    answers: list[Message] = []
    request = fetch_request(leader, wait_ms=20_000)
    leader.quorum.handle(request, request.VERSION_MAX, answers.append)
    leader.quorum.resign()
    (answer,) = answers
    assert isinstance(answer, fetch.FetchResponse)
    part = answer.responses[0].partitions[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_changes_of_voters_are_refused_as_by_kafka(leader: Member) -> None:
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    epoch = leader.quorum.epoch
    directory_id = directory_of(4)
    listeners = [add_raft_voter.Listener(name=LISTENER, host="host-4", port=9004)]
    add = add_raft_voter.AddRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=4, voter_directory_id=directory_id, listeners=listeners
    )
    remove = remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=1, voter_directory_id=directory_id
    )
    assert ask(leader, add, add_raft_voter.AddRaftVoterResponse).error_code == unsupported
    assert ask(leader, remove, remove_raft_voter.RemoveRaftVoterResponse).error_code == unsupported
    kind = update_raft_voter.UpdateRaftVoterResponse
    for asked, code in (
        (epoch, ErrorCode.INVALID_REQUEST),  # it names no directory
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        update = update_raft_voter.UpdateRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            current_leader_epoch=asked,
            voter_id=2,
            voter_directory_id=ZERO_UUID,
        )
        answer = ask(leader, update, kind)
        assert answer.error_code == code
        assert answer.current_leader is not None
        assert answer.current_leader.leader_id == leader.id
    follower = next(each for each in leader.cluster.up() if each is not leader)
    refused = ask(follower, add, add_raft_voter.AddRaftVoterResponse)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    add.cluster_id = "other"
    refused = ask(leader, add, add_raft_voter.AddRaftVoterResponse)
    assert refused.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    problem = f'The given id "other" doesn\'t match the cluster id "{CLUSTER_ID}"'
    assert refused.error_message == problem
    add.cluster_id, add.listeners[0].name = None, "ELSEWHERE"
    refused = ask(leader, add, add_raft_voter.AddRaftVoterResponse)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == (
        "Add voter request didn't include the endpoint (Endpoints(endpoints={"
        "ListenerName(ELSEWHERE)=host-4/<unresolved>:9004})) for the default listener"
        " ListenerName(CONTROLLER)"
    )


def test_a_vote_for_another_directory_is_refused(leader: Member) -> None:
    request = vote_request(1, 1)
    request.voter_id = 77
    answer = ask(leader, request, vote.VoteResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
