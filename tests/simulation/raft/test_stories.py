"""Single incidents, and the progress that is expected after them."""

import pytest

from odradek.raft import HardState
from odradek.raft.driver import RaftDriver
from tests.simulation.raft.cluster import Cluster, Member


def led(cluster: Cluster) -> Member:
    """Run until somebody leads and has committed something; return that leader."""
    cluster.run_until(lambda: cluster.leader() is not None and len(cluster.oracle.committed) > 0)
    leader = cluster.leader()
    assert leader is not None
    return leader


def isolate(cluster: Cluster, *members: Member) -> None:
    inside = {member.key.id for member in members}
    for a in range(len(cluster.members)):
        for b in range(len(cluster.members)):
            if (a in inside) != (b in inside):
                cluster.cut.add((a, b))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("size", [3, 5])
def test_voters_that_start_together_need_no_election_timeout(seed: int, size: int) -> None:
    cluster = Cluster(seed, size)
    within_ms = cluster.config.election_timeout_ms
    cluster.run_until(lambda: cluster.leader() is not None, within_ms=within_ms)


@pytest.mark.parametrize("seed", range(10))
def test_voter_that_starts_beside_a_leader_disturbs_nobody(seed: int) -> None:
    """It asks before it has found the leader, and gets no for an answer."""
    cluster = Cluster(seed, 3)
    leader = led(cluster)
    cluster.run(for_ms=3_000)
    assert leader.node is not None
    epoch = leader.node.epoch
    follower = next(member for member in cluster.members if member is not leader)
    for _ in range(5):
        cluster.crash(follower)
        follower.hard_state = HardState(follower.hard_state.epoch)  # leader and vote not known
        cluster.start(follower)
        cluster.run(for_ms=2_000)
    cluster.settle()
    assert cluster.leader() is leader
    assert leader.node.epoch == epoch


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size", [3, 5])
def test_isolated_leader_resigns_and_another_commits(seed: int, size: int) -> None:
    cluster = Cluster(seed, size)
    old = led(cluster)
    isolate(cluster, old)
    cluster.run_until(lambda: cluster.leader() not in (None, old), within_ms=10_000)
    cluster.run_until(lambda: old.node is not None and not old.node.is_leader, within_ms=5_000)
    count = len(cluster.oracle.committed)
    cluster.run_until(lambda: len(cluster.oracle.committed) > count + 3)
    cluster.settle()


@pytest.mark.parametrize("seed", range(10))
def test_isolated_follower_comes_back_without_a_new_epoch(seed: int) -> None:
    """What pre-votes are for."""
    cluster = Cluster(seed, 3)
    leader = led(cluster)
    cluster.run(for_ms=3_000)
    assert leader.node is not None
    epoch = leader.node.epoch
    follower = next(member for member in cluster.members if member is not leader)
    isolate(cluster, follower)
    cluster.run(for_ms=20_000)
    cluster.settle()
    assert cluster.leader() is leader
    assert leader.node.epoch == epoch


@pytest.mark.parametrize("seed", range(10))
def test_leader_that_resigns_is_soon_followed_by_a_later_epoch(seed: int) -> None:
    """Mostly by another node; by itself if only its log was long enough."""
    cluster = Cluster(seed, 3)
    old = led(cluster)
    cluster.run(for_ms=3_000)
    assert old.node is not None
    epoch = old.node.epoch
    cluster.drive(old, RaftDriver.resign)
    cluster.run_until(lambda: max(cluster.oracle.leaders) > epoch, within_ms=5_000)
    cluster.settle()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size", [1, 3, 5])
def test_everybody_crashes_and_what_was_committed_is_there(seed: int, size: int) -> None:
    cluster = Cluster(seed, size)
    led(cluster)
    cluster.run(for_ms=5_000)
    committed = list(cluster.oracle.committed)
    for member in cluster.members:
        cluster.crash(member)
    cluster.run(for_ms=4_000)
    cluster.settle()
    for member in cluster.members:
        assert member.log.entries[: len(committed)] == committed


@pytest.mark.parametrize("seed", range(10))
def test_observer_finds_the_leader_and_each_new_one(seed: int) -> None:
    cluster = Cluster(seed, 3, observers=2)
    old = led(cluster)
    cluster.settle()
    isolate(cluster, old)
    cluster.run_until(lambda: cluster.leader() not in (None, old))
    leader = cluster.leader()
    assert leader is not None
    observer = cluster.members[-1].node
    assert observer is not None
    cluster.run_until(lambda: observer.leader_id == leader.key.id)
    cluster.settle()


def test_minority_commits_nothing() -> None:
    cluster = Cluster(3, 5)
    leader = led(cluster)
    follower = next(member for member in cluster.members if member is not leader)
    cluster.run(for_ms=1_000)
    isolate(cluster, leader, follower)
    assert leader.node is not None
    before = leader.node.high_watermark
    cluster.run(for_ms=1_000)
    assert leader.log.log_end_offset > (before or 0)
    cluster.run(for_ms=10_000)
    assert leader.node.high_watermark == before
    cluster.settle()
