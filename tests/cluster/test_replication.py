"""Partitions with three replicas on nodes that are processes: killed, stopped, cut off, wiped.

What is asked for is what Kafka does: the same tests run with Kafka's server (``flavours``).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.produce import ProduceResponse
from tests.broker_connection import BrokerConnection
from tests.cluster.asking import active_controller, placements_of
from tests.cluster.flavours import Flavour
from tests.cluster.processes import COMBINED, Cluster, ClusterNode, wait_until
from tests.cluster.replica_records import (
    ACKS_ALL,
    ACKS_LEADER,
    check_equal_logs,
    make_replicated_topic,
    produce,
    produce_as_new_leader,
    produce_request,
    produced_in,
    see,
    wait_for_leader,
    wait_until_in_sync,
)
from tests.record_requests import PRODUCE_VERSION

pytestmark = pytest.mark.slow

CONFIGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
# A stopped follower stays alive to the controller, and in sync until its lag is noticed.
LAGGING = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "8000"}
# Elections come from sessions alone.
NEVER_LAGGING = {**CONFIGS, "replica.lag.time.max.ms": "120000"}
ONE_CONTROLLER = {1: "controller", 11: "broker", 12: "broker", 13: "broker"}
SHORT_MS = 500
TRIES_MAX = 10


@pytest.fixture(scope="module")
def cluster(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, COMBINED, flavour, configs=CONFIGS) as made:
        made.start()
        yield made


def test_a_follower_with_a_wiped_disk_gets_everything_again(cluster: Cluster) -> None:
    leader, follower, other = cluster.brokers
    make_replicated_topic(cluster, "wiped", [leader, follower, other])
    for number in range(20):
        assert produce(leader, "wiped", b"%d" % number, acks=ACKS_ALL).code == ErrorCode.NONE
    follower.kill()
    shutil.rmtree(follower.data_dir)
    cluster.format(follower)
    assert produce(leader, "wiped", b"20", acks=ACKS_ALL).code == ErrorCode.NONE
    follower.restart()
    wait_until_in_sync(cluster, "wiped")
    check_equal_logs(cluster, "wiped")
    values = see(wait_for_leader(other, "wiped", cluster.brokers), "wiped").values
    assert values == [b"%d" % number for number in range(21)]


@pytest.mark.seed_row("0.8")
def test_a_leader_that_slept_through_its_session_acknowledges_nothing_for_all(
    cluster: Cluster,
) -> None:
    leader, *others = cluster.brokers
    make_replicated_topic(cluster, "slept", [leader, *others], min_insync_replicas="2")
    assert produce(leader, "slept", b"before", acks=ACKS_ALL).code == ErrorCode.NONE
    with BrokerConnection(leader.port) as one, BrokerConnection(leader.port) as another:
        leader.pause()
        # Both wait in its sockets, and are the first that it sees when it wakes up.
        one.send(produce_request("slept", b"for all", acks=ACKS_ALL), PRODUCE_VERSION)
        another.send(produce_request("slept", b"for one", acks=ACKS_LEADER), PRODUCE_VERSION)
        successor = wait_for_leader(others[0], "slept", others)
        after = produce_as_new_leader(successor, "slept", b"after", acks=ACKS_ALL)
        leader.resume()
        for_all = produced_in(one.receive(ProduceResponse, PRODUCE_VERSION))
        produced_in(another.receive(ProduceResponse, PRODUCE_VERSION))  # either is right
    assert after == (ErrorCode.NONE, 1)
    assert for_all.code != ErrorCode.NONE
    wait_until_in_sync(cluster, "slept")
    check_equal_logs(cluster, "slept")
    assert see(successor, "slept").values == [b"before", b"after"]


@pytest.mark.seed_row("3.2", "3.7")
def test_reads_end_at_the_high_watermark_and_too_few_in_sync_refuse_writes(
    tmp_path: Path, flavour: Flavour
) -> None:
    """A follower stops (row 3.2), leaves the ISR, and comes back (row 3.7)."""
    with Cluster(tmp_path, COMBINED, flavour, configs=LAGGING) as cluster:
        cluster.start()
        controller = active_controller(cluster)
        leader, follower = (each for each in cluster.brokers if each is not controller)
        replicas = [leader, follower, controller]
        make_replicated_topic(cluster, "t", replicas, min_insync_replicas="3")
        assert produce(leader, "t", b"all have it", acks=ACKS_ALL) == (ErrorCode.NONE, 0)
        end = write_past_a_stopped_follower(cluster, leader, follower)
        wait_until(
            lambda: placements_of(leader, "t")[0].isr == {leader.id, controller.id},
            "the stopped follower has left the ISR",
        )
        refused = produce(leader, "t", b"refused", acks=ACKS_ALL)
        assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
        # Nothing was appended: the next record has the next offset.
        assert produce(leader, "t", b"next", acks=ACKS_LEADER) == (ErrorCode.NONE, end)
        follower.resume()
        wait_until_in_sync(cluster, "t")
        assert produce(leader, "t", b"again", acks=ACKS_ALL) == (ErrorCode.NONE, end + 1)
        values = see(leader, "t").values
        assert len(values) == end + 2
        assert b"refused" not in values
        check_equal_logs(cluster, "t")


def write_past_a_stopped_follower(
    cluster: Cluster, leader: ClusterNode, follower: ClusterNode
) -> int:
    """Stop a follower, write, see that nothing of it can be read; return the end of the log.

    On a busy machine the lag may be noticed before all has been asked: then once more.
    """
    for _ in range(TRIES_MAX):
        wait_until_in_sync(cluster, "t")
        before = see(leader, "t")
        follower.pause()
        written = produce(leader, "t", b"only some have it", acks=ACKS_LEADER)
        waits = produce(leader, "t", b"never enough", acks=ACKS_ALL, timeout_ms=SHORT_MS)
        seen = see(leader, "t")
        if len(placements_of(leader, "t")[0].isr) == len(cluster.brokers):
            assert written == (ErrorCode.NONE, before.high_watermark)
            assert waits.code == ErrorCode.REQUEST_TIMED_OUT
            assert seen == before
            return written.base_offset + 2
        follower.resume()
    pytest.fail(f"{TRIES_MAX} times the follower had left the ISR before reads were seen")


@pytest.mark.seed_row("3.5")
def test_logs_that_parted_in_two_elections_end_equal(tmp_path: Path, flavour: Flavour) -> None:
    """The logs of KIP-101 and KIP-279: three replicas, three endings, of three epochs."""
    with Cluster(tmp_path, ONE_CONTROLLER, flavour, configs=NEVER_LAGGING) as cluster:
        cluster.start()
        first, *others = cluster.brokers
        make_replicated_topic(cluster, "t", [first, *others])
        for number in range(5):
            assert produce(first, "t", b"%d" % number, acks=ACKS_ALL).code == ErrorCode.NONE
        cluster.relays.isolate(first.id, cluster.nodes)
        for number in range(4):
            produce(first, "t", b"first %d" % number, acks=ACKS_LEADER)
        second = wait_for_leader(others[0], "t", others)
        (third,) = (node for node in others if node is not second)
        cluster.relays.isolate(second.id, {third.id: third})
        for number in range(3):
            answer = produce_as_new_leader(second, "t", b"second %d" % number, acks=ACKS_LEADER)
            assert answer == (ErrorCode.NONE, 5 + number)
        cluster.relays.isolate(second.id, cluster.nodes)
        wait_for_leader(third, "t", [third])
        for number in range(2):
            answer = produce_as_new_leader(third, "t", b"third %d" % number, acks=ACKS_LEADER)
            assert answer == (ErrorCode.NONE, 5 + number)
        cluster.relays.heal()
        wait_until_in_sync(cluster, "t")
        check_equal_logs(cluster, "t")
        leader = wait_for_leader(third, "t", cluster.brokers)
        wanted = [*(b"%d" % number for number in range(5)), b"third 0", b"third 1"]
        assert see(leader, "t").values == wanted
