"""What survives a long collection is not gone through again, until it is thawed."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from odradek.node import frozen_heap
from odradek.node.frozen_heap import FREEZE_US_MIN, FULL_EVERY, FrozenHeap
from tests import collected


class Clock:
    """Makes each collection take ``took_us``: it is looked at before and after."""

    def __init__(self) -> None:
        self.took_us = 0
        self._now_us = 0

    def __call__(self) -> int:
        self._now_us += self.took_us
        return self._now_us


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    gc.unfreeze()
    gc.disable()  # no collections but those of the test
    yield
    gc.enable()
    assert gc.get_freeze_count() == 0
    collected.freeze()


def collected_with(clock: Clock, took_us: int) -> int:
    """Collect everything, and return how many objects are frozen then."""
    clock.took_us = took_us
    gc.collect()
    return gc.get_freeze_count()


def test_what_survives_a_long_collection_is_frozen() -> None:
    async def scenario() -> None:
        clock = Clock()
        with FrozenHeap(clock):
            frozen = gc.get_freeze_count()
            assert frozen > 0
            kept = [[number] for number in range(1_000)]
            assert collected_with(clock, FREEZE_US_MIN - 1) < frozen + len(kept)
            assert collected_with(clock, FREEZE_US_MIN) >= frozen + len(kept)

    asyncio.run(scenario())


def test_a_frozen_cycle_is_found_after_it_is_thawed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_heap, "THAW_SECONDS", 0)

    async def scenario() -> None:
        cycle = Cycle()
        found = weakref.ref(cycle)
        with FrozenHeap(Clock()):
            del cycle
            gc.collect()
            assert found() is not None
            while gc.get_freeze_count():
                await asyncio.sleep(0)
            gc.collect()
            assert found() is None

    asyncio.run(scenario())


def test_the_collector_is_left_as_it_was() -> None:
    async def scenario() -> None:
        before = gc.get_threshold(), list(gc.callbacks)
        with FrozenHeap():
            assert gc.get_threshold()[2] == FULL_EVERY
        assert (gc.get_threshold(), list(gc.callbacks)) == before

    asyncio.run(scenario())
