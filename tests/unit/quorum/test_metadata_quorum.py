"""Three members of a metadata quorum with their disks: elections, replication, restarts."""

from dataclasses import replace

import pytest

from odradek.controller.feature_changes import bootstrap_records
from odradek.core.ids import TopicPartition
from odradek.metadata.record_versions import VersionedRecord
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.metadata_records import NoOpRecord
from odradek.quorum.quorum_listener import NotLeaderError
from odradek.raft.quorum_state import read_quorum_state
from odradek.raft.roles import Resigned
from tests.unit.quorum.metadata_log_harness import topic_records
from tests.unit.quorum.quorum_members import (
    FOLDER,
    Member,
    QuorumCluster,
    address_of,
    directory_of,
)

PARTITION = TopicPartition("__cluster_metadata", 0)


@pytest.mark.parametrize("by_log", [False, True], ids=["static", "by log"])
def test_three_voters_elect_one_leader_and_agree_on_what_it_appends(by_log: bool) -> None:
    cluster = QuorumCluster(1, by_log=by_log)
    leader = cluster.begin()
    cluster.wait_loaded(leader.create_topic("orders"))
    assert [sorted(each.topics) for each in cluster.up()] == [["orders"]] * 3
    assert {each.quorum.leader for each in cluster.up()} == {leader.quorum.leader}
    assert [each.leading for each in cluster.up() if each is not leader] == [[], []]
    assert leader.leading == [leader.quorum.epoch]
    assert {each.quorum.kraft_version for each in cluster.up()} == {int(by_log)}
    version = 1 if by_log else 0
    for member in cluster.up():
        text = member.disk.read(FOLDER / "quorum-state").decode()
        assert f'"data_version":{version}' in text
        assert read_quorum_state(text).leader_id == leader.id


def test_an_append_is_committed_when_a_second_voter_has_it_on_disk() -> None:
    cluster = QuorumCluster(2)
    leader = cluster.begin()
    for other in cluster.up():
        if other is not leader:
            other.kill()
    end_offset = leader.create_topic("alone")
    cluster.world.run_for(0.5)
    assert leader.quorum.log.recovery_point == end_offset
    assert "alone" not in leader.topics
    for other in cluster.members.values():
        if not other.is_up:
            other.start()
            break
    cluster.wait_loaded(end_offset)
    assert "alone" in leader.topics
    assert "alone" in other.topics


def test_when_the_leader_dies_another_takes_over_with_all_that_was_committed() -> None:
    cluster = QuorumCluster(3)
    first = cluster.begin()
    cluster.wait_loaded(first.create_topic("before"))
    killed_at = cluster.world.now
    first.kill(power=True)
    second = cluster.wait_for_leader()
    assert cluster.world.now - killed_at < 10
    assert second is not first
    cluster.wait_loaded(second.create_topic("after"))
    first.start()
    cluster.wait_for_leader()
    cluster.wait_loaded(second.quorum.log_end_offset)
    assert first.topics == {"before", "after"}


def test_a_leader_that_stops_hands_over_at_once() -> None:
    cluster = QuorumCluster(4)
    first = cluster.begin()
    stopped: list[float] = []
    begun = cluster.world.now
    first.quorum.stop_leading(lambda: stopped.append(cluster.world.now - begun))
    assert isinstance(first.quorum.raft.role, Resigned)
    assert first.lost == 1
    cluster.run_until(lambda: bool(stopped))
    assert stopped[0] < 0.3
    first.stop()
    assert cluster.wait_for_leader() is not first


def test_one_that_does_not_lead_stops_at_once() -> None:
    cluster = QuorumCluster(5)
    leader = cluster.begin()
    stopped: list[int] = []
    for member in cluster.up():
        if member is not leader:
            member.quorum.stop_leading(lambda: stopped.append(1))
    assert len(stopped) == 2


def test_a_leader_without_followers_resigns_and_its_records_are_cut_off() -> None:
    cluster = QuorumCluster(6)
    first = cluster.begin()
    cluster.isolate(first)
    lost_offset = first.create_topic("never committed")
    cluster.run_until(lambda: first.lost == 1)
    with pytest.raises(NotLeaderError):
        first.create_topic("too late")
    others = [each for each in cluster.up() if each is not first]
    cluster.run_until(lambda: any(each.quorum.is_leader for each in others))
    second = next(each for each in others if each.quorum.is_leader)
    second.create_topic("elsewhere")
    cluster.run_until(lambda: all("elsewhere" in each.topics for each in others))
    cluster.cut.clear()
    cluster.wait_for_leader()
    cluster.wait_loaded(second.quorum.log_end_offset)
    assert first.topics == {"elsewhere"}
    assert first.quorum.log_end_offset == second.quorum.log_end_offset >= lost_offset
    assert list(first.quorum.log.leader_epochs.entries) == list(
        second.quorum.log.leader_epochs.entries
    )


def test_an_append_in_an_old_epoch_is_refused() -> None:
    cluster = QuorumCluster(7)
    leader = cluster.begin()
    end_offset = leader.quorum.log_end_offset
    with pytest.raises(NotLeaderError):
        leader.quorum.append(leader.quorum.new_batch(topic_records("t")), leader.quorum.epoch - 1)
    assert leader.quorum.log_end_offset == end_offset


def test_followers_hear_of_commits_at_once_but_for_those_of_no_ops() -> None:
    cluster = QuorumCluster(9)
    leader = cluster.begin()
    no_op = VersionedRecord(NoOpRecord(), 0)
    cluster.world.run_for(1.0)

    def seconds_to_load(records: list[VersionedRecord]) -> float:
        """How long it takes until the image of each member has them."""
        begun, end_offset = cluster.world.now, leader.append(records)
        cluster.wait_loaded(end_offset)
        seconds: float = cluster.world.now - begun
        cluster.world.run_for(1.0)
        return seconds

    assert seconds_to_load(topic_records("a")) < 0.2
    assert 0.3 < seconds_to_load([no_op]) < 0.8
    assert seconds_to_load([no_op, *topic_records("b")]) < 0.2


def test_an_observer_follows_and_never_votes() -> None:
    cluster = QuorumCluster(8, observers=2)
    leader = cluster.begin()
    cluster.wait_loaded(leader.create_topic("orders"))
    observers = [each for each in cluster.up() if each.id > 100]
    assert [each.topics for each in observers] == [{"orders"}, {"orders"}]
    leader.kill()
    second = cluster.wait_for_leader()
    cluster.wait_loaded(second.create_topic("more"))
    assert [each.topics for each in observers] == [{"orders", "more"}] * 2
    for each in observers:
        assert each.leading == []
        assert read_quorum_state(each.disk.read(FOLDER / "quorum-state").decode()).voted is None


def test_an_observer_finds_the_quorum_through_bootstrap_servers() -> None:
    cluster = QuorumCluster(9, observers=1, by_log=True)
    leader = cluster.begin()
    cluster.wait_loaded(leader.create_topic("orders"))
    observer = cluster.members[101]
    assert observer.topics == {"orders"}
    assert observer.quorum.voter_ids == (1, 2, 3)
    assert observer.quorum.raft.leader_id == leader.id


def test_a_quorum_whose_every_node_loses_power_keeps_what_was_committed() -> None:
    cluster = QuorumCluster(10)
    leader = cluster.begin()
    for number in range(5):
        cluster.wait_loaded(leader.create_topic(f"t{number}"))
    for member in cluster.up():
        member.kill(power=True)
    epoch = leader.quorum.epoch
    for member in cluster.members.values():
        member.start()
    again = cluster.wait_for_leader()
    assert again.quorum.epoch > epoch
    assert all(len(each.topics) == 5 for each in cluster.up())


def test_a_leader_that_restarts_never_leads_the_same_epoch_again() -> None:
    cluster = QuorumCluster(11)
    leader = cluster.begin()
    epoch = leader.quorum.epoch
    leader.kill()
    leader.start()
    assert not leader.quorum.is_leader
    again = cluster.wait_for_leader()
    assert again.quorum.epoch > epoch


@pytest.mark.parametrize("version", [15, 16, 17, 18])
def test_fetches_of_older_peers_are_understood(version: int) -> None:
    cluster = QuorumCluster(12, fetch_version=version)
    leader = cluster.begin()
    cluster.wait_loaded(leader.create_topic("orders"))
    assert all(each.topics == {"orders"} for each in cluster.up())


def describe(
    member: Member, version: int = 2, topic: str = PARTITION.topic
) -> DescribeQuorumResponse:
    request = DescribeQuorumRequest(
        topics=[
            RequestTopicData(topic_name=topic, partitions=[RequestPartitionData(partition_index=0)])
        ]
    )
    answers: list[object] = []
    member.quorum.handle(request, version, answers.append)
    (answer,) = answers
    assert isinstance(answer, DescribeQuorumResponse)
    return DescribeQuorumResponse.decode(answer.to_bytes(version), version)


@pytest.mark.parametrize("by_log", [False, True], ids=["static", "by log"])
def test_the_leader_describes_its_quorum(by_log: bool) -> None:
    cluster = QuorumCluster(13, observers=1, by_log=by_log)
    leader = cluster.begin()
    end_offset = leader.create_topic("orders")
    cluster.wait_loaded(end_offset)
    cluster.world.run_for(1)
    answer = describe(leader)
    partition = answer.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (leader.id, leader.quorum.epoch)
    assert partition.high_watermark == end_offset
    assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
    assert [each.replica_id for each in partition.observers] == [101]
    states = [*partition.current_voters, *partition.observers]
    assert {each.log_end_offset for each in states} == {end_offset}
    now_ms = leader.quorum._clock.now_ms()
    for state in states:
        assert now_ms - 2_000 < state.last_fetch_timestamp <= now_ms
        assert now_ms - 2_000 < state.last_caught_up_timestamp <= now_ms
        # As by Kafka, the directories of static voters are not known.
        is_known = by_log or state.replica_id in (leader.id, 101)
        assert (state.replica_directory_id == directory_of(state.replica_id)) == is_known
    listeners = {
        each.node_id: [(one.name, one.host) for one in each.listeners] for each in answer.nodes
    }
    assert listeners == {each: [("CONTROLLER", f"host-{each}")] for each in (1, 2, 3)}


def test_others_name_the_error_when_asked_to_describe_the_quorum() -> None:
    cluster = QuorumCluster(14)
    leader = cluster.begin()
    follower = next(each for each in cluster.up() if each is not leader)
    assert describe(follower).topics[0].partitions[0].error_code == 6
    assert describe(leader, topic="orders").topics[0].partitions[0].error_code == 3
    assert describe(leader, version=0).topics[0].partitions[0].leader_id == leader.id


def test_a_replica_that_has_not_fetched_is_described_as_unknown() -> None:
    cluster = QuorumCluster(15)
    cluster.members[1].start()
    cluster.members[2].start()
    leader = cluster.wait_for_leader()
    cluster.wait_loaded(leader.append(bootstrap_records()))
    states = describe(leader).topics[0].partitions[0].current_voters
    (third,) = [each for each in states if each.replica_id == 3]
    assert (
        third.log_end_offset == third.last_fetch_timestamp == third.last_caught_up_timestamp == -1
    )


def test_an_observer_learns_the_leaders_address_from_a_follower() -> None:
    cluster = QuorumCluster(16, observers=1, by_log=True)
    for voter_id in cluster.voter_ids:
        cluster.members[voter_id].start()
    leader = cluster.wait_for_leader()
    follower = next(each for each in cluster.up() if each is not leader)
    observer = cluster.members[101]
    servers = (address_of(follower.id),)
    observer.settings = replace(observer.settings, bootstrap_servers=servers)
    observer.start()
    cluster.wait_loaded(leader.append(bootstrap_records()))
    assert observer.quorum.find_address(leader.id) == address_of(leader.id)
    assert observer.quorum.find_address(-2) == address_of(follower.id)
    assert observer.quorum.find_address(-3) is None


def test_states_have_kafkas_names() -> None:
    cluster = QuorumCluster(17, observers=1)
    cluster.start()
    seen: set[str] = set()
    while cluster.find_leader() is None:
        cluster.world.run_for(0.001)
        seen |= {each.quorum.state_name for each in cluster.up()}
    leader = cluster.wait_for_leader()
    names = sorted(each.quorum.state_name for each in cluster.up())
    assert names == ["follower", "follower", "leader", "observer"]
    assert {"unattached", "prospective", "candidate", "observer"} <= seen
    leader.quorum.resign()
    assert leader.quorum.state_name == "resigned"


def test_commits_and_elections_are_timed() -> None:
    cluster = QuorumCluster(18)
    leader = cluster.begin()
    now_ms = int(cluster.world.now * 1000)
    commit = leader.quorum.times.commits.recent(now_ms)
    assert 0 < commit.average_ms <= commit.max_ms < 100
    leader.kill()
    again = cluster.wait_for_leader()
    now_ms = int(cluster.world.now * 1000)
    assert 0 < again.quorum.times.elections.recent(now_ms).max_ms < 10_000
    assert again.quorum.times.commits.recent(now_ms + 60_000) == (0.0, 0)
