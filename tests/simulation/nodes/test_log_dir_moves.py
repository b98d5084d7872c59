"""A replica moves to another log directory, as fast as it may."""

from collections.abc import Mapping

import pytest

from odradek.client import Admin, Producer
from odradek.client.admin.configs import ConfigResource
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.core.ids import TopicPartition
from odradek.testing.simulation import World
from tests.simulation.nodes.whole_node import PORT, Machine

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BATCH, COUNT = bytes(50_000), 100


async def fill(world: World) -> None:
    async with Producer(
        bootstrap_servers=f"broker:{PORT}",
        random=world.random("producer"),
        now_ms=world.nodes["client"].clock.now_ms,
    ) as producer:
        for _ in range(COUNT):
            await (await producer.send("events", BATCH))


async def move(world: World, to: str, configs: Mapping[str, str]) -> None:
    async with Admin(bootstrap_servers=f"broker:{PORT}", random=world.random("admin")) as admin:
        if configs:
            (await admin.alter_configs({ConfigResource.broker(1): configs})).unwrap()
        at = TopicPartitionReplica("events", 0, 1)
        (await admin.alter_replica_log_dirs({at: to})).unwrap()


def seconds_of_a_move(configs: Mapping[str, str]) -> float:
    with World(1) as world:
        machine = Machine(world, "broker", {"log.dirs": "/data,/more"})
        client = world.add_node("client")
        world.run_until_done(client.spawn(fill(world)), 60)
        log = machine.node.broker.store.get(TopicPartition("events", 0))
        assert log is not None
        before = str(log.folder.parent)
        after = {"/data": "/more", "/more": "/data"}[before]
        begun = world.now
        world.run_until_done(client.spawn(move(world, after, configs)), 60)
        store = machine.node.broker.store
        at = TopicPartition("events", 0)
        world.run_until(lambda: str(store.directory_of(at).path) == after, 120)
        return world.now - begun


@pytest.mark.parametrize(("rate", "least", "most"), [(None, 0, 2), (500_000, 7.5, 11)])
def test_a_move_takes_as_long_as_its_rate_says(rate: int | None, least: int, most: int) -> None:
    seconds = seconds_of_a_move({} if rate is None else {RATE: str(rate)})
    assert least <= seconds <= most
