"""The voters of a quorum, as a value (KIP-853).

At most one voter per replica id. A quorum from before KIP-853 knows no directory ids: then the id
alone decides. Changing the set means making another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.raft.messages import ReplicaKey, VoterDetails

VOTERS_MAX: Final = 99
"""More than anybody runs. Each election and each commit looks at all of them."""


class VoterNode(NamedTuple):
    """A voter as the log has it."""

    key: ReplicaKey
    details: VoterDetails


@dataclass(frozen=True, slots=True)
class VoterSet:
    voters: tuple[ReplicaKey, ...]
    details: Mapping[int, VoterDetails] = field(default_factory=dict)
    """By id, of those that are known. Raft decides nothing by them, and passes them on."""

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

    def find(self, replica_id: int) -> ReplicaKey | None:
        return next((voter for voter in self.voters if voter.id == replica_id), None)

    def supports(self, kraft_version: int) -> bool:
        """Whether all voters are known to support a level of ``kraft.version``."""
        return all(
            (known := self.details.get(voter.id)) is not None and known.supports(kraft_version)
            for voter in self.voters
        )

    # Sets with one voter more, less or changed: two that follow each other have majorities that
    # overlap, so that no two leaders can be elected by them (section 4.1 of the Raft thesis).

    def with_voter(self, voter: VoterNode) -> "VoterSet":
        """Return the set with a voter whose id it does not have."""
        assert self.find(voter.key.id) is None
        keys = sorted((*self.voters, voter.key), key=lambda key: key.id)
        return VoterSet(tuple(keys), {**self.details, voter.key.id: voter.details})

    def without(self, key: ReplicaKey) -> "VoterSet":
        details = {each: known for each, known in self.details.items() if each != key.id}
        return VoterSet(self.others(key.id), details)

    def updated(self, voter: VoterNode) -> "VoterSet":
        """Return the set with what is known of a voter replaced, its directory id included."""
        keys = tuple(voter.key if each.id == voter.key.id else each for each in self.voters)
        return VoterSet(keys, {**self.details, voter.key.id: voter.details})
