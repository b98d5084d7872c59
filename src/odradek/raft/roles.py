"""The roles of a member of the quorum. Soft state only: none of it survives a restart.

Unattached   has seen the epoch but not its leader; waits, asks around, may vote
Prospective  asks whether it could win, before it disturbs anybody with a new epoch (KIP-996)
Candidate    asks for votes in an epoch of its own
Follower     fetches from the leader of the epoch
Leader       (``leader``) appends and counts who has fetched what
Resigned     was leader in this epoch and will not be again; waits for another to take over

A replica without a vote (an observer: each broker is one) is Unattached or a Follower and never
leaves these two; its deadlines are None.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from odradek.raft.leader import Leader
from odradek.raft.messages import OffsetAndEpoch, ReplicaKey
from odradek.raft.voters import VoterSet


@dataclass(slots=True)
class Election:
    """Votes, or pre-votes, counted."""

    voters: VoterSet
    votes: dict[int, bool] = field(default_factory=dict)

    def record(self, voter_id: int, granted: bool) -> None:
        if voter_id in self.voters.ids:
            self.votes[voter_id] = granted

    @property
    def granting_ids(self) -> tuple[int, ...]:
        return tuple(voter_id for voter_id, granted in self.votes.items() if granted)

    @property
    def is_won(self) -> bool:
        return len(self.granting_ids) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        rejections = len(self.votes) - len(self.granting_ids)
        return len(self.voters.voters) - rejections < self.voters.majority

    @property
    def unanswered(self) -> tuple[ReplicaKey, ...]:
        return tuple(voter for voter in self.voters.voters if voter.id not in self.votes)


@dataclass(slots=True)
class Unattached:
    election_deadline_ms: int | None


@dataclass(slots=True)
class Prospective:
    election: Election
    election_deadline_ms: int


@dataclass(slots=True)
class Candidate:
    election: Election
    election_deadline_ms: int


@dataclass(slots=True)
class SnapshotDownload:
    """A snapshot that the follower fetches because the leader's log begins behind its own end."""

    id: OffsetAndEpoch
    position: int = 0


@dataclass(slots=True)
class Follower:
    leader_id: int
    fetch_deadline_ms: int | None
    has_fetched: bool = False
    download: SnapshotDownload | None = None
    leader_high_watermark: int | None = None
    """As the leader sent it; ours follows when the records are on disk."""
    own_voter_check_ms: int | None = None
    """When to look whether the voters have this node as it is; None for one that never votes."""
    has_updated_leader: bool = False
    """Whether this leader knows where this voter listens: in kraft.version 0 no log says it."""


@dataclass(slots=True)
class Resigned:
    election_deadline_ms: int
    preferred_successors: tuple[ReplicaKey, ...]
    unacknowledged: list[int]


Role: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned
