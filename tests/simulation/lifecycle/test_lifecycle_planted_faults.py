"""The storm finds what it is for: each mistake is planted, and must be noticed within few seeds."""

import pytest

from tests.simulation.lifecycle import lifecycle_planted as planted
from tests.simulation.lifecycle.lifecycle_planted import Plant
from tests.simulation.lifecycle.lifecycle_world import World

SEEDS_MAX = 10
STORM_MS = 120_000


@pytest.mark.parametrize(
    "plant",
    [
        planted.want_no_fence_from_the_beginning,
        planted.serve_when_caught_up,
        planted.claim_a_later_offset,
        planted.leave_with_any_answer,
        planted.go_on_with_a_stale_epoch,
        planted.give_up_for_any_error,
        planted.forget_to_heartbeat_after_a_failure,
        planted.ask_without_a_pause,
    ],
)
def test_a_mistake_in_the_life_of_a_broker_is_noticed(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        _search()


def _search() -> None:
    for seed in range(SEEDS_MAX):
        world = World(seed)
        world.run(STORM_MS)
        world.settle()
