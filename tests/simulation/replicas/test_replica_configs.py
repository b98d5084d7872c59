"""Configs of replication have the effect that docs/configs.md says they have."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from odradek.broker.fetcher import Fetcher
from odradek.client import Producer
from odradek.client.errors import KafkaError
from tests.simulation.replicas.three_nodes import ThreeNodes, three_nodes


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[None]:
    """Return a list that grows with each call of a method."""
    calls: list[None] = []
    method = getattr(owner, name)

    def call(*args: Any, **named: Any) -> Any:
        calls.append(None)
        return method(*args, **named)

    monkeypatch.setattr(owner, name, call)
    return calls


def fetchers(nodes: ThreeNodes, node_id: int) -> list[Fetcher]:
    return list(nodes.node(node_id).broker.fetchers._fetchers.values())


def fetcher_of(nodes: ThreeNodes, node_id: int) -> Fetcher:
    """Return what fetches ``orders``, connected."""
    (found,) = (each for each in fetchers(nodes, node_id) if each.leader_id == 1)
    nodes.wait_until(lambda: found.lane.is_connected)
    return found


def test_a_follower_has_as_many_fetchers_for_a_leader_as_the_config_says() -> None:
    with three_nodes(num_replica_fetchers="2") as nodes:
        for name in ("a", "b", "c", "d", "e", "f"):
            nodes.run(nodes.create(name))
        numbers = {each.number for each in fetchers(nodes, 2) if each.leader_id == 1}
        assert numbers == {0, 1}


def test_an_idle_follower_asks_again_after_the_longest_wait() -> None:
    counts = {}
    for wait_ms in ("500", "2000"):
        with three_nodes(replica_fetch_wait_max_ms=wait_ms) as nodes:
            (fetcher,) = (each for each in fetchers(nodes, 2) if each.leader_id == 1)
            before = fetcher.session.epoch
            nodes.world.run_for(20)
            counts[wait_ms] = fetcher.session.epoch - before
    assert 38 <= counts["500"] <= 41
    assert 9 <= counts["2000"] <= 11


def test_a_follower_waits_for_as_many_bytes_as_the_config_says() -> None:
    took = {}
    for min_bytes in ("1", "100000"):
        with three_nodes(
            replica_fetch_min_bytes=min_bytes, replica_fetch_wait_max_ms="3000"
        ) as nodes:
            nodes.world.run_for(10)
            begun = nodes.world.now
            nodes.run(nodes.send(b"a", acks="all"))
            took[min_bytes] = nodes.world.now - begun
    assert took["1"] < 0.5
    assert took["100000"] > 0.5, "the fetch was parked until its wait was over"


@pytest.mark.parametrize(
    "configs",
    [{"replica_fetch_max_bytes": "2000"}, {"replica_fetch_response_max_bytes": "2000"}],
    ids=["of a partition", "in all"],
)
def test_a_follower_takes_as_many_bytes_at_a_time_as_the_config_says(
    configs: dict[str, str],
) -> None:
    with three_nodes(**configs) as nodes:
        nodes.machines[2].kill()
        values = [bytes(1000) for _ in range(12)]
        nodes.run(nodes.send(*values, acks=1))
        nodes.machines[2].start()
        nodes.wait_until(lambda: nodes.machines[2].is_serving)
        ends = [nodes.replica(2).log.log_end_offset]

        def has_all() -> bool:
            end = nodes.replica(2).log.log_end_offset
            if end != ends[-1]:
                ends.append(end)
            return end == len(values)

        nodes.wait_until(has_all)
        steps = [after - before for before, after in pairwise(ends)]
        assert len(steps) > 3, steps
        assert max(steps) <= 2


def seconds_until_it_leaves(lag_ms: str) -> float:
    """Return how long a follower that cannot fetch stays in the ISR; it returns when it can."""
    with three_nodes(replica_lag_time_max_ms=lag_ms, broker_session_timeout_ms="60000") as nodes:
        slow = nodes.bystander
        with nodes.cut(slow, 1):
            nodes.run(nodes.send(b"a", acks=1))
            took = nodes.wait_until(lambda: nodes.isr() == {1, 2, 3} - {slow})
        nodes.wait_until(lambda: nodes.isr() == {1, 2, 3})
        nodes.wait_until(lambda: set(nodes.ends().values()) == {(1, 1)})
    return took


@pytest.mark.seed_row("3.7")
def test_a_follower_leaves_the_isr_when_it_lags_for_too_long_and_returns() -> None:
    assert 3.5 < seconds_until_it_leaves("4000") < 8
    assert 18 < seconds_until_it_leaves("20000") < 32


LAG_SECONDS = 4


async def write_for(nodes: ThreeNodes, seconds: float) -> None:
    """Write 40 KB a second to the leader, whoever else has it."""
    until = nodes.world.now + seconds
    async with Producer(
        bootstrap_servers=nodes.layout.bootstrap_servers,
        random=nodes.world.random("writer"),
        now_ms=nodes.client.clock.now_ms,
        acks=1,
    ) as producer:
        while nodes.world.now < until:
            await producer.send("orders", bytes(4_000), partition=0)
            await asyncio.sleep(0.1)


@pytest.mark.seed_row("3.7")
@pytest.mark.parametrize(("bytes_per_second", "stays"), [(20_000, False), (200_000, True)])
def test_a_follower_that_fetches_and_never_catches_up_leaves_the_isr(
    bytes_per_second: float, stays: bool
) -> None:
    with three_nodes(
        replica_lag_time_max_ms=str(1000 * LAG_SECONDS),
        replica_fetch_max_bytes="10000",
        broker_session_timeout_ms="60000",
    ) as nodes:
        slow = nodes.bystander
        fetcher = fetcher_of(nodes, slow)
        nodes.world.network.link("node-1", f"node-{slow}").bytes_per_second = bytes_per_second
        begun = fetcher.session.epoch, nodes.replica(slow).log.log_end_offset
        nodes.run(write_for(nodes, 3 * LAG_SECONDS))
        assert (slow in nodes.isr()) == stays
        after = fetcher.session.epoch, nodes.replica(slow).log.log_end_offset
        assert after[0] - begun[0] > 10, "it fetches all the time"
        assert after[1] > begun[1] + 10, "and gets something"


def seconds_until_it_gives_up(timeout_ms: str) -> float:
    """Return how long a follower waits for a leader whose answers do not arrive."""
    with three_nodes(
        replica_socket_timeout_ms=timeout_ms, broker_session_timeout_ms="60000"
    ) as nodes:
        deaf = nodes.bystander
        fetcher = fetcher_of(nodes, deaf)
        with nodes.cut(1, deaf):
            return nodes.wait_until(lambda: not fetcher.lane.is_connected)


def test_a_silent_leader_is_given_up_after_the_socket_timeout() -> None:
    assert 1 < seconds_until_it_gives_up("2000") < 4
    assert 7 < seconds_until_it_gives_up("8000") < 12


def tries_in_20_seconds(backoff_ms: str) -> int:
    """Return how often a follower asks a leader that refuses connections."""
    with (
        three_nodes(
            replica_fetch_backoff_ms=backoff_ms, broker_session_timeout_ms="60000"
        ) as nodes,
        pytest.MonkeyPatch.context() as patch,
    ):
        asked = count_calls(patch, fetcher_of(nodes, nodes.bystander).lane, "send")
        nodes.machines[1].kill()  # its session goes on
        nodes.world.run_for(20)
        return len(asked)


def test_a_leader_that_cannot_be_reached_is_tried_again_after_the_backoff() -> None:
    assert tries_in_20_seconds("200") > 40
    assert tries_in_20_seconds("5000") < 10


def test_acks_all_needs_as_many_in_sync_as_the_cluster_says() -> None:
    with three_nodes(min_insync_replicas="3", broker_session_timeout_ms="3000") as nodes:
        nodes.run(nodes.send(b"a", acks="all"))
        nodes.machines[nodes.bystander].kill()
        nodes.wait_until(lambda: len(nodes.isr()) == 2)
        refused = nodes.send(b"b", acks="all", delivery_timeout_ms=5_000, request_timeout_ms=2_000)
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            nodes.run(refused)
        assert nodes.ends()[1][0] == 1, "nothing was appended"


def test_acks_all_needs_as_many_in_sync_as_the_topic_says_now() -> None:
    with three_nodes() as nodes:
        nodes.machines[nodes.bystander].kill()
        nodes.wait_until(lambda: len(nodes.isr()) == 2)
        nodes.run(nodes.send(b"a", acks="all"))
        nodes.run(nodes.configure({"min.insync.replicas": "3"}))
        refused = nodes.send(b"b", acks="all", delivery_timeout_ms=5_000, request_timeout_ms=2_000)
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            nodes.run(refused)
        nodes.run(nodes.configure({"min.insync.replicas": "2"}))
        nodes.run(nodes.send(b"c", acks="all"))
