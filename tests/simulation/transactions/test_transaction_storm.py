"""Producers that crash, come back and repeat themselves, and a coordinator that moves."""

import pytest

from tests.simulation.transactions.transaction_world import Faults, Mix, World, in_order

STORM_MS = 60_000


@pytest.mark.parametrize("seed", range(30))
def test_storm_with_late_and_repeated_requests(seed: int) -> None:
    """From transaction version 2 on, nothing that comes late can do harm."""
    world = World(seed)
    world.storm(STORM_MS)
    world.settle()


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("seed", range(10))
def test_storm_of_older_producers(seed: int, level: int) -> None:
    """Their requests must not come late; everything else may go wrong."""
    world = World(seed, in_order(), Mix((0,), level))
    world.storm(STORM_MS)
    world.settle()


@pytest.mark.parametrize("seed", range(10))
def test_storm_of_older_and_newer_producers_of_one_id(seed: int) -> None:
    world = World(seed, in_order(), Mix((0, 2), 2))
    world.storm(STORM_MS)
    world.settle()


@pytest.mark.parametrize("seed", range(5))
def test_storm_on_a_sound_network(seed: int) -> None:
    """Without losses and failovers nothing hides behind a retry."""
    quiet = Faults(
        loss=0.0, late=0.0, twice=0.0, append_failure=0.0, marker_loss=0.0, failover_ms=0
    )
    world = World(seed, quiet, Mix((0, 2), 2))
    world.storm(STORM_MS)
    world.settle()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_020))
def test_long_transaction_storm(seed: int) -> None:
    world = World(seed)
    world.storm(5 * STORM_MS)
    world.settle()


def test_one_seed_is_one_transaction_history() -> None:
    first, second = World(3), World(3)
    for world in (first, second):
        world.storm(STORM_MS)
    assert first.history == second.history
    assert len(first.history) > 200
    ended = [line for line in first.history if " end " in line and " NONE " in line]
    assert len(ended) > 20
