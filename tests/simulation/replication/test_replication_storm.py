"""Replicas of a partition through storms of faults, and after them: nothing committed is lost."""

import pytest

from tests.simulation.replication.story import tell


def check(seed: int) -> dict[str, int]:
    outcome = tell(seed)
    again = f"python -m tests.simulation.replication {seed} --trace"
    assert outcome.failure is None, f"{outcome.failure}; again: {again}"
    return outcome.reached


@pytest.mark.seed_row("0.7")
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_what_is_committed_stays_through_a_storm(first: int) -> None:
    reached = [check(seed) for seed in range(first, first + 10)]
    for what in ("elections", "acknowledged", "truncated"):
        assert sum(each.get(what, 0) for each in reached), f"no seed had any {what}"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_200, 50))
def test_what_is_committed_stays_through_many_storms(first: int) -> None:
    for seed in range(first, first + 50):
        check(seed)


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, second = (tell(5, trace=True) for _ in range(2))
    assert first.lines
    assert first.lines == second.lines
