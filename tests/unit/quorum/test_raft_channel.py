"""Raft over lanes: elections, observers, snapshots; cuts, resets, old peers, garbage."""

from collections.abc import Iterator

import pytest

from odradek.core.config import Address
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.update_raft_voter import UpdateRaftVoterRequest
from odradek.protocol.generated.vote import VoteResponse
from odradek.protocol.message import Message
from odradek.quorum import raft_channel
from odradek.quorum.raft_channel_port import LeaderAddress
from odradek.quorum.raft_responses import response_to_wire
from odradek.raft.messages import (
    FetchRequest,
    ProbeVoterRequest,
    ProbeVoterResponse,
    ReplicaKey,
    Response,
    UpdateVoterRequest,
    VoterDetails,
    VoterEndpoint,
    VoteRequest,
)
from odradek.raft.messages import VoteResponse as VotedResponse
from odradek.raft.voters import VoterSet
from odradek.testing.simulation import World
from odradek.wire.lane import LaneError, LaneFailure
from tests.unit.quorum.raft_lane_harness import LISTENER, PORT, Member, Quorum


@pytest.fixture
def world() -> Iterator[World]:
    with World(3) as made:
        yield made


def test_voters_elect_a_leader_and_all_get_what_it_appends(world: World) -> None:
    quorum = Quorum(world, 3, observers=2)
    quorum.commit("first")
    for number in range(30):
        quorum.append(f"value {number}")
        world.run_for(0.05)
    quorum.commit("last")
    assert len(quorum.observers[0].values) == 33  # with the leader change
    quorum.check_agreement()
    leader = quorum.leader
    assert leader is not None
    for observer in quorum.observers:  # who knew bootstrap servers alone, by negative ids
        assert observer.learned == {leader.key.id: (leader.node.name, PORT)}


def test_each_voter_has_two_connections_to_the_others_at_most(world: World) -> None:
    quorum = Quorum(world, 3)
    quorum.commit("first")
    world.run_for(60)
    for member in quorum.voters:
        assert 1 <= member.server.connection_count <= 4
    assert not any(member.failed for member in quorum.voters)


def test_a_vote_does_not_wait_behind_a_fetch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum(world, 3)
    quorum.commit("first")
    leader = quorum.leader
    assert leader is not None
    follower = next(each for each in quorum.voters if each is not leader)
    answered: list[Response] = []
    monkeypatch.setattr(follower, "step", lambda response: answered.append(response))
    world.run_until(lambda: bool(answered), 5)
    fetch = FetchRequest(1001, follower.key, leader.epoch, follower.log.log_end_offset, 1, 2, 500)
    vote = VoteRequest(1002, leader.key, follower.key, leader.epoch, 0, 0, pre_vote=True)
    start = world.now
    for each in (fetch, vote):
        follower.node.loop.call_soon(follower.lanes.send, leader.key.id, each)
    world.run_until(lambda: len(answered) == 3, 5)
    assert [each.correlation_id for each in answered[1:]] == [1002, 1001]
    assert world.now - start >= 0.5


@pytest.mark.parametrize("is_deaf", [False, True], ids=["mute", "deaf"])
def test_a_leader_that_is_cut_off_one_way_is_replaced(world: World, is_deaf: bool) -> None:
    quorum = Quorum(world, 3)
    quorum.commit("first")
    old = quorum.leader
    assert old is not None
    others = [each for each in quorum.voters if each is not old]
    for each in others:
        way = (each, old) if is_deaf else (old, each)
        world.network.cut(way[0].node.name, way[1].node.name, both_ways=False)
    start = world.now
    world.run_until(lambda: quorum.leader is not old and quorum.leader is not None, 20)
    elected = world.now - start
    quorum.commit("without the old one", *others, seconds_max=10)
    assert elected < 8
    world.network.heal_all()
    quorum.commit("with all")
    quorum.check_agreement()


@pytest.mark.parametrize("seed", range(8))
def test_all_follow_another_leader_three_seconds_after_one_fell_silent(seed: int) -> None:
    with World(seed) as world:
        quorum = Quorum(world, 3, observers=2)
        quorum.commit("first")
        old = quorum.leader
        assert old is not None
        world.run_for(world.random("fault").uniform(5, 6))  # fetches are in step
        others = [each for each in quorum.members if each is not old]
        world.network.partition([old.node.name], [each.node.name for each in others])
        start = world.now

        def is_followed() -> bool:
            leaders = {each.raft.leader_id for each in others}
            return len(leaders) == 1 and leaders.isdisjoint({old.key.id, None})

        world.run_until(is_followed, 20)
        assert world.now - start < 3
        assert max(each.epoch for each in others) == old.epoch + 1  # no vote was split


def test_the_log_says_once_who_refuses_this_node(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    quorum = Quorum(world, 2)
    quorum.commit("first")
    leader = quorum.leader
    assert leader is not None
    follower = next(each for each in quorum.voters if each is not leader)
    lane = follower.lanes._lanes_to(leader.key.id).vote

    def refuse(error: ErrorCode) -> None:
        response = VotedResponse(1000, leader.key.id, error, None, 0, False)
        follower.lanes._on_answer(lane, leader.key.id, 1000, response_to_wire(response, None, 2))

    for error in (
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    ):
        follower.node.loop.call_soon(refuse, error)
    world.run_for(0.1)
    lines = [line for line in caplog.messages if "refused by a member" in line]
    assert len(lines) == 2
    assert "INCONSISTENT_CLUSTER_ID" in lines[0]


def test_a_leader_that_resigns_is_replaced_at_once(world: World) -> None:
    quorum = Quorum(world, 3)
    quorum.commit("first")
    old = quorum.leader
    assert old is not None
    start = world.now
    old.node.loop.call_soon(old.driver.resign)
    world.run_until(lambda: quorum.leader not in (None, old), 5)
    assert world.now - start < 0.3


def test_a_follower_that_was_away_for_long_gets_a_snapshot(world: World) -> None:
    quorum = Quorum(world, 3)
    quorum.commit("first")
    leader = quorum.leader
    assert leader is not None
    away = next(each for each in quorum.voters if each is not leader)
    rest = [each for each in quorum.voters if each is not away]
    world.network.partition([away.node.name], [each.node.name for each in rest])
    for number in range(20):
        quorum.append(f"value {number}")
        world.run_for(0.05)
    quorum.commit("last", *rest)
    for each in rest:
        each.log.snapshot(each.committed)
    world.network.heal_all()
    quorum.commit("after the snapshot")
    assert away.log.log_start_offset > 20
    quorum.check_agreement()


def test_peers_from_before_pre_votes_hold_plain_elections(world: World) -> None:
    quorum = Quorum(world, 3, observers=1, Vote=1, Fetch=17)
    assert quorum.commit("first") < 20


def test_a_peer_without_fetch_for_replicas_is_too_old(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    voters = VoterSet.of_ids(1)
    Member(world, 1, voters, {}, Fetch=14)
    observer = Member(world, 2, voters, {-2: Address("n1", PORT)})
    world.run_until(lambda: bool(observer.failed), 5)
    assert "Fetch up to 14, needed is 15" in caplog.text


def test_an_answer_about_nothing_costs_the_connection(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(world, 3)
    first = quorum.voters[0]
    reply = first._reply
    wrong: list[Message] = []

    def reply_wrongly(message: Message, *others: object) -> None:
        if isinstance(message, VoteResponse):
            message = VoteResponse(topics=[])
            wrong.append(message)
        reply(message, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(first, "_reply", reply_wrongly)
    quorum.commit("first")  # the others elect one of them, or the first one asks
    assert len(wrong) < 20
    failed = [target for each in quorum.voters[1:] for target, _ in each.failed]
    assert failed == len(wrong) * [1]


def test_an_old_leader_in_a_late_answer_is_not_believed(world: World) -> None:
    quorum = Quorum(world, 3)
    quorum.commit("first")
    leader = quorum.leader
    assert leader is not None
    follower = next(each for each in quorum.voters if each is not leader)
    voted = VotedResponse(1, 9, ErrorCode.NONE, 9, leader.epoch - 1, False)
    assert not follower.lanes._names_leader(voted, LeaderAddress(9, "n9", PORT))
    other = VotedResponse(1, 9, ErrorCode.NONE, 8, leader.epoch, False)
    assert not follower.lanes._names_leader(other, LeaderAddress(9, "n9", PORT))


def test_a_leader_from_before_kip_853_need_not_know_its_voters(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(world, 1)
    asker, steps = quorum.voters[0], list[Response]()
    monkeypatch.setattr(asker, "step", steps.append)
    request = UpdateVoterRequest(7, asker.key, 1, VoterDetails())
    asker.node.loop.call_soon(asker.lanes.send, 1, request)
    world.run_until(lambda: bool(steps), 5)
    assert [each.error for each in steps] == [ErrorCode.UNSUPPORTED_VERSION]


def test_a_node_that_is_to_be_a_voter_is_asked_where_the_request_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = Quorum(world, 2)
    asker, steps = quorum.voters[0], list[Response]()

    def step(response: Response) -> None:
        if isinstance(response, ProbeVoterResponse):
            steps.append(response)

    monkeypatch.setattr(asker, "step", step)
    there = VoterEndpoint(LISTENER, "n2", PORT)
    elsewhere = VoterEndpoint(LISTENER, "n2", PORT + 1)
    other = VoterEndpoint("OTHER", "n2", PORT + 1)
    asker.node.loop.call_soon(asker.lanes.send, 77, ProbeVoterRequest(7, (other, there)))
    world.run_until(lambda: bool(steps), 5)
    assert steps == [ProbeVoterResponse(7, 77, ErrorCode.NONE)]  # this peer has no features
    asker.node.loop.call_soon(asker.lanes.send, 77, ProbeVoterRequest(8, (elsewhere,)))
    world.run_until(lambda: len(steps) == 2, 5)
    assert steps[1] == ProbeVoterResponse(8, 77, ErrorCode.BROKER_NOT_AVAILABLE)
    asker.node.loop.call_soon(asker.lanes.close)
    world.run_for(1)


def test_after_a_close_raft_hears_nothing(world: World) -> None:
    quorum = Quorum(world, 3)
    quorum.commit("first")
    voter = quorum.voters[0]
    voter.node.loop.call_soon(voter.lanes.close)
    world.run_for(0.1)
    failed = list(voter.failed)
    world.run_for(10)
    assert voter.failed == failed


def test_lanes_have_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_channel, "TARGETS_MAX", 2)
    quorum = Quorum(world, 1)
    voter = quorum.voters[0]

    def vote(correlation_id: int, target: int) -> None:
        voter.lanes.send(
            target, VoteRequest(correlation_id, ReplicaKey(target), voter.key, 9, 0, 0, True)
        )

    for correlation_id, target in enumerate([11, 12, 11, 13], start=1):
        voter.node.loop.call_soon(vote, correlation_id, target)
    world.run_for(0.1)
    given_up = voter.lanes._targets[11]
    voter.node.loop.call_soon(vote, 5, 14)
    world.run_until(lambda: len(voter.failed) == 5, 5)
    assert sorted(voter.failed) == [(11, 1), (11, 3), (12, 2), (13, 4), (14, 5)]
    assert list(voter.lanes._targets) == [13, 14]
    errors: list[LaneError] = []
    request = UpdateRaftVoterRequest()
    for lane in given_up:
        voter.node.loop.call_soon(lane.send, request, lambda _: None, errors.append)
    world.run_until(lambda: len(errors) == 2, 5)
    assert [each.failure for each in errors] == 2 * [LaneFailure.CLOSED]


@pytest.mark.parametrize("seed", range(6))
def test_a_quorum_agrees_through_cuts_and_resets(seed: int) -> None:
    with World(seed) as world:
        quorum = Quorum(world, 3, observers=1)
        random = world.random("faults")
        names = [each.node.name for each in quorum.members]
        value = 0
        while world.now < 60:
            one, other = random.sample(names, 2)
            match random.randrange(6):
                case 0:
                    world.network.cut(one, other, both_ways=False)
                case 1:
                    world.network.cut(one, other)
                case 2:
                    world.network.reset(one, other)
                case 3:
                    world.network.partition([one], [each for each in names if each != one])
                case _:
                    world.network.heal_all()
            for _ in range(3):
                value += 1
                quorum.append(f"value {value}")
                world.run_for(random.uniform(0, 1))
            quorum.check_agreement()
        world.network.heal_all()
        quorum.commit("healed")
        quorum.check_agreement()
