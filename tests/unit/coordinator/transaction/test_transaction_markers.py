"""Markers: when they are handed out, whose answers count, and what a new coordinator resumes."""

import pytest

from odradek.coordinator.result import Result
from odradek.coordinator.transaction.metadata import EPOCH_MAX
from odradek.coordinator.transaction.state import TransactionState
from odradek.coordinator.transaction.upkeep import COMPLETION_RETRY_MS
from tests.unit.coordinator.transaction.transaction_driver import (
    NONE,
    P0,
    P1,
    TransactionDriver,
)

S = TransactionState


def test_markers_wait_until_the_decision_is_committed() -> None:
    driver = TransactionDriver()
    driver.at(S.PREPARE_COMMIT)
    prepared_offset = len(driver.log) - 1
    assert driver.shard.take_markers(high_watermark=prepared_offset) == []
    (markers,) = driver.shard.take_markers(high_watermark=prepared_offset + 1)
    assert markers.prepared_offset == prepared_offset
    assert driver.shard.take_markers(high_watermark=prepared_offset + 1) == []


def test_decisions_are_handed_out_in_the_order_of_the_log() -> None:
    driver = TransactionDriver()
    for name in ("a", "b", "c"):
        response = driver.init(name)
        who = response.producer_id, response.producer_epoch
        driver.add(who, P0, of=name)
        driver.end(who, of=name)
    offsets = [len(driver.log) - 7, len(driver.log) - 4, len(driver.log) - 1]
    first = driver.shard.take_markers(high_watermark=offsets[1] + 1)
    rest = driver.shard.take_markers()
    assert [(each.transactional_id, each.prepared_offset) for each in first + rest] == list(
        zip("abc", offsets, strict=True)
    )


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_new_coordinator_writes_all_markers_again(state: S) -> None:
    driver = TransactionDriver()
    driver.at(state)
    (before,) = driver.shard.take_markers()
    driver.wrote(before, P0)
    driver.reload()
    driver.shard.coordinator_epoch = 9
    (after,) = driver.shard.take_markers()
    assert after == before._replace(coordinator_epoch=9)
    driver.wrote(after, P0)
    # An answer that the old coordinator was waiting for is about the same decision, and counts.
    driver.wrote(before, P1)
    assert driver.state().is_complete


@pytest.mark.parametrize("level", [1, 2])
def test_late_answer_to_an_earlier_marker_counts_for_nothing(level: int) -> None:
    driver = TransactionDriver(level)
    version = 5 if level == 2 else 4
    who = driver.init_ok()
    driver.add(who, P0, version=level)
    driver.end(who, version=version)
    (early,) = driver.write_markers()
    who = driver.metadata.identity
    driver.add(who, P0, version=level)
    driver.wrote(early, P0)
    assert driver.state() is S.ONGOING
    driver.end(who, version=version)
    driver.wrote(early, P0)
    assert driver.state() is S.PREPARE_COMMIT
    (late,) = driver.write_markers()
    assert driver.state() is S.COMPLETE_COMMIT
    driver.wrote(late, P0)
    assert driver.state() is S.COMPLETE_COMMIT


def test_answers_for_what_nobody_asked_count_for_nothing() -> None:
    driver = TransactionDriver()
    producer_id, epoch = driver.at(S.PREPARE_COMMIT)
    records = len(driver.log)
    written = driver.shard.on_marker_written
    assert written("other", producer_id, epoch, P0, driver.now) == Result()
    assert written("t", producer_id, epoch - 1, P0, driver.now) == Result()
    assert written("t", producer_id + 1, epoch, P0, driver.now) == Result()
    assert len(driver.log) == records
    (markers,) = driver.shard.take_markers()
    assert markers.partitions == (P0, P1)


def test_completion_that_the_log_refused_is_written_later() -> None:
    driver = TransactionDriver()
    driver.at(S.PREPARE_ABORT)
    driver.is_log_broken = True
    driver.write_markers()
    assert driver.state() is S.PREPARE_ABORT
    assert driver.shard.next_deadline_ms() == COMPLETION_RETRY_MS
    driver.pass_time(COMPLETION_RETRY_MS)
    assert driver.state() is S.PREPARE_ABORT
    driver.is_log_broken = False
    driver.pass_time(COMPLETION_RETRY_MS)
    assert driver.state() is S.COMPLETE_ABORT


def test_decision_without_partitions_is_completed_on_loading() -> None:
    """Kafka writes the two records apart, and may have died in between."""
    driver = TransactionDriver()
    who = driver.put(EPOCH_MAX - 1)
    assert driver.end(who, commit=False)[0] == NONE
    del driver.log[-1]
    driver.reload()
    assert driver.state() is S.COMPLETE_ABORT
    assert driver.metadata.producer_epoch == 0
