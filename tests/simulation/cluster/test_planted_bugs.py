"""A storm finds each planted bug, within the number of seeds that its table says."""

import os
from typing import Final

import pytest

from tests.simulation.cluster.planted import BUGS, Bug
from tests.simulation.cluster.planted_data import DATA_BUGS
from tests.simulation.cluster.planted_moves import MOVE_BUGS
from tests.simulation.cluster.planted_operations import OPERATION_BUGS
from tests.simulation.cluster.story import Outcome, tell

IS_WHOLE: Final = os.environ.get("ODRADEK_PLANTED") == "all"
"""Whether bugs are planted that take many seeds."""
ALL: Final = (*BUGS, *DATA_BUGS, *MOVE_BUGS, *OPERATION_BUGS)
TRIED: Final = [bug for bug in ALL if IS_WHOLE or not bug.is_dear]


@pytest.mark.slow
@pytest.mark.parametrize("bug", TRIED, ids=lambda bug: bug.number)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    found = next((seed for seed in range(bug.seeds_max) if fails(seed, bug)), None)
    assert found is not None
    print(f"found by seed {found}")
    assert run(found, bug).failure is None, "the storm fails without the bug, too"


def fails(seed: int, bug: Bug) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        outcome = run(seed, bug)
    print(f"seed {seed}: {outcome.failure}")
    return outcome.failure is not None


def run(seed: int, bug: Bug) -> Outcome:
    return tell(seed, shape=bug.shape, level=bug.level, only=bug.only)
