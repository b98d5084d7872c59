"""Bugs of moves, to be planted one at a time; a storm in which partitions move must find each."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from odradek.controller.partition_change import PartitionChange
from odradek.controller.reassignment import Assignment
from tests.simulation.cluster.planted import Bug


def keep_epoch(patch: pytest.MonkeyPatch) -> None:
    """26: the leader epoch stays when replicas leave."""
    patch.setattr(PartitionChange, "_bump_epoch", lambda *_: None)


def complete_too_early(patch: pytest.MonkeyPatch) -> None:
    """31: a move is over as soon as one that remains is in sync, whatever the new ones have."""

    def completed(self: Assignment, isr: Sequence[int]) -> Assignment | None:
        remaining = tuple(each for each in self.replicas if each not in self.removing)
        is_ready = self.is_moving and set(remaining) & set(isr)
        return Assignment(remaining) if is_ready else None

    patch.setattr(Assignment, "completed", completed)


def count_added_as_in_sync(patch: pytest.MonkeyPatch) -> None:
    """34: what a move adds is in the ISR from the start."""
    plan = PartitionChange.plan

    def add(self: PartitionChange) -> Any:
        if self.assignment is not None:
            self.isr = tuple(dict.fromkeys((*self.isr, *self.assignment.adding)))
        return plan(self)

    patch.setattr(PartitionChange, "plan", add)


MOVE_BUGS: Final = (
    Bug("26 keeps the epoch", keep_epoch, "moves", None, 6),
    Bug("31 completes too early", complete_too_early, "moves", None, 6),
    Bug("34 added replicas are in sync", count_added_as_in_sync, "moves", None, 6),
)
