"""Brokers that crash, pause, leave and are started twice, under a controller that moves."""

import pytest

from tests.simulation.lifecycle.lifecycle_world import Faults, World

STORM_MS = 120_000


@pytest.mark.parametrize("seed", range(12))
def test_storm_of_lifecycles(seed: int) -> None:
    world = World(seed)
    world.run(STORM_MS)
    world.settle()


@pytest.mark.parametrize("seed", range(3))
def test_storm_of_lifecycles_on_a_sound_network(seed: int) -> None:
    world = World(seed, Faults(loss=0.0, delay_ms_max=1, commit_ms_max=1, lag_ms_max=2))
    world.run(STORM_MS)
    world.settle()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_060))
def test_long_storm_of_lifecycles(seed: int) -> None:
    world = World(seed, Faults(loss=0.2, fault_ms=1_000))
    world.run(STORM_MS)
    world.settle()


def test_one_seed_is_one_history_of_lifecycles() -> None:
    first, second = World(5), World(5)
    for world in (first, second):
        world.run(STORM_MS)
    assert first.history == second.history
    for word in ("Unfenced", "granted=True", "MustStop", "StillWaiting"):
        assert any(word in line for line in first.history), word
