"""Voters change in a storm and lose their disks: nothing that was committed is lost with them.

Every change that the operator was told of is committed, one at a time, and in the end the quorum
is what the operator wants.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from odradek.core.errors import ErrorCode
from odradek.raft import QuorumError
from odradek.raft.leader import Leader
from odradek.raft.quorum import Quorum
from odradek.raft.voter_changes import VoterChanges
from tests.long_searches import in_soak
from tests.simulation.raft.changing import ChangingCluster
from tests.simulation.raft.cluster import SNAPSHOTS, STORM

FAULTS = (STORM, SNAPSHOTS, replace(STORM, crash=0.02, partition=0.2))
SEEDS_MAX = 20


def survive(seed: int) -> ChangingCluster:
    cluster = ChangingCluster(seed, FAULTS[seed // 3 % len(FAULTS)])  # of three, one joins itself
    cluster.run(for_ms=30_000)
    cluster.settle_voters()
    return cluster


@pytest.mark.parametrize("first_seed", range(0, 90, 30))
def test_voters_change_and_disks_are_lost_and_the_quorum_goes_on(first_seed: int) -> None:
    told = [survive(seed) for seed in range(first_seed, first_seed + 30)]
    assert sum(each.added for each in told) > 20, "changes were carried through"
    assert sum(each.removed for each in told) > 5
    assert sum(each.disks_lost for each in told) > 20
    assert sum(each.leaders_removed for each in told) > 10


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(1_000, 2_000, 250))
def test_a_long_row_of_quorums_changes_its_voters(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + in_soak(25, soak=250)):
        survive(seed)


# Bugs 21 and 22 of the table of planted bugs, and what the simulation found in Kafka's own rule.


def change_before_the_first_commits(patch: pytest.MonkeyPatch) -> None:
    """21: a second change begins before the first is committed."""
    patch.setattr(VoterChanges, "_is_latest_committed", lambda *_: True)


def count_the_removed_leader(patch: pytest.MonkeyPatch) -> None:
    """22: a leader that is being removed counts itself."""
    patch.setattr(Leader, "_own_votes", 1)


def begin_before_the_epoch_commits(patch: pytest.MonkeyPatch) -> None:
    """A leader changes voters before a record of its own epoch is committed."""

    def refusal(self: VoterChanges, leader: Leader, _verb: str, now_ms: int) -> object:
        self.expire(leader, now_ms)
        return (ErrorCode.REQUEST_TIMED_OUT, None) if leader.change is not None else None

    patch.setattr(VoterChanges, "_refusal", refusal)


def forget_who_may_have_to_lead(patch: pytest.MonkeyPatch) -> None:
    """A leader that removed itself and crashed does not stand, and nobody else can win."""
    patch.setattr(Quorum, "may_stand", Quorum.is_voter)


def answer_when_appended(patch: pytest.MonkeyPatch) -> None:
    """The operator gets to know of a change that may still be lost."""

    def on_appended(self: VoterChanges, leader: Leader, offset: int) -> None:
        if leader.change is not None:
            leader.change.offset = offset
            self._end(leader, ErrorCode.NONE)

    patch.setattr(VoterChanges, "on_appended", on_appended)


@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (change_before_the_first_commits, 0),
        (count_the_removed_leader, 0),
        (begin_before_the_epoch_commits, 0),
        (answer_when_appended, 0),
        (forget_who_may_have_to_lead, 36),  # a crash at the one moment: the others take for ever
    ],
)
def test_a_planted_bug_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    seeds = range(first_seed, first_seed + SEEDS_MAX)
    found = next((seed for seed in seeds if fails(seed)), None)
    print(f"found by seed {found}")
    assert found is not None


def fails(seed: int) -> bool:
    try:
        survive(seed)
    except (AssertionError, QuorumError) as error:
        print(f"seed {seed}: {error}")
        return True
    return False
