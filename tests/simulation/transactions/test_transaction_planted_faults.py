"""The simulation of transactions must notice mistakes, each within a few seeds."""

from collections.abc import Callable

import pytest

from tests.simulation.transactions import transaction_planted as planted
from tests.simulation.transactions.transaction_world import Mix, World, in_order

SEEDS_MAX = 40


def newer(seed: int) -> World:
    return World(seed)


def older(seed: int) -> World:
    return World(seed, in_order(), Mix((0,), 1))


@pytest.mark.parametrize(
    ("plant", "make"),
    [
        (planted.look_at_producer_ids_only, newer),
        (planted.look_at_producer_ids_only, older),
        (planted.end_without_a_new_epoch, newer),
        (planted.abort_without_fencing, newer),
        (planted.abort_without_fencing, older),
        (planted.start_with_the_same_epoch, newer),
        (planted.take_every_init_for_a_repetition, newer),
        (planted.write_markers_before_the_decision_is_committed, newer),
        (planted.forget_markers_on_loading, newer),
        (planted.complete_with_the_first_marker, newer),
        (planted.count_answers_to_any_marker, newer),
        (planted.lose_completions_that_the_log_refused, newer),
        (planted.answer_a_commit_that_was_aborted, newer),
        (planted.never_time_out, newer),
        (planted.expire_what_is_open, newer),
        (planted.lose_partitions_on_loading, newer),
        (planted.do_not_write_the_next_producer_id, newer),
        (planted.verify_everything, older),
        (planted.say_that_a_partition_is_added_already, newer),
    ],
)
def test_planted_transaction_fault_is_noticed(
    plant: planted.Plant, make: Callable[[int], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(fails(make(seed)) for seed in range(SEEDS_MAX))


def fails(world: World) -> bool:
    try:
        world.storm(60_000)
        world.settle()
    except AssertionError as error:
        print(error)
        return True
    return False
