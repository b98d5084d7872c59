"""Voters that change, with real logs, snapshots and messages: what the log says, and who counts."""

from dataclasses import replace

import pytest

from odradek.core.errors import ErrorCode
from odradek.metadata.snapshots import QuorumRecords
from odradek.protocol.generated import add_raft_voter, remove_raft_voter
from odradek.protocol.message import Message
from odradek.quorum.voters_record import voters_to_record
from odradek.raft.messages import VoterEndpoint
from tests.unit.quorum.quorum_members import (
    CLUSTER_ID,
    LISTENER,
    Member,
    QuorumCluster,
    address_of,
    directory_of,
)


def add_request(node_id: int) -> add_raft_voter.AddRaftVoterRequest:
    host, port = address_of(node_id)
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        voter_id=node_id,
        voter_directory_id=directory_of(node_id),
        listeners=[add_raft_voter.Listener(name=LISTENER, host=host, port=port)],
    )


def remove_request(node_id: int) -> remove_raft_voter.RemoveRaftVoterRequest:
    return remove_raft_voter.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_of(node_id)
    )


def ask(cluster: QuorumCluster, request: Message) -> None:
    """Ask the leader, and again as long as it says to wait."""
    codes: list[int] = []

    def is_done() -> bool:
        if not codes or codes[-1] == ErrorCode.REQUEST_TIMED_OUT:
            leader = cluster.wait_for_leader()
            answers: list[Message] = []
            leader.quorum.handle(request, request.VERSION_MAX, answers.append)
            cluster.run_until(lambda: bool(answers))
            codes.append(answers[0].error_code)  # type: ignore[attr-defined]
        return codes[-1] != ErrorCode.REQUEST_TIMED_OUT

    cluster.run_until(is_done)
    assert codes[-1] == ErrorCode.NONE


def joiner(cluster: QuorumCluster, node_id: int, *, auto_join: bool = False) -> Member:
    """Start a controller that knows but the bootstrap servers."""
    cluster.members[node_id] = member = cluster.make_controller(node_id)
    raft = member.settings.raft._replace(auto_join=auto_join)
    member.settings = replace(member.settings, raft=raft)
    member.start()
    return member


def wait_for_voters(cluster: QuorumCluster, *ids: int) -> None:
    cluster.run_until(lambda: all(each.quorum.voter_ids == ids for each in cluster.up()))


def test_voters_come_and_go_and_snapshots_and_restarts_know_them() -> None:
    cluster = QuorumCluster(1, voters=1, by_log=True)
    cluster.begin()
    joiner(cluster, 4)
    ask(cluster, add_request(4))
    joiner(cluster, 5)
    ask(cluster, add_request(5))
    wait_for_voters(cluster, 1, 4, 5)
    leader = cluster.wait_for_leader()
    assert leader.quorum.voters is not None
    assert [each.endpoints[0].port for each in leader.quorum.voters.voters] == [9001, 9004, 9005]
    ask(cluster, remove_request(1))
    wait_for_voters(cluster, 4, 5)
    leader = cluster.wait_for_leader()
    assert leader.id in (4, 5)
    cluster.wait_loaded(leader.create_topic("after"))
    for member in cluster.up():
        member.kill(power=True)
    for member in cluster.members.values():
        member.start()
    leader = cluster.wait_for_leader()
    assert leader.id in (4, 5)
    wait_for_voters(cluster, 4, 5)
    assert cluster.members[1].quorum.state_name == "observer"
    assert all("after" in each.topics for each in cluster.up())


def test_a_controller_joins_by_itself() -> None:
    cluster = QuorumCluster(2, voters=1, by_log=True)
    cluster.begin()
    joiner(cluster, 4, auto_join=True)
    joiner(cluster, 5, auto_join=True)
    wait_for_voters(cluster, 1, 4, 5)


def upgrade(cluster: QuorumCluster) -> None:
    leader = cluster.wait_for_leader()
    found = leader.quorum.upgraded_voters
    assert found is not None
    records = QuorumRecords(1, voters_to_record(found))
    leader.quorum.append_quorum(records, leader.quorum.epoch)


def knows_all(cluster: QuorumCluster) -> bool:
    leader = cluster.find_leader()
    found = None if leader is None else leader.quorum.upgraded_voters
    return found is not None and found.supports(1)


def test_static_voters_say_who_they_are_and_the_log_names_them_then() -> None:
    cluster = QuorumCluster(3)
    leader = cluster.begin()
    found = leader.quorum.upgraded_voters
    assert found is not None
    assert not found.supports(1), "the others have not said anything yet"
    cluster.run_until(lambda: knows_all(cluster))
    upgrade(cluster)
    cluster.run_until(lambda: all(each.quorum.kraft_version == 1 for each in cluster.up()))
    leader = cluster.wait_for_leader()
    assert leader.quorum.upgraded_voters is None
    assert leader.quorum.voters is not None
    named = [(each.voter_id, each.voter_directory_id) for each in leader.quorum.voters.voters]
    assert named == [(each, directory_of(each)) for each in (1, 2, 3)]
    ask(cluster, remove_request(leader.id))


def test_each_new_leader_hears_from_the_static_voters_again() -> None:
    cluster = QuorumCluster(4)
    leader = cluster.begin()
    cluster.run_until(lambda: knows_all(cluster))
    leader.kill()
    second = cluster.wait_for_leader()
    found = second.quorum.upgraded_voters
    assert found is not None
    assert not found.supports(1)
    leader.start()
    cluster.run_until(lambda: knows_all(cluster))


@pytest.mark.parametrize("leads", [True, False])
def test_a_voter_that_is_started_elsewhere_is_found_there(leads: bool) -> None:
    cluster = QuorumCluster(5, by_log=True)
    leader = cluster.begin()
    moved = next(each for each in cluster.up() if (each is leader) is leads)
    moved.kill()
    cluster.wait_for_leader()
    elsewhere = VoterEndpoint(LISTENER, f"elsewhere-{moved.id}", address_of(moved.id).port)
    moved.settings = replace(moved.settings, endpoints=(elsewhere,))
    moved.start()

    def is_known() -> bool:
        for member in cluster.up():
            voters = member.quorum.voters
            assert voters is not None
            hosts = {each.voter_id: each.endpoints[0].host for each in voters.voters}
            if hosts[moved.id] != elsewhere.host:
                return False
        return True

    cluster.run_until(is_known)


def test_a_change_of_the_voters_is_answered_when_its_leader_stops() -> None:
    cluster = QuorumCluster(6, by_log=True)
    leader = cluster.begin()
    for other in cluster.up():
        if other is not leader:
            other.kill()
    answers: list[Message] = []
    leader.quorum.handle(remove_request(leader.id), 0, answers.append)
    assert not answers
    leader.stop()
    (answer,) = answers
    assert isinstance(answer, remove_raft_voter.RemoveRaftVoterResponse)
    assert answer.error_code == ErrorCode.BROKER_NOT_AVAILABLE
