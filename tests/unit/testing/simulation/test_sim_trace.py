"""One seed is one run: in every process, whatever hashes and addresses that one has."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.testing.simulation import World
from odradek.testing.simulation.clocks import EPOCH_SECONDS, SimClock
from odradek.testing.simulation.trace import Trace
from odradek.wire.connection import Connection
from tests.unit.testing.simulation.test_sim_server import PORT, Setting

ROOT = Path(__file__).parents[4]
STORY = "from tests.unit.testing.simulation.test_sim_trace import story; print(story({seed}))"


def story(seed: int) -> str:
    """Let clients talk while links break and nodes crash; return the hash of what happened."""
    with World(seed, trace_lines_max=100) as world:
        setting = Setting(world)
        nodes = [world.add_node(f"client-{number}") for number in range(5)]

        async def talk(name: str) -> None:
            while True:
                try:
                    connection = await Connection.open("broker", PORT, client_id=name)
                    while True:
                        request = ApiVersionsRequest(client_software_name=name)
                        await connection.ask(request, ApiVersionsResponse, timeout_ms=500)
                        await asyncio.sleep(0.02)
                except Exception as error:
                    world.note(name, f"{type(error).__name__}: {error}")

        for node in nodes:
            node.spawn(talk(node.name))
        faults = world.random("faults")
        for _ in range(10):
            name = faults.choice(nodes).name
            world.run_for(faults.uniform(0, 0.2))
            world.network.cut(name, "broker", both_ways=faults.random() < 0.5)
            world.run_for(faults.uniform(0, 1))
            world.network.heal_all()
            world.network.reset(faults.choice(nodes).name, "broker")
        setting.server.close_all()  # all at once: in which order?
        world.run_for(0.5)
        nodes[0].crash()
        world.run_for(0.5)
        assert world.trace is not None
        assert world.trace.count > 1000
        return world.trace.digest()


def story_elsewhere(seed: int, hash_seed: int) -> str:
    return subprocess.run(
        [sys.executable, "-c", STORY.format(seed=seed)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        check=True,
        timeout=180,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_two_processes_tell_one_story_from_one_seed() -> None:
    assert story_elsewhere(5, hash_seed=1) == story_elsewhere(5, hash_seed=2) == story(5)
    assert story(6) != story(5)


def test_a_trace_keeps_the_last_lines_and_a_hash_of_all() -> None:
    one, other = Trace(2), Trace(2)
    for trace in (one, other):
        for number in range(3):
            trace.note(number, "a", f"event {number}")
    assert one.lines == ["1.000000000 a event 1", "2.000000000 a event 2"]
    assert one.digest() == other.digest()
    one.note(3, "a", "one more")
    assert one.digest() != other.digest()


def test_a_wall_drifts_and_jumps_and_the_steady_clock_does_not() -> None:
    now = 0.0
    clock = SimClock(lambda: now)
    assert clock.now_ms() == EPOCH_SECONDS * 1000
    now = 100.0
    clock.drift(10_000)
    now = 200.0
    assert clock.now_ms() == (EPOCH_SECONDS + 201) * 1000
    clock.jump(-51)
    assert round(clock.offset_seconds) == -50
    clock.drift(0)
    now = 300.0
    assert clock.now_ms() == (EPOCH_SECONDS + 250) * 1000
    assert (clock.monotonic_ms(), clock.monotonic_us()) == (300_000, 300_000_000)
