"""The simulation finds each planted bug, within the number of seeds that its table says."""

import pytest

from tests.simulation.replication.planted_bugs import BUGS, Bug
from tests.simulation.replication.story import tell


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_of_replication_is_found(bug: Bug) -> None:
    found = next((seed for seed in range(bug.seeds_max) if fails(seed, bug)), None)
    assert found is not None
    print(f"{bug.name}: found by seed {found}")
    assert tell(found, **bug.settings).failure is None, "the simulation fails without the bug, too"


def fails(seed: int, bug: Bug) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        bug.plant(patch)
        failure = tell(seed, **bug.settings).failure
    if failure is not None:
        print(f"{bug.name}: seed {seed}: {failure}")
    return failure is not None
