"""The simulation of classic groups must notice mistakes, each within a few seeds."""

import pytest

from tests.simulation.groups import classic_planted as planted
from tests.simulation.groups.classic_world import World

SEEDS_MAX = 40


@pytest.mark.parametrize(
    "plant",
    [
        planted.accept_any_generation,
        planted.sessions_never_end,
        planted.wait_for_all_forever,
        planted.reuse_the_generation,
        planted.forget_followers_that_wait,
        planted.do_not_write_assignments,
        planted.lose_assignments_on_loading,
        planted.hand_out_old_assignments,
        planted.wait_for_nobody,
        planted.leave_sync_waiters_behind,
    ],
)
def test_planted_fault_is_noticed(plant: planted.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(fails(seed) for seed in range(SEEDS_MAX))


def fails(seed: int) -> bool:
    world = World(seed)
    try:
        world.storm(120_000)
        world.settle()
    except AssertionError as error:
        print(f"seed {seed}: {error}")
        return True
    return False
