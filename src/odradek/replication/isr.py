"""The in-sync replicas of a partition, as its leader knows them (KIP-497).

The controller decides who is in the ISR, the leader proposes. While a proposal is under way the
leader cannot know whether the controller has carried it out already, so it allows for both: a
replica that is to join must have a record before it is committed, and so must one that is to
leave. ``maximal`` has both. ``min.insync.replicas`` is another matter: only who was committed
counts for it.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """The ISR that the controller has confirmed; nothing is proposed."""

    members: frozenset[int]

    @property
    def committed(self) -> frozenset[int]:
        return self.members

    @property
    def maximal(self) -> frozenset[int]:
        return self.members


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """A follower is to join."""

    committed: frozenset[int]
    added: int
    maximal: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        assert self.added not in self.committed
        object.__setattr__(self, "maximal", self.committed | {self.added})

    @property
    def proposed(self) -> frozenset[int]:
        return self.maximal


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """Followers that lag are to leave."""

    committed: frozenset[int]
    removed: frozenset[int]
    proposed: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        assert self.removed
        assert self.removed < self.committed, "the leader stays"
        object.__setattr__(self, "proposed", self.committed - self.removed)

    @property
    def maximal(self) -> frozenset[int]:
        return self.committed


PendingIsr = PendingExpand | PendingShrink
Isr = CommittedIsr | PendingIsr
