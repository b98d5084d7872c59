"""A lane and its peer on a simulated network: order, limits, silence, resets, addresses."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from odradek.testing.simulation import World
from odradek.wire.lane import LaneFailure
from tests.unit.wire.lane_harness import ALLOCATE, PORT, SETTINGS, Addresses, Peer, asking


@pytest.fixture
def world() -> Iterator[World]:
    with World(5) as made:
        yield made


def test_requests_are_answered_in_order_over_one_connection(world: World) -> None:
    peer, asked = Peer(world), asking(world)
    asked.send(*range(20))
    asked.until_ended(20)
    assert asked.answers == list(range(20))
    assert peer.asked == ["ApiVersions"] + 20 * ["AllocateProducerIds"]
    assert peer.server.connection_count == 1
    assert asked.lane.waiting == 0


@pytest.mark.parametrize("in_flight_max", [1, 3])
def test_no_more_than_so_many_are_with_the_peer(world: World, in_flight_max: int) -> None:
    peer, asked = (
        Peer(world),
        asking(world, settings=replace(SETTINGS, in_flight_max=in_flight_max)),
    )
    asked.send(0)
    asked.until_ended(1)
    peer.is_holding = True
    asked.send(*range(1, 6))
    world.run_for(1)
    assert peer.numbers == [0, 1]  # a broker takes the next one when this one is answered
    world.network.cut("asker", "peer")  # what the lane has not sent cannot come any more
    peer.node.loop.call_soon(peer.release)
    world.run_for(0.5)
    assert peer.numbers == list(range(1 + in_flight_max))


def test_what_has_no_common_version_is_refused_alone(world: World) -> None:
    peer, asked = Peer(world), asking(world)
    asked.send(1, version_min=1)
    asked.send(2)
    asked.until_ended(2)
    assert asked.answers == [2]
    assert asked.failures() == [(1, LaneFailure.UNSUPPORTED, False)]
    assert "AllocateProducerIds up to 0, needed is 1" in str(asked.errors[0][1])
    assert not asked.errors[0][1].retriable
    assert peer.numbers == [2]


def test_an_api_that_the_peer_does_not_know_is_refused(world: World) -> None:
    peer, asked = Peer(world), asking(world)
    del peer.knows[ALLOCATE.key]
    asked.send(1)
    asked.until_ended(1)
    assert asked.failures() == [(1, LaneFailure.UNSUPPORTED, False)]


@pytest.mark.parametrize(("source", "target"), [("asker", "peer"), ("peer", "asker")])
def test_a_silent_peer_costs_its_connection(world: World, source: str, target: str) -> None:
    peer, asked = Peer(world), asking(world)
    asked.send(1)
    asked.until_ended(1)
    world.network.cut(source, target, both_ways=False)
    start = world.now
    asked.send(2)
    asked.until_ended(2)
    assert asked.failures() == [(2, LaneFailure.TIMED_OUT, True)]
    assert 2 <= world.now - start < 2.1
    asked.send(3)  # the next connection is not made either
    asked.until_ended(3)
    assert asked.failures()[1:] == [(3, LaneFailure.UNREACHABLE, False)]
    world.network.heal_all()
    asked.send(4)
    asked.until_ended(4)
    assert asked.answers == [1, 4]
    assert peer.asked.count("ApiVersions") >= 2


def test_what_waits_behind_a_silent_request_goes_over_the_next_connection(world: World) -> None:
    peer, asked = Peer(world), asking(world)
    peer.is_holding = True
    asked.send(1)
    asked.send(2, 3, timeout_ms=10_000)
    asked.until_ended(1)
    assert asked.failures() == [(1, LaneFailure.TIMED_OUT, True)]
    peer.is_holding = False
    asked.until_ended(3)
    assert asked.answers == [2, 3]


def test_a_reset_fails_what_was_sent_and_keeps_the_rest(world: World) -> None:
    peer, asked = Peer(world), asking(world)
    peer.is_holding = True
    asked.send(1, 2, 3)
    world.run_until(lambda: peer.numbers == [1], 5)
    peer.is_holding = False
    world.network.reset("asker", "peer")
    asked.until_ended(3)
    assert asked.failures() == [(1, LaneFailure.LOST, True)]
    assert asked.answers == [2, 3]


def test_garbage_fails_at_once_and_not_in_the_end(world: World) -> None:
    peer, asked = Peer(world), asking(world, settings=replace(SETTINGS, request_timeout_ms=60_000))
    peer.garbage = b"\x00\xff"
    asked.send(1)
    asked.until_ended(1)
    assert world.now < 1
    assert asked.failures() == [(1, LaneFailure.LOST, True)]
    assert "makes no sense" in str(asked.errors[0][1])
    peer.garbage = None
    asked.send(2)
    asked.until_ended(2)
    assert asked.answers == [2]


def test_an_answer_over_the_limit_is_garbage(world: World) -> None:
    peer, asked = Peer(world), asking(world, settings=replace(SETTINGS, response_bytes_max=1_000))
    peer.garbage = bytes(1_000)
    asked.send(1)
    asked.until_ended(1)
    assert "limit is 1000" in str(asked.errors[0][1])


def test_a_peer_that_is_down_is_tried_ever_less_often(world: World) -> None:
    peer = Peer(world)
    peer.stop()
    addresses = Addresses()
    asked = asking(world, addresses)
    while world.now < 30:
        asked.send(1)
        asked.until_ended(asked.ended + 1)
    assert {error.failure for _, error in asked.errors} == {LaneFailure.UNREACHABLE}
    assert "nothing listens there" in str(asked.errors[0][1])
    assert 30 < len(asked.errors) < 50  # about one a second; at first 50, 100, 200 … ms
    Peer(world)
    asked.send(2)
    world.run_until(lambda: asked.answers == [2], 5)


def test_without_an_address_a_request_fails_at_once(world: World) -> None:
    addresses = Addresses(None)
    asked = asking(world, addresses)
    asked.send(1)
    asked.until_ended(1)
    assert asked.failures() == [(1, LaneFailure.UNREACHABLE, False)]
    Peer(world)
    addresses.address = ("peer", PORT)
    asked.send(2)
    asked.until_ended(2)
    assert asked.answers == [2]


def test_requests_follow_an_address_that_changes(world: World) -> None:
    addresses = Addresses()
    old, new, asked = Peer(world), Peer(world, "other"), asking(world, addresses)
    old.is_holding = True
    asked.send(1, 2)
    world.run_until(lambda: old.numbers == [1], 5)
    addresses.address = ("other", PORT)
    asked.node.loop.call_soon(asked.lane.on_address_changed)
    asked.until_ended(2, 1)
    assert asked.failures() == [(1, LaneFailure.LOST, True)]
    assert asked.answers == new.numbers == [2]


def test_an_attempt_at_an_old_address_is_given_up(world: World) -> None:
    addresses = Addresses()
    Peer(world)
    world.network.cut("asker", "peer")
    asked = asking(world, addresses)
    asked.send(1)
    world.run_for(0.1)
    new = Peer(world, "other")
    addresses.address = ("other", PORT)
    asked.node.loop.call_soon(asked.lane.on_address_changed)
    asked.until_ended(1, 0.5)
    assert asked.answers == new.numbers == [1]


def test_a_queue_has_a_limit(world: World) -> None:
    peer, asked = Peer(world), asking(world, settings=replace(SETTINGS, queued_max=3))
    asked.send(0)
    asked.until_ended(1)
    peer.is_holding = True
    asked.send(*range(1, 7))
    asked.until_ended(3)
    assert asked.failures() == [(5, LaneFailure.FULL, False), (6, LaneFailure.FULL, False)]
    peer.node.loop.call_soon(peer.release)
    asked.until_ended(7)
    assert asked.answers == [0, 1, 2, 3, 4]


def test_a_lane_that_closes_fails_all_that_waits(world: World) -> None:
    peer, asked = Peer(world), asking(world)
    peer.is_holding = True
    asked.send(1, 2)
    world.run_until(lambda: peer.numbers == [1], 5)
    asked.node.loop.call_soon(asked.lane.close)
    asked.send(3)
    asked.until_ended(3)
    closed = LaneFailure.CLOSED
    assert asked.failures() == [(1, closed, True), (2, closed, False), (3, closed, False)]
    world.run_until(lambda: peer.server.connection_count == 0, 5)
    asked.node.loop.call_soon(asked.lane.close)
    world.run_for(10)
    assert asked.ended == 3


def test_a_lane_that_closes_while_it_connects_leaves_nothing_behind(world: World) -> None:
    peer, asked = Peer(world), asking(world)
    asked.send(1)
    world.run_for(0.0001)
    asked.node.loop.call_soon(asked.lane.close)
    asked.until_ended(1)
    assert asked.failures() == [(1, LaneFailure.CLOSED, False)]
    world.run_for(5)
    assert peer.server.connection_count == 0


def test_a_connection_that_was_closed_while_idle_is_replaced_without_a_word(world: World) -> None:
    peer, asked = Peer(world), asking(world)
    asked.send(1)
    asked.until_ended(1)
    peer.node.loop.call_soon(peer.server.close_all)
    world.run_until(lambda: not asked.lane.is_connected, 5)
    start = world.now
    asked.send(2)
    asked.until_ended(2)
    assert asked.answers == [1, 2]
    assert world.now - start < 0.05  # no back-off: nothing failed


def test_an_answer_that_came_while_the_loop_was_busy_is_in_time(world: World) -> None:
    peer, asked = Peer(world), asking(world, settings=replace(SETTINGS, in_flight_max=2))
    asked.send(1)
    asked.until_ended(1)
    peer.is_holding = True
    asked.send(2)
    world.run_until(lambda: peer.numbers == [1, 2], 5)
    asked.node.pause()
    peer.node.loop.call_soon(peer.release)
    world.run_for(30)
    asked.node.resume()
    asked.until_ended(2)
    assert asked.answers == [1, 2]
    peer.is_holding = True
    asked.send(3, 4)
    world.run_until(lambda: peer.numbers == [1, 2, 3], 5)
    asked.node.pause()
    peer.node.loop.call_soon(peer.release_one)
    world.run_for(30)
    asked.node.resume()
    asked.until_ended(4)
    assert asked.answers == [1, 2, 3]
    assert asked.failures() == [(4, LaneFailure.TIMED_OUT, True)]
    assert peer.asked.count("ApiVersions") == 1


def test_a_peer_that_hangs_up_on_every_request_is_left_alone_for_longer_and_longer(
    world: World,
) -> None:
    peer, asked = Peer(world), asking(world)
    peer.garbage = b"\xff"
    while world.now < 30:
        asked.send(1)
        asked.until_ended(asked.ended + 1)
    assert {error.failure for _, error in asked.errors} == {LaneFailure.LOST}
    assert 30 < len(asked.errors) < 50
    start = world.now
    peer.garbage = None
    asked.send(2)
    world.run_until(lambda: asked.answers == [2], 5)
    assert world.now - start > 0.2
    peer.is_holding = True
    asked.send(3)
    world.run_until(lambda: peer.numbers[-1] == 3, 5)
    peer.is_holding = False
    world.network.reset("asker", "peer")
    start = world.now
    asked.send(4)
    world.run_until(lambda: asked.answers == [2, 4], 5)
    assert world.now - start < 0.2  # an answer ends the trouble: the back-off begins again


def test_a_back_off_does_not_outlive_its_address(world: World) -> None:
    addresses = Addresses(("peer", PORT + 1))
    Peer(world)
    asked = asking(world, addresses)
    while world.now < 10:
        asked.send(1)
        asked.until_ended(asked.ended + 1)
    addresses.address = ("peer", PORT + 2)
    start = world.now
    for _ in range(2):
        asked.send(1)
        asked.until_ended(asked.ended + 1)
    assert world.now - start < 0.2  # the first failure at an address is not its tenth
    asked.send(2)
    world.run_for(0.01)
    addresses.address = ("peer", PORT)
    asked.node.loop.call_soon(asked.lane.on_address_changed)
    start = world.now
    world.run_until(lambda: asked.answers == [2], 5)
    assert world.now - start < 0.02


@pytest.mark.parametrize("seed", range(25))
def test_each_request_ends_once_and_in_order_whatever_happens(seed: int) -> None:
    with World(seed) as world:
        peer = Peer(world)
        asked = asking(world, settings=replace(SETTINGS, in_flight_max=1 + seed % 3))
        random = world.random("faults")
        value = 0
        while world.now < 60:
            for _ in range(random.randrange(4)):
                value += 1
                asked.send(value)
            match random.randrange(8):
                case 0:
                    world.network.cut("asker", "peer", both_ways=False)
                case 1:
                    world.network.cut("peer", "asker", both_ways=False)
                case 2:
                    world.network.reset("asker", "peer")
                case 3:
                    peer.is_holding = True
                case 4:
                    peer.node.loop.call_soon(peer.server.close_all)
                case _:
                    world.network.heal_all()
                    peer.node.loop.call_soon(peer.release)
            world.run_for(random.uniform(0, 3))
        world.network.heal_all()
        peer.node.loop.call_soon(peer.release)
        asked.until_ended(value)
        world.run_for(30)
        assert sorted([*asked.answers, *(each for each, _ in asked.errors)]) == list(
            range(1, value + 1)
        )
        assert asked.answers == sorted(asked.answers)
        not_sent = {each for each, error in asked.errors if not error.was_sent}
        assert not_sent.isdisjoint(peer.numbers)  # what was not sent was not carried out
        assert len(peer.numbers) == len(set(peer.numbers))  # and nothing was sent twice
        assert asked.answers
        asked.send(value + 1)
        world.run_until(lambda: asked.answers[-1] == value + 1, 10)
