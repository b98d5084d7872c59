"""Where the replicas of a partition are while they move, and when the move is over.

During a reassignment a partition has the replicas it shall have, in their order, and behind them
those that it shall lose. Those it did not have are *adding*, those that go are *removing*::

    (1, 2, 3)  ──to (4, 2)──▶  (4, 2, 1, 3) adding (4,) removing (1, 3)  ──done──▶  (4, 2)

A partition without *adding* and *removing* does not move. A mere change of order is over at once.

A second reassignment takes the place of the first. As in Kafka it begins with all replicas that the
partition has at that moment, those that the first one was adding included, and what it does not add
or remove itself stays marked as the first one left it. Cancelling it therefore does not lead back
to where the first one began: it takes away what is marked as adding, and nothing else.

Unlike Kafka, a replica that is adding by the first and removing by the second does not hold the
second up: Kafka 4.3 waits until it is in sync, and takes it out of that count, so never ends. What
else differs, and why, is in ADR 15.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek.metadata import NO_LEADER, PartitionImage


class Assignment(NamedTuple):
    """Replicas of a partition, with those that come and go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    def completed(self, isr: Sequence[int]) -> "Assignment | None":
        """Return the assignment after the move, or None while the ISR is not ready for it.

        What is added must be in sync. If fewer replicas are added than removed, all that remain
        must be, or the partition might be left with fewer copies than it has now. Otherwise those
        that are neither added nor removed may be out of sync: one dead broker must not hold up a
        move that does not concern it (KAFKA-19975).
        """
        if not self.is_moving:
            return None
        remaining = tuple(each for each in self.replicas if each not in self.removing)
        in_sync = set(isr).difference(self.removing)
        if not remaining or not in_sync:
            return None
        if not in_sync.issuperset(set(self.adding).difference(self.removing)):
            return None
        if len(self.adding) < len(self.removing) and not in_sync.issuperset(remaining):
            return None
        return Assignment(remaining)


def current(partition: PartitionImage) -> Assignment:
    return Assignment(partition.replicas, partition.adding, partition.removing)


def begun(partition: PartitionImage, target: Sequence[int]) -> Assignment:
    """Return the assignment with which a partition begins to move to ``target``."""
    adding = tuple(sorted(set(target).difference(partition.replicas)))
    removing = tuple(sorted(set(partition.replicas).difference(target)))
    return Assignment(
        (*target, *removing), adding or partition.adding, removing or partition.removing
    )


class Reverted(NamedTuple):
    """A partition whose move is cancelled."""

    assignment: Assignment
    isr: tuple[int, ...]
    is_unclean: bool
    """Nothing that remains is known to have all that was committed."""


def reverted(partition: PartitionImage, may_lead: Callable[[int], bool]) -> Reverted:
    """Return what cancelling a move comes to: what is being added goes, the rest stays.

    If only replicas that go were in sync, an eligible one (KIP-966) may lead instead, if it is
    alive: cancelling must not take the leader away from a partition. If there is none, the first
    that remains is taken, which may lose records: it is for the caller to see whether that is
    allowed. (Kafka does not look for eligible ones here.)
    """
    replicas = tuple(each for each in partition.replicas if each not in partition.adding)
    isr = tuple(each for each in partition.isr if each not in partition.adding)
    eligible = set(partition.elr).difference(partition.adding)
    if isr or (eligible and partition.leader == NO_LEADER) or any(map(may_lead, eligible)):
        return Reverted(Assignment(replicas), isr, is_unclean=False)
    return Reverted(Assignment(replicas), replicas[:1], is_unclean=True)
