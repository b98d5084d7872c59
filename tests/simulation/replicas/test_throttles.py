"""Replication throttles: how fast a replica that is not in sync catches up, and what goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from odradek.broker.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS
from odradek.client.admin.configs import ConfigResource
from tests.simulation.replicas.test_replica_configs import fetcher_of
from tests.simulation.replicas.three_nodes import IDS, ThreeNodes, three_nodes

RATE = 100_000
LEADER_RATE, FOLLOWER_RATE = (
    f"{side}.replication.throttled.rate" for side in ("leader", "follower")
)
CONFIGS = {"replica_fetch_max_bytes": "20000", "replica_lag_time_max_ms": "3000"}
BATCH, COUNT = bytes(4_900), 200  # four of them fill an answer: what is cut off counts, too
SIZE = COUNT * len(BATCH)
WINDOW_SECONDS = 12


class CatchingUp(NamedTuple):
    seconds: float
    requests: int
    """How many the follower sent meanwhile."""


@contextmanager
def far_behind(throttle: dict[str, str], rates: dict[str, str]) -> Iterator[tuple[ThreeNodes, int]]:
    """Have a follower come back that lacks a megabyte; yield it, when it begins to fetch."""
    with three_nodes(**CONFIGS) as nodes:
        late = nodes.bystander
        for node_id in IDS:
            nodes.run(nodes.configure(rates, ConfigResource.broker(node_id)))
        nodes.run(nodes.configure(throttle))
        nodes.machines[late].kill()
        nodes.wait_until(lambda: nodes.isr() == set(IDS) - {late})
        nodes.run(nodes.send(*[BATCH] * COUNT, acks="all"))
        nodes.world.run_for(WINDOW_SECONDS)  # the bytes of the follower in sync count, too
        nodes.machines[late].start()
        nodes.wait_until(lambda: nodes.machines[late].is_serving)
        yield nodes, late


def catch_up(nodes: ThreeNodes, late: int) -> CatchingUp:
    fetcher = fetcher_of(nodes, late)
    before = fetcher.session.epoch
    begun = nodes.wait_until(lambda: nodes.replica(late).log.log_end_offset >= COUNT)
    requests = fetcher.session.epoch - before
    nodes.wait_until(lambda: nodes.isr() == set(IDS))
    return CatchingUp(begun, requests)


@pytest.mark.seed_row("1.8")
@pytest.mark.parametrize(
    ("replicas", "rate"),
    [(LEADER_REPLICAS, LEADER_RATE), (FOLLOWER_REPLICAS, FOLLOWER_RATE)],
    ids=["leader", "follower"],
)
def test_a_late_follower_gets_as_many_bytes_a_second_as_it_may(replicas: str, rate: str) -> None:
    with far_behind({replicas: "*"}, {rate: str(RATE)}) as (nodes, late):
        took = catch_up(nodes, late)
    assert 0.9 < SIZE / took.seconds / RATE < 1.1, took
    assert took.requests < 15 * took.seconds, "it asks again when the rate is down, and not before"


@pytest.mark.seed_row("1.8")
def test_only_the_replicas_that_are_named_are_throttled() -> None:
    rates = {LEADER_RATE: "1", FOLLOWER_RATE: "1"}
    lists = {LEADER_REPLICAS: "0:2,0:3", FOLLOWER_REPLICAS: "0:1,1:2"}
    with far_behind(lists, rates) as (nodes, late):
        assert catch_up(nodes, late).seconds < 2


def test_a_throttle_that_is_taken_away_ends_at_once() -> None:
    rates = {LEADER_RATE: "1", FOLLOWER_RATE: "1"}
    with far_behind({LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}, rates) as (nodes, late):
        nodes.world.run_for(20)
        assert nodes.replica(late).log.log_end_offset < COUNT / 10
        nodes.run(nodes.configure({LEADER_REPLICAS: "", FOLLOWER_REPLICAS: ""}))
        assert catch_up(nodes, late).seconds < 2


def test_a_replica_in_sync_is_not_throttled_though_its_bytes_count() -> None:
    rates = {LEADER_RATE: str(RATE), FOLLOWER_RATE: str(RATE)}
    with far_behind({LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}, rates) as (nodes, late):
        begun = nodes.world.now
        nodes.run(nodes.send(*[BATCH] * COUNT, acks="all"))
        assert nodes.world.now - begun < 5, "the rate would make it ten seconds and more"
        (follower,) = set(IDS) - {1, late}
        assert nodes.isr() == {1, follower}
        for quota in (
            nodes.node(1).broker.throttles.leader,
            nodes.node(follower).broker.throttles.follower,
        ):
            assert quota.rate.per_second(nodes.node(1).broker.clock.monotonic_ms()) > RATE
