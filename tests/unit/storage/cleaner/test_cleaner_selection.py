"""Which log is cleaned next, and how far."""

from typing import Any

from odradek.core.ids import TopicPartition
from odradek.storage.cleaner.selection import after_cut, inspect, mended, select
from odradek.storage.config import CleanupPolicy
from tests.unit.storage.cleaner.compacted_log import PARTITION, START_MS, CompactedLog


def three_segments(**config: Any) -> CompactedLog:
    """Two closed segments, [0, 2) and [2, 4), and an active one, each a second younger."""
    made = CompactedLog(**config)
    for number in range(6):
        made.append((f"k{number}", "v"))
        if number % 2:
            made.now_ms += 1000
            made.roll()
    return made


def test_all_closed_segments_of_a_new_log_are_dirty() -> None:
    made = three_segments()
    made.append(("active", "1"))
    found = inspect(made.log, None, made.now_ms)
    assert (found.first_dirty_offset, found.upper_bound_offset) == (0, 6)
    assert found.dirty_ratio == 1.0
    assert found.clean_bytes == 0
    assert found.dirty_bytes == sum(s.size for s in list(made.log.segments)[:-1])


def test_a_log_is_due_above_its_ratio() -> None:
    made = three_segments(min_cleanable_dirty_ratio=0.3)
    assert select([made.log], {PARTITION: 4}, made.now_ms) is not None
    other = three_segments(min_cleanable_dirty_ratio=0.34)
    assert select([other.log], {PARTITION: 4}, other.now_ms) is None
    assert inspect(other.log, 4, other.now_ms).dirty_ratio == 1 / 3


def test_the_filthiest_log_is_next() -> None:
    cleaner, filthier = three_segments(), three_segments()
    cleaner.log.partition = TopicPartition("other", 1)
    checkpoint = {cleaner.log.partition: 2, PARTITION: 0}
    for logs in ([cleaner.log, filthier.log], [filthier.log, cleaner.log]):
        found = select(logs, checkpoint, filthier.now_ms)
        assert found is not None
        assert found.log is filthier.log
    found = select(logs, checkpoint, filthier.now_ms, excluded={PARTITION})
    assert found is not None
    assert found.log is cleaner.log


def test_logs_that_are_not_compacted_are_never_chosen() -> None:
    made = three_segments(cleanup_policy=frozenset({CleanupPolicy.DELETE}))
    assert select([made.log], {}, made.now_ms) is None
    both = three_segments(cleanup_policy=frozenset(CleanupPolicy))
    assert select([both.log], {}, both.now_ms) is not None


def test_the_last_stable_offset_bounds_the_cleaning() -> None:
    made = three_segments()
    made.log.update_high_watermark(3)
    assert inspect(made.log, None, made.now_ms).upper_bound_offset == 2
    made.log.update_high_watermark(1)
    found = inspect(made.log, None, made.now_ms)
    assert (found.upper_bound_offset, found.dirty_bytes) == (0, 0)
    assert not found.is_due


def test_records_younger_than_the_lag_wait() -> None:
    made = three_segments(min_compaction_lag_ms=10_000)
    last = [segment.largest().timestamp for segment in made.log.segments][:3]
    assert last == [START_MS, START_MS + 1000, START_MS + 2000]
    for now_ms, bound in ((9_999, 0), (10_000, 2), (11_999, 4), (12_000, 6)):
        assert inspect(made.log, None, START_MS + now_ms).upper_bound_offset == bound
    # What is clean already is not looked at: it may be as young as it likes.
    assert inspect(made.log, 2, START_MS).upper_bound_offset == 2


def test_a_log_that_waited_for_too_long_is_due_whatever_its_ratio() -> None:
    made = three_segments(max_compaction_lag_ms=10_000, min_cleanable_dirty_ratio=1.0)
    assert select([made.log], {PARTITION: 4}, START_MS + 12_000) is None
    assert select([made.log], {PARTITION: 4}, START_MS + 12_001) is not None
    assert select([made.log], {PARTITION: 6}, START_MS + 99_999) is None, "nothing is dirty"


def test_a_checkpoint_outside_the_log_counts_for_nothing_and_is_replaced() -> None:
    made = three_segments()
    assert inspect(made.log, 7, made.now_ms).first_dirty_offset == 0
    assert mended([made.log], {PARTITION: 7}) == {PARTITION: 0}
    assert mended([made.log], {PARTITION: 6}) == {PARTITION: 6}
    made.log.advance_log_start_offset(3)
    assert inspect(made.log, 2, made.now_ms).first_dirty_offset == 3
    assert mended([made.log], {PARTITION: 2}) == {PARTITION: 3}
    assert mended([made.log], {}) == {}


def test_a_cut_into_the_clean_part_makes_all_of_the_log_dirty() -> None:
    other = TopicPartition("other", 0)
    assert after_cut({PARTITION: 5, other: 9}, PARTITION, 4) == {other: 9}
    assert after_cut({PARTITION: 5}, PARTITION, 5) == {PARTITION: 5}
    assert after_cut({}, PARTITION, 8) == {}
