"""Consumers that join, leave, crash, pause and come back, and a coordinator that moves."""

import pytest

from tests.simulation.groups.classic_world import Faults, World

STORM_MS = 120_000


@pytest.mark.parametrize("seed", range(40))
def test_storm_ends_with_everybody_in_one_generation(seed: int) -> None:
    world = World(seed)
    world.storm(STORM_MS)
    world.settle()


@pytest.mark.parametrize("seed", range(20))
def test_storm_on_a_sound_network(seed: int) -> None:
    """Without losses and failovers nothing hides behind a retry."""
    world = World(seed, Faults(loss=0.0, append_failure=0.0, failover=0.0))
    world.storm(STORM_MS)
    world.settle()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_100))
def test_long_storm(seed: int) -> None:
    world = World(seed)
    world.storm(5 * STORM_MS)
    world.settle()


def test_one_seed_is_one_history() -> None:
    first, second = World(3), World(3)
    for world in (first, second):
        world.storm(STORM_MS)
    assert first.history == second.history
    assert len(first.history) > 50
