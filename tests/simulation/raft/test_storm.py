"""Quorums in a storm of faults, and after it: nothing committed is lost, and life goes on.

``Cluster`` checks safety after every event, so that the tests only tell what the weather was.
"""

import pytest

from tests.long_searches import in_soak
from tests.simulation.raft.cluster import ELECTIONS, SNAPSHOTS, STORM, Cluster, Faults


def survive(seed: int, size: int, faults: Faults, for_ms: int) -> Cluster:
    cluster = Cluster(seed, size, faults, observers=seed % 2)
    cluster.run(for_ms=for_ms)
    cluster.settle()
    return cluster


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("size", [1, 3, 5])
def test_storm_is_survived_and_the_quorum_goes_on(seed: int, size: int) -> None:
    survive(seed, size, STORM, 12_000)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [3, 5])
def test_elections_that_fall_over_each_other_lose_nothing(seed: int, size: int) -> None:
    survive(seed, size, ELECTIONS, 6_000)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("size", [3, 5])
def test_logs_that_begin_late_are_survived(seed: int, size: int) -> None:
    survive(seed, size, SNAPSHOTS, 12_000)


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(1_000, 1_200, 50))
@pytest.mark.parametrize("size", [1, 3, 5])
def test_long_storms_are_survived(first_seed: int, size: int) -> None:
    for seed in range(first_seed, first_seed + in_soak(15, soak=50)):
        survive(seed, size, STORM, 30_000)
        if size > 1:
            survive(seed, size, ELECTIONS, 10_000)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_same_seed_gives_the_same_history(size: int) -> None:
    histories = []
    for _ in range(2):
        cluster = Cluster(7, size, STORM, observers=1, trace=True)
        cluster.run(for_ms=20_000)
        histories.append(cluster.trace)
    assert histories[0] == histories[1]
    assert histories[0]
