"""A thousand members: a rebalance costs each of them the same as in a small group."""

import gc
from collections.abc import Iterator
from time import process_time

import pytest

from tests.unit.coordinator.classic_story import DELAY_MS, Story

CPU_SECONDS_MAX = 2.0  # Measured: 0.05. No noise makes forty of one.


@pytest.fixture(autouse=True)
def no_garbage() -> Iterator[None]:
    """A collection costs what all tests of this process left behind, not what a group costs."""
    gc.disable()
    yield
    gc.enable()


def rebalance_twice(size: int) -> float:
    story = Story()
    story.done = lambda result: result  # type: ignore[method-assign]  # invariants are O(size)
    began = process_time()
    ids = story.gathering(size)
    story.pass_time(2 * DELAY_MS)
    for generation_id in (1, 2):
        for member_id in reversed(ids):
            given = dict.fromkeys(ids, b"p") if member_id == ids[0] else None
            story.sync(member_id, member_id, generation_id, given)
            story.heartbeat(member_id, generation_id)
            story.group.next_deadline_ms()
        assert story.group.state.value == "Stable"
        if generation_id == 1:
            for member_id in ids:
                story.join(member_id, member_id)
    took = process_time() - began
    assert story.group.generation_id == 2
    story.group.check_invariants()
    return took


def test_thousand_members_rebalance_within_two_seconds() -> None:
    assert rebalance_twice(1_000) < CPU_SECONDS_MAX


@pytest.mark.slow
def test_cost_grows_with_the_members_and_not_with_their_square() -> None:
    small = min(rebalance_twice(250) for _ in range(3))
    large = min(rebalance_twice(2_000) for _ in range(3))
    assert large < 8 * 3 * small, f"{small:.3f} s for 250 members, {large:.3f} s for 2,000"
