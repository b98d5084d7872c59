"""The quorum's requests on the wire: Kafka's messages from and to raft's values.

Raft knows one partition and no addresses. A message of the protocol names the cluster and the topic
(by name or by its fixed id), and says where the leader listens. A node sends the versions that
Kafka knows since 3.9 (KIP-853) and understands those before them. Requests are checked here for all
of that, so that nothing misshapen reaches the state machine: the topic list must hold exactly our
partition (an empty one once crashed Kafka's controllers, CVE-2026-83525).
"""

from collections.abc import Sequence
from typing import Final, TypeVar

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
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
from odradek.quorum.raft_channel_port import LeaderAddress, Sender
from odradek.quorum.voter_messages import (
    add_from_wire,
    add_to_wire,
    probe_to_wire,
    remove_from_wire,
    remove_to_wire,
    update_from_wire,
    update_to_wire,
)
from odradek.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    OffsetAndEpoch,
    ProbeVoterRequest,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    UpdateVoterRequest,
    VoteRequest,
)

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = Uuid((1).to_bytes(16, "big"))
PARTITION: Final = 0
CANDIDATES_MAX: Final = 99

T = TypeVar("T")


# Requests out.


def request_to_wire(request: Request, sender: Sender) -> Message:
    match request:
        case VoteRequest():
            return _vote_to_wire(request, sender)
        case BeginQuorumEpochRequest():
            return _begin_to_wire(request, sender)
        case EndQuorumEpochRequest():
            return _end_to_wire(request, sender)
        case FetchRequest():
            return _fetch_to_wire(request, sender)
        case FetchSnapshotRequest():
            return _fetch_snapshot_to_wire(request, sender)
        case AddVoterRequest():
            return add_to_wire(request, sender.cluster_id)
        case RemoveVoterRequest():
            return remove_to_wire(request, sender.cluster_id)
        case UpdateVoterRequest():
            return update_to_wire(request, sender.cluster_id)
        case ProbeVoterRequest():
            return probe_to_wire()


def _vote_to_wire(request: VoteRequest, sender: Sender) -> Message:
    partition = vote.RequestPartitionData(
        partition_index=PARTITION,
        replica_epoch=request.replica_epoch,
        replica_id=request.replica.id,
        replica_directory_id=request.replica.directory_id or ZERO_UUID,
        voter_directory_id=request.voter.directory_id or ZERO_UUID,
        last_offset_epoch=request.last_offset_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )
    return vote.VoteRequest(
        cluster_id=sender.cluster_id,
        voter_id=request.voter.id,
        topics=[vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
    )


def _begin_to_wire(request: BeginQuorumEpochRequest, sender: Sender) -> Message:
    partition = begin_quorum_epoch.RequestPartitionData(
        partition_index=PARTITION,
        voter_directory_id=request.voter.directory_id or ZERO_UUID,
        leader_id=request.leader_id,
        leader_epoch=request.leader_epoch,
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=sender.cluster_id,
        voter_id=request.voter.id,
        topics=[
            begin_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        ],
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in sender.endpoints
        ],
    )


def _end_to_wire(request: EndQuorumEpochRequest, sender: Sender) -> Message:
    partition = end_quorum_epoch.RequestPartitionData(
        partition_index=PARTITION,
        leader_id=request.leader_id,
        leader_epoch=request.leader_epoch,
        preferred_successors=[each.id for each in request.preferred_candidates],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(
                candidate_id=each.id, candidate_directory_id=each.directory_id or ZERO_UUID
            )
            for each in request.preferred_candidates
        ],
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=sender.cluster_id,
        topics=[
            end_quorum_epoch.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        ],
        leader_endpoints=[
            end_quorum_epoch.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in sender.endpoints
        ],
    )


def _fetch_to_wire(request: FetchRequest, sender: Sender) -> Message:
    high_watermark = -1 if request.high_watermark is None else request.high_watermark
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=request.current_leader_epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        log_start_offset=-1,
        partition_max_bytes=sender.fetch_max_bytes,
        replica_directory_id=request.replica.directory_id or ZERO_UUID,
        high_watermark=high_watermark,
    )
    topic = fetch.FetchTopic(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return fetch.FetchRequest(
        cluster_id=sender.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=request.max_wait_ms,
        min_bytes=0,
        max_bytes=sender.fetch_max_bytes,
        topics=[topic],
    )


def _fetch_snapshot_to_wire(request: FetchSnapshotRequest, sender: Sender) -> Message:
    partition = fetch_snapshot.RequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=request.current_leader_epoch,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch
        ),
        position=request.position,
        replica_directory_id=request.replica.directory_id or ZERO_UUID,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=sender.cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[fetch_snapshot.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


# Requests in.


def request_from_wire(
    request: Message, token: int, *, cluster_id: str, own_id: int, listener: str = ""
) -> Request:
    """Return what a peer asks; ``token`` stands for it in the response.

    ``listener`` is the one on which the quorum talks; a new voter has to have it.

    Raises:
        ApiError: INCONSISTENT_CLUSTER_ID; INVALID_REQUEST if it is not about our partition alone.
    """
    theirs = getattr(request, "cluster_id", None)
    if theirs is not None and theirs != cluster_id:
        problem = f'The given id "{theirs}" doesn\'t match the cluster id "{cluster_id}"'
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, problem)
    match request:
        case vote.VoteRequest():
            return _vote_from_wire(request, token, own_id)
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            return _begin_from_wire(request, token, own_id)
        case end_quorum_epoch.EndQuorumEpochRequest():
            return _end_from_wire(request, token)
        case fetch.FetchRequest():
            return _fetch_from_wire(request, token)
        case fetch_snapshot.FetchSnapshotRequest():
            return _fetch_snapshot_from_wire(request, token)
        case add_raft_voter.AddRaftVoterRequest():
            return add_from_wire(request, token, listener)
        case remove_raft_voter.RemoveRaftVoterRequest():
            return remove_from_wire(request, token)
        case update_raft_voter.UpdateRaftVoterRequest():
            return update_from_wire(request, token, listener)
    raise AssertionError(f"no message of the quorum: {type(request).__name__}")


def _vote_from_wire(request: vote.VoteRequest, token: int, own_id: int) -> VoteRequest:
    topic = only(request.topics, "topics")
    partition = only(topic.partitions, "partitions")
    check_partition(topic.topic_name, partition.partition_index)
    return VoteRequest(
        token,
        _voter(request.voter_id, partition.voter_directory_id, own_id),
        _key(partition.replica_id, partition.replica_directory_id),
        partition.replica_epoch,
        partition.last_offset,
        partition.last_offset_epoch,
        partition.pre_vote,
    )


def _begin_from_wire(
    request: begin_quorum_epoch.BeginQuorumEpochRequest, token: int, own_id: int
) -> BeginQuorumEpochRequest:
    topic = only(request.topics, "topics")
    partition = only(topic.partitions, "partitions")
    check_partition(topic.topic_name, partition.partition_index)
    return BeginQuorumEpochRequest(
        token,
        _voter(request.voter_id, partition.voter_directory_id, own_id),
        partition.leader_id,
        partition.leader_epoch,
    )


def _end_from_wire(
    request: end_quorum_epoch.EndQuorumEpochRequest, token: int
) -> EndQuorumEpochRequest:
    topic = only(request.topics, "topics")
    partition = only(topic.partitions, "partitions")
    check_partition(topic.topic_name, partition.partition_index)
    if len(partition.preferred_candidates) + len(partition.preferred_successors) > CANDIDATES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, "too many candidates")
    candidates = [
        _key(each.candidate_id, each.candidate_directory_id)
        for each in partition.preferred_candidates
    ]
    return EndQuorumEpochRequest(
        token,
        partition.leader_id,
        partition.leader_epoch,
        tuple(candidates or map(ReplicaKey, partition.preferred_successors)),
    )


def _fetch_from_wire(request: fetch.FetchRequest, token: int) -> FetchRequest:
    topic = only(request.topics, "topics")
    partition = only(topic.partitions, "partitions")
    # Before version 13 topics are given by name.
    name = METADATA_TOPIC if topic.topic_id == METADATA_TOPIC_ID else topic.topic
    check_partition(name, partition.partition)
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    # Peers before Fetch 18 leave the field at its default, a number greater than any: they are not
    # told early of a new high watermark (KIP-1166).
    high_watermark = partition.high_watermark if partition.high_watermark >= 0 else None
    return FetchRequest(
        token,
        _key(replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        high_watermark,
        request.max_wait_ms,
    )


def _fetch_snapshot_from_wire(
    request: fetch_snapshot.FetchSnapshotRequest, token: int
) -> FetchSnapshotRequest:
    topic = only(request.topics, "topics")
    partition = only(topic.partitions, "partitions")
    check_partition(topic.name, partition.partition)
    return FetchSnapshotRequest(
        token,
        _key(request.replica_id, partition.replica_directory_id),
        partition.current_leader_epoch,
        OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        request.max_bytes,
    )


def leader_named_by(request: Message, listener: str) -> LeaderAddress | None:
    """Return where the leader that sent a request says it listens, by the name of a listener."""
    match request:
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            leader_id = only(only(request.topics, "topics").partitions, "partitions").leader_id
        case end_quorum_epoch.EndQuorumEpochRequest():
            leader_id = only(only(request.topics, "topics").partitions, "partitions").leader_id
        case _:
            return None
    for each in request.leader_endpoints:
        if each.name == listener:
            return LeaderAddress(leader_id, each.host, each.port)
    return None


# Parts.


def only(items: Sequence[T], what: str) -> T:
    """Return the only item.

    Raises:
        ApiError: INVALID_REQUEST, if there are none or several.
    """
    if len(items) != 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{len(items)} {what}, and not one")
    return items[0]


def check_partition(topic: str, number: int) -> None:
    """Refuse what is not about the metadata log.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if topic != METADATA_TOPIC or number != PARTITION:
        problem = f"{topic}-{number} is not {METADATA_TOPIC}-{PARTITION}"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _key(replica_id: int, directory_id: Uuid) -> ReplicaKey:
    return ReplicaKey(replica_id, None if directory_id == ZERO_UUID else directory_id)


def _voter(voter_id: int, directory_id: Uuid, own_id: int) -> ReplicaKey:
    """Return who is meant; peers before KIP-853 do not say, and mean the one they have reached."""
    return _key(own_id if voter_id < 0 else voter_id, directory_id)
