"""Users' programs on a simulated cluster: what is wrong with them is found, shown and repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.testing.simulation import Process, Simulation, SimulationFailedError, simulate
from odradek.testing.simulation.exactly_once import ExactlyOnce
from odradek.testing.simulation.stories import Run

ORDERS = 30
SEEDS_MAX = 40
CRASHES: dict[str, Any] = {"kinds": ("crash", "kill"), "faults": 4, "storm_seconds": 10}
"""Enough for one of the first seeds to fail."""


def orders_story(*, commits_first: bool) -> Callable[[Simulation], Awaitable[None]]:
    """Return a story whose worker commits before it processes, or after."""

    async def story(sim: Simulation) -> None:
        await sim.create_topic("orders")
        processed: set[bytes] = set()  # stands for a database

        async def worker(process: Process) -> None:
            consumer = process.consumer(
                group_id="workers",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=6_000,
            )
            async with consumer:
                consumer.subscribe(["orders"])
                async for record in consumer:
                    if commits_first:
                        await consumer.commit()
                    await asyncio.sleep(0.2)
                    processed.add(record.value or b"")
                    if not commits_first:
                        await consumer.commit()

        sim.run("worker", worker)
        sent = set()
        async with sim.process.producer() as producer:
            for number in range(ORDERS):
                await (await producer.send("orders", b"%d" % number))
                sent.add(b"%d" % number)
                await asyncio.sleep(0.3)
        await sim.calm()
        await sim.wait_for(lambda: sent <= processed, 60, "all orders to be processed")

    return story


@pytest.mark.slow
def test_a_worker_that_commits_first_is_found_out_by_crashes_alone() -> None:
    with pytest.raises(SimulationFailedError, match="all orders to be processed") as caught:
        simulate(orders_story(commits_first=True), seeds=SEEDS_MAX, **CRASHES)
    found = caught.value
    assert 0 < len(found.faults) < CRASHES["faults"]
    assert f"again: simulate(…, seed={found.seed}, faults=[" in str(found)

    printed = [str(fault) for fault in found.faults]
    with pytest.raises(SimulationFailedError, match="all orders to be processed"):
        simulate(orders_story(commits_first=True), seed=found.seed, faults=printed)
    simulate(orders_story(commits_first=False), seed=found.seed, faults=printed)


@pytest.mark.slow
def test_senders_that_wait_for_the_leader_alone_are_found_out() -> None:
    careless = {"acks": 1, "enable_idempotence": False}
    with pytest.raises(SimulationFailedError, match=r"never copied|more than once"):
        simulate(
            lambda sim: ExactlyOnce(careless).story(sim),
            seeds=SEEDS_MAX,
            kinds=("isolate", "pause"),
            faults=6,
            storm_seconds=10,
        )


def test_the_same_seed_is_the_same_story() -> None:
    runs: list[Run] = []
    for _ in range(2):
        simulate(lambda sim: ExactlyOnce().story(sim), seed=5, storm_seconds=5, on_run=runs.append)
    one, other = runs
    assert (one.seconds, one.faults) == (other.seconds, other.faults)
    # The addresses of objects in memory are nobody's business.
    assert len(one.faults) == 6
    assert [line.split(":")[0] for line in one.lines] == [
        line.split(":")[0] for line in other.lines
    ]


def test_what_a_story_raises_is_shown_with_what_it_said() -> None:
    async def story(sim: Simulation) -> None:
        sim.say("here we are")
        raise RuntimeError("no good")

    with pytest.raises(SimulationFailedError, match="seed 3: RuntimeError: no good") as caught:
        simulate(story, seed=3, nodes=1)
    assert caught.value.faults == ()
    assert "here we are" in str(caught.value)


def test_a_program_that_raises_fails_the_story() -> None:
    async def story(sim: Simulation) -> None:
        async def broken(_: Process) -> None:
            raise ZeroDivisionError

        sim.run("broken", broken)
        with pytest.raises(ValueError, match="there is a machine 'broken' already"):
            sim.run("broken", broken)
        await sim.calm()

    with pytest.raises(SimulationFailedError, match="ZeroDivisionError"):
        simulate(story, seed=0, nodes=1, faults=0, storm_seconds=1)


async def nothing(_: Simulation) -> None:
    pass


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"nodes": 0}, "0 nodes: choose from 1 to 9"),
        ({"seeds": 0}, "0 seeds: choose from 1"),
        ({"kinds": ["meteorite"]}, "there is no fault 'meteorite', but kill"),
        ({"faults": ["1.0 +1.0 kill"]}, "is no fault: seconds"),
        ({"faults": "1.0 +1.0 meteorite node-1 -"}, "there is no fault 'meteorite'"),
        ({"config": {"num.partition": "1"}}, "num.partition"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        simulate(nothing, **arguments)  # type: ignore[arg-type]


def test_the_command_prints_a_table() -> None:
    options = ["--seeds", "1", "--seed", "4", "--faults", "1", "--nodes", "3"]
    result = CliRunner().invoke(main, ["simulate", *options])
    assert result.exit_code == 0, result.output
    header, row = result.stdout.splitlines()
    assert header.split() == ["SEED", "STORY", "S", "REAL", "S", "FAULTS", "ACKNOWLEDGED", "RESULT"]
    assert (row.split()[0], row.split()[3], row.split()[5]) == ("4", "1", "ok")
    assert result.stderr == ""


@pytest.mark.parametrize(
    "option",
    ["--seeds 0", "--seeds x", "--seed -1", "--nodes 0", "--nodes 10", "--faults -1", "--kinds ,"],
)
def test_the_command_names_a_wrong_value_in_its_first_line(option: str) -> None:
    result = CliRunner().invoke(main, ["simulate", *option.split()])
    assert (result.exit_code, result.stdout) == (1, "")
    assert option.split()[0] in result.stderr.splitlines()[0]


def test_the_command_refuses_faults_that_do_not_exist() -> None:
    result = CliRunner().invoke(main, ["simulate", "--kinds", "kill,meteorite"])
    assert result.exit_code != 0
    assert "there is no 'meteorite', but kill" in result.output
