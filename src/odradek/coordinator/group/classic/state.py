"""The states of a classic group, and which may follow which."""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class GroupState(Enum):
    EMPTY = "Empty"  # no members; committed offsets may remain
    PREPARING_REBALANCE = "PreparingRebalance"  # collecting JoinGroup from every member
    COMPLETING_REBALANCE = "CompletingRebalance"  # waiting for the leader's assignment
    STABLE = "Stable"  # every member has an assignment, or may fetch it
    DEAD = "Dead"  # unloaded, deleted or converted; terminal


NEXT: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


def check_transition(current: GroupState, target: GroupState) -> None:
    """Assert that ``current -> target`` is legal; an illegal move is our bug, not the client's."""
    assert target in NEXT[current], f"illegal transition {current.value} -> {target.value}"
