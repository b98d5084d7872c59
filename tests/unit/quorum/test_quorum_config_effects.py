"""What the configs ``controller.quorum.*`` do, each by what is different with another value.

That they get from a file to ``QuorumSettings`` is in ``test_quorum_settings``.
"""

import pytest

from odradek.raft import RaftConfig
from tests.unit.quorum.quorum_members import FLUSH, LATENCY, Member, QuorumCluster
from tests.unit.quorum.test_quorum_snapshots import OFTEN, fill


@pytest.mark.parametrize("timeout_ms", [100, 4_000])
def test_a_leader_that_resigned_waits_for_the_election_timeout(timeout_ms: int) -> None:
    cluster = QuorumCluster(1, raft=RaftConfig(election_timeout_ms=timeout_ms))
    leader = cluster.begin()
    epoch = leader.quorum.epoch
    cluster.isolate(leader)
    cluster.run_until(lambda: leader.lost == 1)
    begun = cluster.world.now
    cluster.run_until(lambda: leader.quorum.epoch > epoch)
    # Random between once and twice.
    assert timeout_ms <= (cluster.world.now - begun) * 1000 <= 2 * timeout_ms + 100


def test_a_new_quorum_waits_for_up_to_a_fifth_of_the_election_timeout() -> None:
    def elections_ms(timeout_ms: int) -> list[float]:
        times = []
        for seed in range(5):
            cluster = QuorumCluster(seed, raft=RaftConfig(election_timeout_ms=timeout_ms))
            cluster.start()
            cluster.run_until(lambda each=cluster: each.find_leader() is not None)  # type: ignore[misc]
            times.append(cluster.world.now * 1000)
        return times

    assert max(elections_ms(100)) < 20 + 100
    assert 400 < max(elections_ms(4_000)) < 800 + 100


def takeover_ms(raft: RaftConfig) -> float:
    cluster = QuorumCluster(2, raft=raft)
    leader = cluster.begin()
    killed_at = cluster.world.now
    leader.kill()
    cluster.run_until(lambda: cluster.find_leader() is not None)
    return (cluster.world.now - killed_at) * 1000


def test_a_dead_leader_is_noticed_after_the_fetch_timeout() -> None:
    short, long = RaftConfig(fetch_timeout_ms=300), RaftConfig(fetch_timeout_ms=5_000)
    assert 100 < takeover_ms(short) < 4_000
    assert takeover_ms(long) > 4_500


def third_takes_over_ms(raft: RaftConfig) -> float:
    """Return how long the less preferred successor holds back when the first one is gone."""
    cluster = QuorumCluster(3, raft=raft)
    leader = cluster.begin()
    # Of two with equal logs the one with the smaller id comes first.
    first, second = sorted((each for each in cluster.up() if each is not leader), key=_id)
    cluster.wait_loaded(leader.create_topic("orders"))
    cluster.world.run_for(1)
    cluster.silent.add(first.id)
    begun = cluster.world.now
    leader.quorum.resign()
    cluster.run_until(lambda: second.quorum.raft.epoch > leader.leading[-1])
    return (cluster.world.now - begun) * 1000


def _id(member: Member) -> int:
    return member.id


def test_successors_hold_back_by_the_election_backoff() -> None:
    short = third_takes_over_ms(RaftConfig(election_backoff_max_ms=100))
    long = third_takes_over_ms(RaftConfig(election_backoff_max_ms=1_900))
    assert short + 500 < long


def test_a_silent_peer_is_given_up_after_the_request_timeout() -> None:
    for timeout_ms in (200, 2_500):
        config = RaftConfig(request_timeout_ms=timeout_ms, fetch_timeout_ms=60_000)
        cluster = QuorumCluster(4, raft=config)
        leader = cluster.begin()
        follower = next(each for each in cluster.up() if each is not leader)
        cluster.world.run_for(1)
        cluster.silent.add(leader.id)
        cluster.world.run_for(1)  # what the leader had answered before
        before = cluster.ignored
        cluster.world.run_for(10)
        # Each follower asks the leader, gives up, asks others meanwhile, and the leader again.
        count = cluster.ignored - before
        assert follower.quorum.leader_id == leader.id
        assert (count > 40) == (timeout_ms == 200), count


def test_a_peer_that_refuses_is_asked_again_after_the_retry_backoff() -> None:
    sent = []
    for backoff_ms in (20, 500):
        cluster = QuorumCluster(5, raft=RaftConfig(retry_backoff_ms=backoff_ms))
        cluster.members[1].start()  # alone: nobody answers
        cluster.world.run_for(20)
        sent.append(cluster.members[1].failed_sends)
    assert sent[0] > 3 * sent[1] > 0


def test_a_fetch_gets_as_many_bytes_as_the_limit() -> None:
    counts = []
    for bytes_max in (1, 1 << 20):
        cluster = QuorumCluster(6, fetch_max_bytes=bytes_max)
        leader = cluster.begin()
        behind = next(each for each in cluster.up() if each is not leader)
        behind.kill()
        for number in range(40):
            cluster.wait_loaded(leader.create_topic(f"t{number}"))
        before = cluster.sent["Fetch"]
        begun = cluster.world.now
        behind.start()
        cluster.wait_loaded(leader.quorum.log_end_offset)
        counts.append(cluster.sent["Fetch"] - before)
        assert cluster.world.now - begun < 5
    assert counts[0] > 40 > counts[1]  # a batch at a time, or all at once


def test_a_snapshot_comes_in_pieces_of_the_limit() -> None:
    counts = []
    for bytes_max in (100, 1 << 20):
        raft = RaftConfig(fetch_snapshot_max_bytes=bytes_max)
        cluster = QuorumCluster(7, log=OFTEN, raft=raft)
        leader = cluster.begin()
        behind = next(each for each in cluster.up() if each is not leader)
        behind.kill()
        fill(cluster, leader, 40)
        behind.start()
        cluster.wait_loaded(leader.quorum.log_end_offset)
        counts.append(cluster.sent["FetchSnapshot"])
    assert counts[0] > 20
    assert counts[1] == 1


def test_commits_take_a_round_and_two_flushes() -> None:
    """No linger: an append is flushed, and sent, at once."""
    cluster = QuorumCluster(8)
    leader = cluster.begin()
    cluster.world.run_for(1)
    begun = cluster.world.now
    end_offset = leader.create_topic("orders")
    cluster.wait_loaded(end_offset, [leader])
    assert cluster.world.now - begun <= 2 * LATENCY + FLUSH + 0.001
