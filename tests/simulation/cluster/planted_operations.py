"""Bugs of what operators do, to be planted one at a time, beside those of ``planted_moves``."""

from typing import Any, Final

import pytest

from odradek.controller.partition_change import Elected, Election, PartitionChange
from odradek.storage.log_move import LogMoves
from tests.simulation.cluster.planted import Bug


def prefer_whoever_is_alive(patch: pytest.MonkeyPatch) -> None:
    """35: an election of the preferred leader takes it whether it is in sync or not."""
    elect = PartitionChange._elect

    def prefer(self: PartitionChange, isr: Any, elr: Any, replicas: Any) -> Elected:
        if self.election is Election.PREFERRED and self.is_acceptable_leader(replicas[0]):
            return Elected(replicas[0])
        return elect(self, isr, elr, replicas)

    patch.setattr(PartitionChange, "_elect", prefer)


def swap_before_all_is_copied(patch: pytest.MonkeyPatch) -> None:
    """36: a replica that moves to another directory is used there before it has all records."""
    patch.setattr(LogMoves, "_copy", lambda *_: False)


OPERATION_BUGS: Final = (
    Bug("35 prefers whoever is alive", prefer_whoever_is_alive, "operations", None, 12),
    Bug("36 swaps before all is copied", swap_before_all_is_copied, "operations", None, 12),
)
