"""The simulation of consumer groups must notice mistakes, each within a few seeds."""

import pytest

from odradek.coordinator.group.consumer.config import MigrationPolicy
from tests.simulation.groups import consumer_planted as planted
from tests.simulation.groups.test_consumer_storm import Storm

SEEDS_MAX = 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "classic_share"),
    [
        (planted.give_before_it_is_released, 0),
        (planted.take_silence_for_consent, 0),
        (planted.never_wait_for_revocation, 0),
        (planted.sessions_never_end, 0),
        (planted.forget_what_is_to_be_given_up, 0),
        (planted.plan_in_place, 0),
        (planted.never_look_at_topics_again, 0),
        (planted.leave_regexes_as_they_are, 0),
        (planted.keep_whom_a_static_member_replaces, 0),
        (planted.date_epochs_back, 0),
        (planted.tell_classic_members_nothing, 0.4),
        (planted.take_strangers_in_with_what_they_own, 0.4),
        (planted.count_unsynced_partitions_as_free, 0.6),
    ],
)
def test_planted_fault_is_noticed(
    plant: planted.Plant, classic_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(fails(seed, classic_share) for seed in range(SEEDS_MAX))


def fails(seed: int, classic_share: float) -> bool:
    storm = Storm(seed, classic_share=classic_share, policy=MigrationPolicy.BIDIRECTIONAL)
    if classic_share > 0.5:
        storm.world.begin_classic()
    try:
        storm.run()
    except (AssertionError, KeyError) as error:
        print(f"seed {seed}: {error!r}")
        return True
    return False
