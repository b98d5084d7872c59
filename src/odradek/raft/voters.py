"""The voters of a quorum, as a value (KIP-853).

At most one voter per replica id. A quorum from before KIP-853 knows no directory ids: then the id
alone decides. Changing the set means making another; nothing here does so yet.
"""

from dataclasses import dataclass
from typing import Final

from odradek.raft.messages import ReplicaKey

VOTERS_MAX: Final = 99
"""More than anybody runs. Each election and each commit looks at all of them."""


@dataclass(frozen=True, slots=True)
class VoterSet:
    voters: tuple[ReplicaKey, ...]

    def __post_init__(self) -> None:
        assert len({voter.id for voter in self.voters}) == len(self.voters) <= VOTERS_MAX

    @classmethod
    def of_ids(cls, *ids: int) -> "VoterSet":
        """Return the static set of ``controller.quorum.voters``, without directory ids."""
        return cls(tuple(map(ReplicaKey, ids)))

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.id for voter in self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def contains(self, key: ReplicaKey) -> bool:
        return any(voter.matches(key) for voter in self.voters)

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.contains(key)

    def others(self, replica_id: int) -> tuple[ReplicaKey, ...]:
        return tuple(voter for voter in self.voters if voter.id != replica_id)
