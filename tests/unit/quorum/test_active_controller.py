"""Asking the active controller while it moves: local and remote, lost, cut off, not there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import cast

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.generated.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.message import Message
from odradek.quorum.active_controller import (
    ActiveController,
    ChannelSettings,
    ControllerChannel,
    LocalController,
)
from odradek.quorum.raft_channel_port import LeaderAddress
from odradek.quorum.remote_controller import RemoteController
from odradek.testing.simulation import World
from odradek.wire.lane import LaneSettings
from tests.unit.wire.lane_harness import ALLOCATE, PORT, Peer, number

OWN_ID = 7
SETTINGS = ChannelSettings(repeats_lost=True, timeout_ms=60_000)
LANE = LaneSettings("broker-7", connect_timeout_ms=1_000, in_flight_max=10)
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


class Known:
    """A ``Leadership``: what this node knows of the leader."""

    node_id = OWN_ID

    def __init__(self) -> None:
        self.leader: LeaderAddress | None = None

    @property
    def leader_id(self) -> int | None:
        return None if self.leader is None else self.leader.leader_id

    def find_leader_address(self) -> LeaderAddress | None:
        return self.leader


@dataclass
class Local:
    """The controller of this process."""

    error: ErrorCode = ErrorCode.NONE
    is_holding: bool = False
    numbers: list[int] = field(default_factory=list)
    held: list[Callable[[], None]] = field(default_factory=list)

    def __call__(self, request: Message, reply: Callable[[Message], None]) -> None:
        value = cast("AllocateProducerIdsRequest", request).broker_epoch
        self.numbers.append(value)

        def answer() -> None:
            reply(AllocateProducerIdsResponse(producer_id_start=value, error_code=self.error))

        if self.is_holding:
            self.held.append(answer)
        else:
            answer()


class Asker:
    def __init__(
        self,
        world: World,
        settings: ChannelSettings = SETTINGS,
        local: LocalController | None = None,
        lane: LaneSettings = LANE,
    ) -> None:
        self.world = world
        self.node = world.add_node("asker")
        self.known = Known()
        remote = partial(RemoteController, "test", self.known, lane, Random(1))
        self.channel = ActiveController(self.known, remote, settings, Random(2), local)
        self.answers: list[int] = []
        self.errors: list[tuple[int, ApiError]] = []

    def lead(self, leader_id: int | None, host: str = "", port: int = PORT) -> None:
        """Let another node lead, as the quorum would report it."""
        self.known.leader = None if leader_id is None else LeaderAddress(leader_id, host, port)
        self.node.loop.call_soon(self.channel.on_leader_changed)

    def ask(self, *values: int) -> None:
        for value in values:
            self.node.loop.call_soon(self._ask, value)

    def _ask(self, value: int) -> None:
        def then(answer: Message) -> None:
            self.answers.append(cast("AllocateProducerIdsResponse", answer).producer_id_start)

        channel: ControllerChannel = self.channel
        channel.ask(number(value), then, lambda error: self.errors.append((value, error)))

    @property
    def ended(self) -> int:
        return len(self.answers) + len(self.errors)

    def until_ended(self, count: int, seconds_max: float = 90) -> None:
        self.world.run_until(lambda: self.ended >= count, seconds_max)

    def codes(self) -> list[tuple[int, ErrorCode]]:
        return [(value, error.code) for value, error in self.errors]


@pytest.fixture
def world() -> Iterator[World]:
    with World(7) as made:
        yield made


def test_the_leader_of_another_process_is_asked_over_a_lane(world: World) -> None:
    peer, asker = Peer(world), Asker(world, local=Local())
    asker.lead(1, "peer")
    asker.ask(*range(20))
    asker.until_ended(20)
    assert asker.answers == peer.numbers == list(range(20))


def test_the_leader_of_this_process_gets_the_message_itself(world: World) -> None:
    local = Local()
    peer, asker = Peer(world), Asker(world, local=local)
    asker.lead(OWN_ID, "peer")
    asker.ask(1, 2)
    asker.until_ended(2)
    assert asker.answers == local.numbers == [1, 2]
    assert peer.asked == []


def test_each_ask_chooses_again(world: World) -> None:
    local = Local()
    peer, asker = Peer(world), Asker(world, local=local)
    for value in range(6):
        asker.lead(1 if value % 2 else OWN_ID, "peer")
        asker.ask(value)
        asker.until_ended(value + 1)
    assert (local.numbers, peer.numbers) == ([0, 2, 4], [1, 3, 5])


def test_an_ask_waits_for_a_leader_and_goes_out_when_there_is_one(world: World) -> None:
    peer, asker = Peer(world), Asker(world)
    asker.ask(1, 2)
    world.run_for(5)
    assert asker.ended == 0
    asker.lead(1, "peer")
    asker.until_ended(2, 0.1)
    assert asker.answers == peer.numbers == [1, 2]


def test_without_a_leader_an_ask_times_out(world: World) -> None:
    asker = Asker(world)
    asker.ask(1)
    asker.until_ended(1)
    assert asker.codes() == [(1, TIMED_OUT)]
    assert 60 <= world.now < 60.1


@pytest.mark.parametrize("is_local", [True, False])
def test_not_controller_is_tried_again_after_a_back_off(world: World, is_local: bool) -> None:
    peer, local = Peer(world), Local(ErrorCode.NOT_CONTROLLER)
    peer.error = ErrorCode.NOT_CONTROLLER
    asker = Asker(world, local=local)
    asker.lead(OWN_ID if is_local else 1, "peer")
    asker.ask(1)
    world.run_for(10)
    tried = local.numbers if is_local else peer.numbers
    assert 80 < len(tried) < 150  # 20, 40, 80, then 100 ms, more or less
    assert asker.ended == 0
    peer.error = local.error = ErrorCode.NONE
    asker.until_ended(1, 0.2)
    assert asker.answers == [1]


def test_other_errors_of_the_controller_are_the_callers(world: World) -> None:
    peer, asker = Peer(world), Asker(world)
    peer.error = ErrorCode.STALE_BROKER_EPOCH
    asker.lead(1, "peer")
    asker.ask(1)
    asker.until_ended(1)
    assert asker.answers == peer.numbers == [1]


def test_not_controller_is_found_in_the_parts_of_an_answer(world: World) -> None:
    answers: list[Message] = []
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.TOPIC_ALREADY_EXISTS]

    def local(request: Message, reply: Callable[[Message], None]) -> None:
        assert isinstance(request, CreateTopicsRequest)
        reply(
            CreateTopicsResponse(topics=[CreatableTopicResult(name="a", error_code=codes.pop(0))])
        )

    asker = Asker(world, local=local)
    asker.lead(OWN_ID)
    ask = asker.channel.ask
    asker.node.loop.call_soon(ask, CreateTopicsRequest(), answers.append, lambda _: None)
    world.run_until(lambda: len(answers) == 1, 5)
    assert codes == []


def test_a_leader_that_hangs_loses_its_asks_to_the_next_one(world: World) -> None:
    old, new, asker = Peer(world), Peer(world, "other"), Asker(world)
    old.is_holding = True
    asker.lead(1, "peer")
    asker.ask(1, 2, 3)
    world.run_until(lambda: old.numbers == [1], 5)
    asker.lead(None)
    world.run_for(1)
    asker.lead(2, "other")
    start = world.now
    asker.until_ended(3, 1)
    assert asker.answers == new.numbers == [1, 2, 3]
    assert world.now - start < 0.1


def test_a_hung_leader_loses_its_asks_to_the_controller_of_this_process(world: World) -> None:
    local = Local()
    old, asker = Peer(world), Asker(world, local=local)
    old.is_holding = True
    asker.lead(1, "peer")
    asker.ask(1)
    world.run_until(lambda: old.numbers == [1], 5)
    asker.lead(OWN_ID, "asker")
    asker.until_ended(1, 1)
    assert asker.answers == local.numbers == [1]


def test_an_answer_after_the_deadline_is_dropped(world: World) -> None:
    local = Local(is_holding=True)
    peer, asker = Peer(world), Asker(world, SETTINGS._replace(timeout_ms=5_000), local)
    asker.lead(OWN_ID)
    asker.ask(1)
    world.run_until(lambda: bool(local.held), 5)
    asker.until_ended(1)
    assert asker.codes() == [(1, TIMED_OUT)]
    asker.lead(1, "peer")
    asker.ask(2)
    asker.until_ended(2)
    asker.node.loop.call_soon(local.held[0])
    world.run_for(1)
    assert asker.answers == peer.numbers == [2]


@pytest.mark.parametrize("repeats_lost", [True, False])
def test_what_may_have_been_done_is_repeated_only_by_consent(
    world: World, repeats_lost: bool
) -> None:
    peer, asker = Peer(world), Asker(world, SETTINGS._replace(repeats_lost=repeats_lost))
    peer.is_holding = True
    asker.lead(1, "peer")
    asker.ask(1)
    world.run_until(lambda: peer.numbers == [1], 5)
    peer.is_holding = False
    world.network.reset("asker", "peer")
    asker.until_ended(1)
    if repeats_lost:
        assert asker.answers == [1]
        assert peer.numbers == [1, 1]
    else:
        assert asker.codes() == [(1, TIMED_OUT)]
        assert "may have done it" in str(asker.errors[0][1])
        assert peer.numbers == [1]


def test_what_was_not_sent_is_tried_again_without_consent(world: World) -> None:
    peer, asker = Peer(world), Asker(world, SETTINGS._replace(repeats_lost=False))
    peer.stop()
    asker.lead(1, "peer")
    asker.ask(1)
    world.run_for(10)
    assert asker.ended == 0
    again = Peer(world)
    asker.until_ended(1, 3)
    assert asker.answers == again.numbers == [1]


@pytest.mark.parametrize(("source", "target"), [("asker", "peer"), ("peer", "asker")])
def test_a_cut_one_way_ends_by_time_and_heals(world: World, source: str, target: str) -> None:
    settings = SETTINGS._replace(timeout_ms=9_000, try_timeout_ms=2_000)
    peer, asker = Peer(world), Asker(world, settings)
    asker.lead(1, "peer")
    asker.ask(1)
    asker.until_ended(1)
    world.network.cut(source, target, both_ways=False)
    start = world.now
    asker.ask(2)
    asker.until_ended(2)
    assert asker.codes() == [(2, TIMED_OUT)]
    assert 9 <= world.now - start < 9.1
    asker.ask(3)
    world.run_for(3)
    world.network.heal_all()
    asker.until_ended(3)
    assert asker.answers == [1, 3]
    assert peer.numbers.count(3) == 1


def test_a_leader_that_does_not_answer_one_try_is_tried_again(world: World) -> None:
    peer, asker = Peer(world), Asker(world, SETTINGS._replace(try_timeout_ms=2_000))
    peer.is_holding = True
    asker.lead(1, "peer")
    asker.ask(1)
    world.run_for(1)
    peer.is_holding = False
    asker.until_ended(1, 3)
    assert asker.answers == [1]
    assert peer.numbers == [1, 1]


SLOW = SETTINGS._replace(backoff_ms=5_000, backoff_max_ms=5_000)


def test_a_new_leader_ends_the_back_off(world: World) -> None:
    peer, asker = Peer(world), Asker(world, SLOW)
    asker.ask(1)
    world.run_for(1)
    asker.lead(1, "peer")
    asker.until_ended(1, 0.1)
    assert peer.numbers == [1]


def test_asks_keep_their_order_while_they_wait(world: World) -> None:
    peer, asker = Peer(world), Asker(world, SLOW)
    peer.error = ErrorCode.NOT_CONTROLLER
    asker.lead(1, "peer")
    asker.ask(1)
    world.run_until(lambda: peer.numbers == [1], 5)
    world.run_for(0.5)
    peer.error = ErrorCode.NONE
    asker.ask(2, 3)
    asker.until_ended(3)
    assert peer.numbers == [1, 1, 2, 3]


def test_nothing_is_sent_for_a_caller_who_has_an_error(world: World) -> None:
    peer, asker = Peer(world), Asker(world, SETTINGS._replace(timeout_ms=2_000))
    asker.lead(1, "peer")
    asker.ask(0)
    asker.until_ended(1)
    peer.is_holding = True
    asker.ask(*range(1, 13))  # ten at a time: the last two wait in the lane
    asker.until_ended(13)
    peer.node.loop.call_soon(peer.release)
    world.run_for(60)
    assert asker.codes() == [(value, TIMED_OUT) for value in range(1, 13)]
    assert set(peer.numbers) <= set(range(11))


def test_an_api_that_the_controller_does_not_know_fails_at_once(world: World) -> None:
    peer, asker = Peer(world), Asker(world)
    del peer.knows[ALLOCATE.key]
    asker.lead(1, "peer")
    asker.ask(1)
    asker.until_ended(1, 1)
    assert asker.codes() == [(1, ErrorCode.UNSUPPORTED_VERSION)]


def test_asks_have_a_limit(world: World) -> None:
    asker = Asker(world, SETTINGS._replace(asks_max=2))
    asker.ask(1, 2, 3)
    asker.until_ended(1)
    assert asker.codes() == [(3, TIMED_OUT)]
    assert world.now < 1
    assert asker.channel.waiting == 2


def test_a_channel_that_closed_calls_nothing_any_more(world: World) -> None:
    peer, asker = Peer(world), Asker(world)
    peer.is_holding = True
    asker.lead(1, "peer")
    asker.ask(1, 2)
    world.run_until(lambda: peer.numbers == [1], 5)
    asker.node.loop.call_soon(asker.channel.close)
    asker.ask(3)
    asker.lead(2, "peer")
    peer.node.loop.call_soon(peer.release)
    world.run_for(120)
    assert asker.ended == asker.channel.waiting == 0
    assert peer.server.connection_count == 0


@pytest.mark.parametrize("seed", range(8))
def test_each_ask_ends_once_however_the_leader_moves(seed: int) -> None:
    with World(seed) as world:
        local = Local()
        peers = [Peer(world, name) for name in ("one", "two")]
        asker = Asker(world, SETTINGS._replace(timeout_ms=9_000, try_timeout_ms=2_000), local)
        random = world.random("faults")
        value = 0
        while world.now < 60:
            for _ in range(random.randrange(3)):
                value += 1
                asker.ask(value)
            peer = random.choice(peers)
            match random.randrange(9):
                case 0:
                    world.network.cut("asker", peer.node.name, both_ways=False)
                case 1:
                    world.network.cut(peer.node.name, "asker", both_ways=False)
                case 2:
                    world.network.reset("asker", peer.node.name)
                case 3:
                    peer.error = random.choice([ErrorCode.NONE, ErrorCode.NOT_CONTROLLER])
                case 4:
                    asker.lead(OWN_ID, "asker")
                    local.error = random.choice([ErrorCode.NONE, ErrorCode.NOT_CONTROLLER])
                case 5:
                    asker.lead(None)
                case _:
                    world.network.heal_all()
                    asker.lead(peers.index(peer), peer.node.name)
            world.run_for(random.uniform(0, 2))
        world.network.heal_all()
        peers[0].error = ErrorCode.NONE
        asker.lead(0, "one")
        asker.until_ended(value)
        world.run_for(30)
        errors = [each for each, _ in asker.errors]
        assert sorted([*asker.answers, *errors]) == list(range(1, value + 1))
        assert asker.answers
        assert asker.channel.waiting == 0
