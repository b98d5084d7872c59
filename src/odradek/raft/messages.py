"""What the members of a metadata quorum say to each other.

One class for each of Kafka's messages Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot
and those that change the voters (``ProbeVoterRequest`` is an ApiVersions), and in each the fields
of the only partition there is, under the names of the protocol. What the state machine does not
decide on is left to the driver that translates: cluster id, topic, the endpoints of the leader.

``correlation_id`` pairs a response with its request. The node numbers the requests it sends. Into a
request that came in, the driver puts a token of its own and finds in the response whom to answer.

``sender`` of a response is the node at the other end of the connection. A response must never
outlive its connection: one that was meant for an earlier run of this process could hand its vote
to a candidate that has lost, in the crash, the log it was granted for.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from odradek.core.errors import ErrorCode, OdradekError
from odradek.core.ids import Uuid


class QuorumError(OdradekError):
    """The quorum contradicts itself: two leaders in one epoch, or committed records are gone.

    Nothing that this node could do next would be safe. Stop the process; somebody has to find out
    which voter lost its disk.
    """


class ReplicaKey(NamedTuple):
    """A replica and the directory its log is in: a replica with a new disk is another voter."""

    id: int
    directory_id: Uuid | None = None

    def matches(self, other: "ReplicaKey") -> bool:
        """Whether ``other`` is the replica meant here; a directory not known fits each."""
        return self.id == other.id and self.directory_id in (None, other.directory_id)


class VoterEndpoint(NamedTuple):
    """A controller listener of a voter: its name, and where it is."""

    name: str
    host: str
    port: int


class VoterDetails(NamedTuple):
    """What a voter says of itself besides its key: where it listens, and what it supports."""

    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 0

    def supports(self, kraft_version: int) -> bool:
        return self.kraft_version_min <= kraft_version <= self.kraft_version_max


class OffsetAndEpoch(NamedTuple):
    """An end offset, exclusive, and the epoch of the record before it."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    correlation_id: int
    voter: ReplicaKey  # who is asked
    replica: ReplicaKey  # who asks
    replica_epoch: int
    last_offset: int  # the log end offset, in spite of its name
    last_offset_epoch: int
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class VoteResponse:
    correlation_id: int
    sender: int
    error: ErrorCode
    leader_id: int | None
    leader_epoch: int
    vote_granted: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    correlation_id: int
    voter: ReplicaKey
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochResponse:
    correlation_id: int
    sender: int
    error: ErrorCode
    leader_id: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    correlation_id: int
    leader_id: int
    leader_epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class EndQuorumEpochResponse:
    correlation_id: int
    sender: int
    error: ErrorCode
    leader_id: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Asks for records from ``fetch_offset`` on, and says that all before it are on disk here."""

    correlation_id: int
    replica: ReplicaKey
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int | None
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    correlation_id: int
    sender: int
    error: ErrorCode
    leader_id: int | None
    leader_epoch: int
    high_watermark: int | None = None
    diverging_epoch: OffsetAndEpoch | None = None
    records: object = None
    """What the driver read; the node looks only at whether it is None, and passes it on."""
    snapshot_id: OffsetAndEpoch | None = None
    """The snapshot to be fetched first: the log does not reach back far enough."""


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """Asks for a piece of a snapshot, from the byte ``position`` on."""

    correlation_id: int
    replica: ReplicaKey
    current_leader_epoch: int
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchSnapshotResponse:
    correlation_id: int
    sender: int
    error: ErrorCode
    leader_id: int | None
    leader_epoch: int
    snapshot_id: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class AddVoterRequest:
    """Asks the leader for a vote for a replica: an operator does, or the replica itself."""

    correlation_id: int
    voter: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...]
    ack_when_committed: bool = True
    """False: answered when appended. The replica itself could not be asked for its acknowledgement
    while it waits for the answer."""
    problem: str | None = None
    """What is wrong with the endpoints; only a leader is to say so."""


@dataclass(frozen=True, slots=True)
class AddVoterResponse:
    """Names no leader, as Kafka's does not: not of a member of the quorum, but of an operator."""

    correlation_id: int
    sender: int
    error: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveVoterRequest:
    correlation_id: int
    voter: ReplicaKey


@dataclass(frozen=True, slots=True)
class RemoveVoterResponse:
    correlation_id: int
    sender: int
    error: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateVoterRequest:
    """A voter says where it listens and what it supports."""

    correlation_id: int
    voter: ReplicaKey
    current_leader_epoch: int
    details: VoterDetails
    is_sound: bool = True
    """Whether the details make sense; only a leader is to say so."""


@dataclass(frozen=True, slots=True)
class UpdateVoterResponse:
    correlation_id: int
    sender: int
    error: ErrorCode
    leader_id: int | None
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ProbeVoterRequest:
    """Asks a replica that is to be a voter, and may be known to nobody, what it supports."""

    correlation_id: int
    endpoints: tuple[VoterEndpoint, ...]


@dataclass(frozen=True, slots=True)
class ProbeVoterResponse:
    """``error`` is BROKER_NOT_AVAILABLE if the replica could not be asked."""

    correlation_id: int
    sender: int
    error: ErrorCode
    kraft_versions: tuple[int, int] | None = None
    """The lowest and the highest that it supports; None if it does not know the feature."""


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | ProbeVoterRequest
)
LeaderResponse: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | UpdateVoterResponse
)
"""Those that name the leader, and so bring news of it."""
Response: TypeAlias = LeaderResponse | AddVoterResponse | RemoveVoterResponse | ProbeVoterResponse
Message: TypeAlias = Request | Response
