"""Deadlines by name against the dumbest thing that could work: a dict and its minimum."""

from random import Random

import pytest

from odradek.coordinator.deadlines import Deadlines


@pytest.mark.parametrize("seed", range(20))
def test_deadlines_are_those_of_a_dict(seed: int) -> None:
    random = Random(seed)
    deadlines, twin = Deadlines(), dict[str, int]()
    for step in range(2_000):
        name = f"m{random.randrange(30)}"
        match random.randrange(4):
            case 0 | 1:
                twin[name] = step + random.randrange(500)
                deadlines.set(name, twin[name])
            case 2:
                twin.pop(name, None)
                deadlines.cancel(name)
            case _ if twin:
                earliest_ms = min(twin.values())
                assert twin.pop(deadlines.take_next()) == earliest_ms
        assert deadlines.next_ms() == min(twin.values(), default=None)
        assert (name in deadlines) == (name in twin)


def test_heap_does_not_grow_with_names_that_are_gone() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.set(f"m{number}", number)
        deadlines.cancel(f"m{number}")
    assert len(deadlines._heap) < 200
    deadlines.clear()
    assert deadlines.next_ms() is None
