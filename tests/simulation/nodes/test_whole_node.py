"""A whole broker and whole clients on virtual time: what was acknowledged outlives a power loss."""

import os
import subprocess
import sys
from pathlib import Path

from odradek.client import Consumer, Producer
from odradek.testing.simulation import World
from tests.simulation.nodes.whole_node import PORT, Machine

ROOT = Path(__file__).parents[3]
STORY = "from tests.simulation.nodes.test_whole_node import story; print(story({seed}))"


async def produce(world: World, name: str, count: int) -> list[bytes]:
    node = world.nodes[name]
    producer = Producer(
        bootstrap_servers=f"broker:{PORT}",
        random=world.random(f"producer/{name}/{count}"),
        now_ms=node.clock.now_ms,
        monotonic_ms=node.clock.monotonic_ms,
    )
    acknowledged = []
    async with producer:
        for number in range(count):
            value = f"{name}-{number}".encode()
            await (await producer.send("events", value))
            acknowledged.append(value)
        world.note(name, str(sorted(producer.metrics().items())))  # how long it took, in our time
    return acknowledged


async def consume(world: World, name: str, count: int) -> list[bytes]:
    consumer = Consumer(
        "events",
        bootstrap_servers=f"broker:{PORT}",
        group_id="readers",
        auto_offset_reset="earliest",
        random=world.random(f"consumer/{name}"),
        now_ms=world.nodes[name].clock.now_ms,
        monotonic_ms=world.nodes[name].clock.monotonic_ms,
    )
    values: list[bytes] = []
    async with consumer:
        async for record in consumer:
            assert record.value is not None
            values.append(record.value)
            if len(values) == count:
                break
        world.note(name, str(sorted(consumer.metrics().items())))
    return values


def story(seed: int) -> str:
    with World(seed, trace_lines_max=100) as world:
        machine = Machine(world, "broker")
        clients = [world.add_node(f"client-{number}") for number in range(3)]
        tasks = [node.spawn(produce(world, node.name, 20)) for node in clients]
        world.run_until(lambda: all(task.done() for task in tasks), 60)
        acknowledged = {value for task in tasks for value in task.result()}
        machine.lose_power()
        world.run_for(5)
        machine.come_back()
        read = world.run_until_done(clients[0].spawn(consume(world, "client-0", 60)), 600)
        assert set(read) == acknowledged
        assert len(read) == 60
        assert world.trace is not None
        world.note("end", str(read))
        return f"{world.trace.digest()} {world.now:.6f}"


def test_what_was_acknowledged_is_read_after_a_power_loss() -> None:
    assert story(1) == story(1)


def test_a_whole_node_tells_one_story_from_one_seed_in_every_process() -> None:
    stories = {
        subprocess.run(
            [sys.executable, "-c", STORY.format(seed=3)],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            timeout=180,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert len(stories) == 1
