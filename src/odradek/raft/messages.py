"""What the members of a metadata quorum say to each other.

One class for each of Kafka's messages Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and
FetchSnapshot, and in each the fields of the only partition there is, under the names of the
protocol. What the state machine does not decide on is left to the driver that translates: cluster
id, topic, listener endpoints.

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


Request: TypeAlias = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
)
Response: TypeAlias = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
)
Message: TypeAlias = Request | Response
