"""The quorum's responses on the wire: Kafka's messages from and to raft's values.

A response that makes no sense is bad bytes (``CorruptionError``): its connection is closed.
"""

from typing import Final, NamedTuple, TypeVar

from odradek.core.errors import CorruptionError, ErrorCode
from odradek.protocol.generated import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from odradek.protocol.message import Message
from odradek.quorum.raft_channel_port import LeaderAddress
from odradek.quorum.raft_requests import METADATA_TOPIC, METADATA_TOPIC_ID, PARTITION
from odradek.quorum.voter_messages import (
    add_response_from_wire,
    known_error,
    probe_response_from_wire,
    remove_response_from_wire,
    update_response_from_wire,
)
from odradek.raft.messages import (
    AddVoterResponse,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    ProbeVoterResponse,
    RemoveVoterResponse,
    Response,
    UpdateVoterResponse,
    VoteResponse,
)

P = TypeVar("P")
_FETCH_ADDRESSES_FROM: Final = 16
"""The version from which on a response names addresses; of the other messages it is 1."""
_EPOCH_UNKNOWN: Final = -1
Known = tuple[LeaderAddress, ...]
"""The leader's address, or nothing."""


class Leader(NamedTuple):
    """The leader as an UpdateRaftVoter response names it."""

    leader_id: int | None
    epoch: int
    address: LeaderAddress | None


# Responses out.


def refusal_to_wire(
    request: Message, error: ErrorCode, problem: str | None = None, leader: Leader | None = None
) -> Message:
    """Return the response that refuses a request as a whole; most have no place for more."""
    match request:
        case vote.VoteRequest():
            return vote.VoteResponse(error_code=error)
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            return begin_quorum_epoch.BeginQuorumEpochResponse(error_code=error)
        case end_quorum_epoch.EndQuorumEpochRequest():
            return end_quorum_epoch.EndQuorumEpochResponse(error_code=error)
        case fetch.FetchRequest():
            return fetch.FetchResponse(error_code=error)
        case fetch_snapshot.FetchSnapshotRequest():
            return fetch_snapshot.FetchSnapshotResponse(error_code=error)
        case add_raft_voter.AddRaftVoterRequest():
            return add_raft_voter.AddRaftVoterResponse(error_code=error, error_message=problem)
        case remove_raft_voter.RemoveRaftVoterRequest():
            return remove_raft_voter.RemoveRaftVoterResponse(
                error_code=error, error_message=problem
            )
        case update_raft_voter.UpdateRaftVoterRequest():
            return _update_response_to_wire(error, leader or Leader(None, -1, None))
    raise AssertionError(f"no message of the quorum: {type(request).__name__}")


def response_to_wire(response: Response, leader: LeaderAddress | None, version: int) -> Message:
    """Return a response, with the address of the leader if it is known and fits in."""
    fits = version >= (_FETCH_ADDRESSES_FROM if isinstance(response, FetchResponse) else 1)
    known = (leader,) if leader is not None and fits else ()
    match response:
        case VoteResponse():
            return _vote_response_to_wire(response, known)
        case BeginQuorumEpochResponse():
            return _begin_response_to_wire(response, known)
        case EndQuorumEpochResponse():
            return _end_response_to_wire(response, known)
        case FetchResponse():
            return _fetch_response_to_wire(response, known)
        case FetchSnapshotResponse():
            return _fetch_snapshot_response_to_wire(response, known)
        case AddVoterResponse():
            return add_raft_voter.AddRaftVoterResponse(
                error_code=response.error, error_message=response.message
            )
        case RemoveVoterResponse():
            return remove_raft_voter.RemoveRaftVoterResponse(
                error_code=response.error, error_message=response.message
            )
        case UpdateVoterResponse():
            named = Leader(response.leader_id, response.leader_epoch, leader)
            return _update_response_to_wire(response.error, named)
        case ProbeVoterResponse():
            raise AssertionError("an ApiVersions, which the quorum does not answer")


def _vote_response_to_wire(response: VoteResponse, known: Known) -> Message:
    partition = vote.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        leader_id=_id(response.leader_id),
        leader_epoch=response.leader_epoch,
        vote_granted=response.vote_granted,
    )
    return vote.VoteResponse(
        topics=[vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            vote.NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port)
            for each in known
        ],
    )


def _begin_response_to_wire(response: BeginQuorumEpochResponse, known: Known) -> Message:
    module = begin_quorum_epoch
    partition = module.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        leader_id=_id(response.leader_id),
        leader_epoch=response.leader_epoch,
    )
    return module.BeginQuorumEpochResponse(
        topics=[module.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            module.NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port)
            for each in known
        ],
    )


def _end_response_to_wire(response: EndQuorumEpochResponse, known: Known) -> Message:
    module = end_quorum_epoch
    partition = module.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        leader_id=_id(response.leader_id),
        leader_epoch=response.leader_epoch,
    )
    return module.EndQuorumEpochResponse(
        topics=[module.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            module.NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port)
            for each in known
        ],
    )


def _fetch_response_to_wire(response: FetchResponse, known: Known) -> Message:
    diverging, snapshot = response.diverging_epoch, response.snapshot_id
    partition = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=response.error,
        high_watermark=-1 if response.high_watermark is None else response.high_watermark,
        current_leader=fetch.LeaderIdAndEpoch(
            leader_id=_id(response.leader_id), leader_epoch=response.leader_epoch
        ),
        diverging_epoch=None
        if diverging is None
        else fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        snapshot_id=None
        if snapshot is None
        else fetch.SnapshotId(epoch=snapshot.epoch, end_offset=snapshot.offset),
        aborted_transactions=None,
        records=response.records or b"",  # type: ignore[arg-type]  # what the driver has read
    )
    topic = fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    return fetch.FetchResponse(
        responses=[topic],
        node_endpoints=[
            fetch.NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port)
            for each in known
        ],
    )


def _fetch_snapshot_response_to_wire(response: FetchSnapshotResponse, known: Known) -> Message:
    module = fetch_snapshot
    snapshot_id = response.snapshot_id or OffsetAndEpoch(-1, -1)
    partition = module.ResponsePartitionSnapshot(
        index=PARTITION,
        error_code=response.error,
        snapshot_id=module.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        current_leader=module.LeaderIdAndEpoch(
            leader_id=_id(response.leader_id), leader_epoch=response.leader_epoch
        ),
        size=response.size,
        position=response.position,
        unaligned_records=response.data,
    )
    return module.FetchSnapshotResponse(
        topics=[module.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            module.NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port)
            for each in known
        ],
    )


def _update_response_to_wire(error: ErrorCode, leader: Leader) -> Message:
    address = leader.address
    return update_raft_voter.UpdateRaftVoterResponse(
        error_code=error,
        current_leader=update_raft_voter.CurrentLeader(
            leader_id=_id(leader.leader_id),
            leader_epoch=leader.epoch,
            host="" if address is None else address.host,
            port=0 if address is None else address.port,
        ),
    )


def _id(leader_id: int | None) -> int:
    return -1 if leader_id is None else leader_id


# Responses in.


def response_from_wire(response: Message, correlation_id: int, sender: int) -> Response:
    """Return what the peer ``sender`` answered.

    Raises:
        CorruptionError: It answers something else than what was asked.
    """
    match response:
        case vote.VoteResponse():
            return _vote_from_wire(response, correlation_id, sender)
        case begin_quorum_epoch.BeginQuorumEpochResponse():
            return _begin_from_wire(response, correlation_id, sender)
        case end_quorum_epoch.EndQuorumEpochResponse():
            return _end_from_wire(response, correlation_id, sender)
        case fetch.FetchResponse():
            return _fetch_from_wire(response, correlation_id, sender)
        case fetch_snapshot.FetchSnapshotResponse():
            return _fetch_snapshot_from_wire(response, correlation_id, sender)
        case add_raft_voter.AddRaftVoterResponse():
            return add_response_from_wire(response, correlation_id, sender)
        case remove_raft_voter.RemoveRaftVoterResponse():
            return remove_response_from_wire(response, correlation_id, sender)
        case update_raft_voter.UpdateRaftVoterResponse():
            return update_response_from_wire(response, correlation_id, sender)
        case api_versions.ApiVersionsResponse():
            return probe_response_from_wire(response, correlation_id, sender)
    raise AssertionError(f"no message of the quorum: {type(response).__name__}")


def leader_address_in(response: Message) -> LeaderAddress | None:
    """Return where the leader listens, if a response says so (from KIP-853 on)."""
    if isinstance(response, update_raft_voter.UpdateRaftVoterResponse):
        leader = response.current_leader
        if leader is None:
            return None
        return LeaderAddress(leader.leader_id, leader.host, leader.port)
    for each in getattr(response, "node_endpoints", ()):
        return LeaderAddress(each.node_id, each.host, each.port)
    return None


def _vote_from_wire(response: vote.VoteResponse, correlation_id: int, sender: int) -> VoteResponse:
    if response.error_code:
        error = known_error(response.error_code)
        return VoteResponse(correlation_id, sender, error, None, _EPOCH_UNKNOWN, False)
    part = _only_partition([each.partitions for each in response.topics])
    return VoteResponse(
        correlation_id,
        sender,
        known_error(part.error_code),
        _leader(part.leader_id),
        part.leader_epoch,
        part.vote_granted,
    )


def _begin_from_wire(
    response: begin_quorum_epoch.BeginQuorumEpochResponse, correlation_id: int, sender: int
) -> BeginQuorumEpochResponse:
    if response.error_code:
        error = known_error(response.error_code)
        return BeginQuorumEpochResponse(correlation_id, sender, error, None, _EPOCH_UNKNOWN)
    part = _only_partition([each.partitions for each in response.topics])
    return BeginQuorumEpochResponse(
        correlation_id,
        sender,
        known_error(part.error_code),
        _leader(part.leader_id),
        part.leader_epoch,
    )


def _end_from_wire(
    response: end_quorum_epoch.EndQuorumEpochResponse, correlation_id: int, sender: int
) -> EndQuorumEpochResponse:
    if response.error_code:
        error = known_error(response.error_code)
        return EndQuorumEpochResponse(correlation_id, sender, error, None, _EPOCH_UNKNOWN)
    part = _only_partition([each.partitions for each in response.topics])
    return EndQuorumEpochResponse(
        correlation_id,
        sender,
        known_error(part.error_code),
        _leader(part.leader_id),
        part.leader_epoch,
    )


def _fetch_from_wire(
    response: fetch.FetchResponse, correlation_id: int, sender: int
) -> FetchResponse:
    if response.error_code:
        error = known_error(response.error_code)
        return FetchResponse(correlation_id, sender, error, None, _EPOCH_UNKNOWN)
    part = _only_partition([each.partitions for each in response.responses])
    leader = part.current_leader or fetch.LeaderIdAndEpoch()
    diverging, snapshot = part.diverging_epoch, part.snapshot_id
    return FetchResponse(
        correlation_id,
        sender,
        known_error(part.error_code),
        _leader(leader.leader_id),
        leader.leader_epoch,
        None if part.high_watermark < 0 else part.high_watermark,
        None
        if diverging is None or diverging.epoch < 0
        else OffsetAndEpoch(diverging.end_offset, diverging.epoch),
        part.records or None,
        None
        if snapshot is None or snapshot.epoch < 0
        else OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
    )


def _fetch_snapshot_from_wire(
    response: fetch_snapshot.FetchSnapshotResponse, correlation_id: int, sender: int
) -> FetchSnapshotResponse:
    if response.error_code:
        error = known_error(response.error_code)
        return FetchSnapshotResponse(correlation_id, sender, error, None, _EPOCH_UNKNOWN)
    part = _only_partition([each.partitions for each in response.topics])
    leader = part.current_leader
    return FetchSnapshotResponse(
        correlation_id,
        sender,
        known_error(part.error_code),
        None if leader is None else _leader(leader.leader_id),
        _EPOCH_UNKNOWN if leader is None else leader.leader_epoch,
        OffsetAndEpoch(part.snapshot_id.end_offset, part.snapshot_id.epoch),
        part.size,
        part.position,
        bytes(part.unaligned_records),
    )


def _only_partition(topics: list[list[P]]) -> P:
    if len(topics) != 1 or len(topics[0]) != 1:
        raise CorruptionError("a response of the quorum that is not about one partition")
    return topics[0][0]


def _leader(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id
