"""What cleaning does to transactions: data, markers, the index of the aborted ones."""

from odradek.storage.cleaner.offset_map import ENTRY_BYTES
from odradek.storage.transaction_index import AbortedTransaction
from tests.unit.storage.cleaner.compacted_log import DAY_MS, START_MS, CompactedLog


def aborted(made: CompactedLog) -> list[AbortedTransaction]:
    return [each for segment in made.log.segments for each in segment.transaction_index.all()]


def control_offsets(made: CompactedLog) -> list[int]:
    return [header.base_offset for header in made.batches() if header.is_control]


def next_cleaning(made: CompactedLog) -> None:
    """Clean again, with a little more in the log: there must be something dirty."""
    made.append(("filler", "1"))
    made.roll()
    made.clean()


def forget_producers(made: CompactedLog) -> None:
    made.log.producer_states.remove_expired(made.now_ms + 365 * DAY_MS)


def test_aborted_data_goes_and_does_not_remove_what_was_committed() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.append(("a", "aborted"), producer_id=1, transactional=True)
    made.abort(1)
    made.append(("b", "1"), producer_id=1, transactional=True)
    made.commit(1)
    made.roll()
    made.clean()
    assert made.rows() == [(0, "a", "1"), (3, "b", "1")]
    assert made.rows(committed=True) == made.rows()


def test_an_aborted_tombstone_deletes_nothing() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.append(("a", None), producer_id=1, transactional=True)
    made.abort(1)
    made.roll()
    made.clean()
    assert made.rows() == [(0, "a", "1")]


def test_nothing_behind_the_last_stable_offset_is_cleaned() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.append(("a", "2"))
    made.roll()
    made.append(("a", "open"), producer_id=1, transactional=True)
    made.append(("a", "3"))
    made.roll()
    made.append(("a", "4"))
    made.clean()
    assert made.rows() == [(1, "a", "2"), (2, "a", "open"), (3, "a", "3"), (4, "a", "4")]
    made.commit(1)
    made.roll()
    made.clean()
    assert made.rows() == [(4, "a", "4")]


def test_data_whose_abort_marker_is_in_the_active_segment_is_aborted() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.append(("a", "aborted"), producer_id=1, transactional=True)
    made.roll()
    made.abort(1)
    made.clean()
    assert made.rows() == [(0, "a", "1")]
    assert aborted(made), "the index of the active segment is untouched"


def test_two_transactions_of_one_producer_are_told_apart() -> None:
    made = CompactedLog()
    for value, end in (("1", made.abort), ("2", made.commit), ("3", made.abort)):
        made.append(("a", value), producer_id=1, transactional=True)
        end(1)
    made.roll()
    made.clean()
    assert made.rows() == [(2, "a", "2")]


def test_an_aborted_transaction_of_the_clean_part_says_nothing_of_the_dirty_part() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.append(("a", "aborted"), producer_id=1, transactional=True)
    made.abort(1)
    made.roll()
    made.clean()
    assert aborted(made)
    made.append(("b", "1"))
    made.append(("b", "2"), producer_id=1, transactional=True)
    made.commit(1)
    made.roll()
    made.clean()
    assert [row[1:] for row in made.rows()] == [("a", "1"), ("b", "2")]


def test_interleaved_transactions_are_told_apart() -> None:
    made = CompactedLog()
    made.append(("a", "1"), producer_id=1, transactional=True)
    made.append(("a", "2"), producer_id=2, transactional=True)
    made.append(("b", "1"), producer_id=1, transactional=True)
    made.abort(1)
    made.append(("b", "2"), producer_id=2, transactional=True)
    made.commit(2)
    made.roll()
    made.clean()
    assert made.rows() == [(1, "a", "2"), (4, "b", "2")]


def test_a_marker_stays_while_its_data_does() -> None:
    made = CompactedLog()
    made.append(("a", "1"), producer_id=1, transactional=True)
    marker = made.commit(1)
    made.roll()
    made.clean()
    for _ in range(3):
        made.now_ms += 2 * DAY_MS
        next_cleaning(made)
        assert control_offsets(made) == [marker]
    assert made.batches()[1].delete_horizon_ms is None


def test_a_marker_goes_one_horizon_after_the_last_of_its_data() -> None:
    made = CompactedLog()
    made.append(("a", "1"), producer_id=1, transactional=True)
    marker = made.commit(1)
    forget_producers(made)
    made.append(("a", "2"))
    made.roll()
    made.clean()
    # The data went in this cleaning: readers may hold the one without having the other.
    assert control_offsets(made) == [marker]
    assert made.batches()[0].delete_horizon_ms is None
    made.now_ms += 1
    next_cleaning(made)
    assert made.batches()[0].delete_horizon_ms == START_MS + 1 + DAY_MS
    made.now_ms += DAY_MS - 1
    next_cleaning(made)
    assert control_offsets(made) == [marker]
    made.now_ms += 1
    next_cleaning(made)
    assert control_offsets(made) == []


def test_an_aborted_transaction_is_in_the_index_as_long_as_its_marker_is_in_the_log() -> None:
    made = CompactedLog()
    made.append(("a", "1"), producer_id=1, transactional=True)
    marker = made.abort(1)
    forget_producers(made)
    made.append(("b", "1"))
    made.roll()
    seen = []
    for _ in range(4):
        made.clean()
        assert [each.last_offset for each in aborted(made)] == control_offsets(made)
        seen.append(control_offsets(made))
        made.now_ms += DAY_MS
        made.append(("filler", "1"))
        made.roll()
    assert seen == [[marker], [marker], [], []]


def test_the_empty_batch_of_an_active_producer_keeps_its_marker() -> None:
    made = CompactedLog()
    made.append(("a", "1"), producer_id=1, transactional=True)
    made.commit(1)
    made.append(("a", "2"))
    made.roll()
    made.clean()
    for _ in range(3):
        made.now_ms += DAY_MS
        next_cleaning(made)
    assert [(h.base_offset, h.records_count) for h in made.batches()][:2] == [(0, 0), (1, 1)]
    made.reopen()
    assert made.log.first_unstable_offset is None
    assert made.log.producer_states.active_producers[1].last_sequence == 0


def test_the_marker_that_alone_tells_of_a_producers_epoch_keeps_its_record() -> None:
    made = CompactedLog()
    made.append(("a", "1"), producer_id=1, transactional=True)
    made.abort(1, epoch=1)  # as the coordinator fences: the new epoch has no data yet
    made.append(("b", "1"))
    made.roll()
    for _ in range(4):
        made.clean()
        made.now_ms += DAY_MS
        made.append(("filler", "1"))
        made.roll()
    made.reopen()
    state = made.log.producer_states.active_producers[1]
    assert (state.producer_epoch, state.coordinator_epoch) == (1, 7)


def test_aborted_data_behind_the_clean_end_stays_hidden_from_readers() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.append(("b", "1"))
    made.append(("c", "aborted"), producer_id=1, transactional=True)
    made.append(("d", "1"))
    made.abort(1)
    made.roll()
    result = made.clean(dedupe_buffer_bytes=ENTRY_BYTES, load_factor=1.0)
    assert result.clean_end_offset == 1
    assert made.rows(committed=True) == [(0, "a", "1"), (1, "b", "1"), (3, "d", "1")]
    while made.checkpoint != 5:
        made.clean(dedupe_buffer_bytes=ENTRY_BYTES, load_factor=1.0)
    assert made.rows() == [(0, "a", "1"), (1, "b", "1"), (3, "d", "1")]
