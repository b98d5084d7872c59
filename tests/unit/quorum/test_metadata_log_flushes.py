"""How often a metadata log waits for the disk."""

from collections.abc import Callable
from functools import partial

import pytest

from odradek.storage.flush_plan import FlushPlan
from tests.unit.quorum.metadata_log_harness import Metadata, topic_records


class Flushes:
    """Notes where each flush ended, and carries it out."""

    def __init__(self) -> None:
        self.ends: list[int] = []

    def __call__(self, plan: FlushPlan, then: Callable[[], None]) -> None:
        self.ends.append(plan.end_offset)
        plan.run()
        then()


def test_what_is_appended_in_one_block_is_flushed_once_at_its_end() -> None:
    metadata, flushes, committed = Metadata(), Flushes(), list[str]()
    log = metadata.open()
    log.flush_with(flushes)
    with log.flushed_together():
        for name in ("a", "b", "c"):
            end_offset = log.append(log.new_batch(topic_records(name)), log.epoch)
            log.when_loaded(end_offset, partial(committed.append, name))
        assert not flushes.ends
        assert not committed
    assert flushes.ends == [log.log.log_end_offset]
    assert committed == ["a", "b", "c"]
    assert set(metadata.image.topics) == {"a", "b", "c"}


def test_a_block_without_appends_flushes_nothing() -> None:
    metadata, flushes = Metadata(), Flushes()
    log = metadata.open()
    log.flush_with(flushes)
    with log.flushed_together():
        pass
    assert flushes.ends == []


def test_after_a_block_that_failed_the_next_append_is_flushed() -> None:
    metadata, flushes = Metadata(), Flushes()
    log = metadata.open()
    log.flush_with(flushes)
    with pytest.raises(ZeroDivisionError), log.flushed_together():
        raise ZeroDivisionError
    metadata.create_topic("a")
    assert flushes.ends == [log.log.log_end_offset]
