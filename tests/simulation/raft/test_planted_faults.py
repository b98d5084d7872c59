"""The simulation must notice the classic mistakes, each within a few seeds."""

import pytest

from odradek.raft import QuorumError
from tests.simulation.raft import planted
from tests.simulation.raft.cluster import ELECTIONS, SNAPSHOTS, STORM, Cluster, Faults

SEEDS_MAX = 400


@pytest.mark.parametrize(
    ("plant", "faults", "size"),
    [
        (planted.forget_vote_on_restart, ELECTIONS, 5),
        (planted.vote_twice, ELECTIONS, 5),
        (planted.vote_for_anybody, STORM, 3),
        (planted.lead_again_in_the_same_epoch, STORM, 3),
        (planted.skip_truncation, STORM, 3),
        (planted.ignore_divergence, STORM, 3),
        (planted.claim_unflushed_records, STORM, 3),
        (planted.keep_log_under_snapshot, SNAPSHOTS, 3),
        (planted.count_unflushed_leader_offset, STORM, 1),
        (planted.count_unflushed_leader_offset, STORM, 3),
        # The rarest (figure 8 of the Raft paper): three leaders in the right order.
        pytest.param(planted.commit_entries_of_old_epochs, ELECTIONS, 3, marks=pytest.mark.slow),
    ],
)
def test_planted_fault_is_noticed(
    plant: planted.Plant, faults: Faults, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = plant(monkeypatch, faults)
    assert any(fails(seed, size, faults) for seed in range(SEEDS_MAX))


def fails(seed: int, size: int, faults: Faults) -> bool:
    cluster = Cluster(seed, size, faults, observers=seed % 2)
    try:
        cluster.run(for_ms=15_000)
        cluster.settle()
    except (AssertionError, QuorumError) as error:
        print(f"seed {seed}: {error}")
        return True
    return False
