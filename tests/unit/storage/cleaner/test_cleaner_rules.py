"""What stays and what goes when a log is cleaned, rule by rule."""

import pytest

from odradek.core.errors import CorruptionError
from odradek.records import CompressionType, Record
from odradek.records.legacy import build_message_set
from odradek.storage.cleaner.cleaning import DedupeBufferTooSmallError, clean
from odradek.storage.cleaner.offset_map import ENTRY_BYTES
from odradek.storage.cleaner.throttle import Throttle
from tests.unit.storage.cleaner.compacted_log import DAY_MS, FOLDER, START_MS, CompactedLog


@pytest.mark.seed_row("0.9")
def test_the_newest_value_of_each_key_stays_at_its_offset() -> None:
    made = CompactedLog()
    made.append(("a", "1"), ("b", "1"), ("a", "2"))
    made.append(("c", "1"), ("a", "3"))
    made.roll()
    result = made.clean()
    assert made.rows() == [(1, "b", "1"), (3, "c", "1"), (4, "a", "3")]
    assert result.clean_end_offset == 5
    assert result.stats.read_records == 5
    assert result.stats.written_records == 3


def test_what_is_in_the_active_segment_is_neither_removed_nor_removes() -> None:
    made = CompactedLog()
    made.append(("a", "1"), ("a", "2"))
    made.roll()
    made.append(("a", "3"), ("a", "4"))
    made.clean()
    assert made.rows() == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


@pytest.mark.seed_row("1.15")
def test_a_second_cleaning_drops_values_of_the_clean_part() -> None:
    made = CompactedLog()
    made.append(("a", "1"), ("b", "1"))
    made.roll()
    made.clean()
    made.append(("a", "2"))
    made.roll()
    result = made.clean()
    assert made.rows() == [(1, "b", "1"), (2, "a", "2")]
    assert result.stats.mapped_keys == 1


def test_records_without_a_key_go() -> None:
    made = CompactedLog()
    made.append(("a", "1"), (None, "lost"))
    made.roll()
    assert made.clean().stats.keyless_records == 1
    assert made.rows() == [(0, "a", "1")]


def test_an_empty_key_is_a_key() -> None:
    made = CompactedLog()
    made.append(("", "1"), ("", "2"), ("a", ""))
    made.roll()
    made.clean()
    assert made.rows() == [(1, "", "2"), (2, "a", "")]


def test_batches_stay_byte_for_byte_if_nothing_in_them_goes() -> None:
    made = CompactedLog()
    made.append(("a", "1"), ("b", "1"), codec=CompressionType.ZSTD)
    made.append(("c", "1"), producer_id=4)
    before = bytes(made.log.segments[0].read(0, 10_000))
    made.roll()
    made.clean()
    assert bytes(made.log.segments[0].read(0, 10_000)) == before


@pytest.mark.parametrize("codec", CompressionType)
def test_a_rebuilt_batch_keeps_all_but_the_records(codec: CompressionType) -> None:
    made = CompactedLog()
    made.append(
        ("a", "1"), ("b", "1"), ("a", "2"), codec=codec, producer_id=9, epoch=3, leader_epoch=5
    )
    (before,) = made.batches()
    made.append(("a", "3"))
    made.roll()
    made.clean()
    after = made.batches()[0]
    assert after.records_count == 1
    same = "base_offset last_offset base_sequence last_sequence producer_id producer_epoch codec"
    for field in [*same.split(), "partition_leader_epoch", "timestamp_type", "is_transactional"]:
        assert getattr(after, field) == getattr(before, field), field
    assert after.max_timestamp == START_MS + 1, "that of the record that is left"
    assert made.records()[0].timestamp == START_MS + 1


def test_log_append_time_stays() -> None:
    made = CompactedLog()
    made.append(("a", "1"), ("b", "1"), log_append_time=START_MS + 77)
    made.append(("a", "2"))
    made.roll()
    made.clean()
    assert [record.timestamp for record in made.records()] == [START_MS + 77, START_MS]


@pytest.mark.seed_row("0.9")
def test_a_tombstone_stays_until_its_horizon_and_then_goes() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.append(("a", None), ("b", "1"))
    made.roll()
    made.clean()
    assert made.rows() == [(1, "a", None), (2, "b", "1")]
    horizons = [header.delete_horizon_ms for header in made.batches()]
    assert horizons == [START_MS + DAY_MS]
    assert [record.timestamp for record in made.records()] == [START_MS, START_MS + 1]

    for now_ms, expected in ((START_MS + DAY_MS - 1, True), (START_MS + DAY_MS, False)):
        made.now_ms = now_ms
        made.append(("x", "1"))
        made.roll()
        made.clean()
        assert (("a", None) in [row[1:] for row in made.rows()]) is expected
    assert (2, "b", "1") in made.rows()


def test_the_horizon_counts_from_the_first_cleaning_not_from_the_last() -> None:
    made = CompactedLog()
    made.append(("a", None))
    made.append(("b", "1"))
    for _ in range(3):
        made.roll()
        made.clean()
        assert made.batches()[0].delete_horizon_ms == START_MS + DAY_MS
        made.now_ms += 1000
        made.append(("x", "1"))


def test_a_tombstone_behind_the_clean_end_gets_no_horizon() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.append(("b", None))
    made.roll()
    result = made.clean(dedupe_buffer_bytes=ENTRY_BYTES, load_factor=1.0)
    assert result.clean_end_offset == 1
    assert made.batches()[1].delete_horizon_ms is None


def test_a_tombstone_without_a_value_before_it_is_kept_as_long() -> None:
    made = CompactedLog()
    made.append(("a", None))
    made.roll()
    made.clean()
    assert made.rows() == [(0, "a", None)]


def test_delete_retention_that_is_endless_does_not_overflow() -> None:
    made = CompactedLog(delete_retention_ms=2**63 - 1)
    made.append(("a", None))
    made.roll()
    made.clean()
    assert made.batches()[0].delete_horizon_ms == 2**63 - 1


def test_the_last_batch_of_a_producer_stays_though_it_is_empty() -> None:
    made = CompactedLog()
    made.append(("a", "1"), ("a", "2"), producer_id=1)
    made.append(("a", "3"), ("b", "1"), producer_id=1)
    made.append(("a", "4"), ("b", "2"))
    made.append(("c", "1"))
    made.roll()
    made.clean()
    assert [(h.producer_id, h.base_offset, h.records_count) for h in made.batches()] == [
        (1, 2, 0),
        (-1, 4, 2),
        (-1, 6, 1),
    ]
    made.reopen()
    state = made.log.producer_states.active_producers[1]
    assert (state.last_sequence, state.last_data_offset) == (3, 3)


def test_the_empty_batch_of_a_forgotten_producer_goes() -> None:
    made = CompactedLog()
    made.append(("a", "1"), producer_id=1)
    made.append(("a", "2"))
    made.roll()
    made.clean()
    made.now_ms += 30 * DAY_MS
    assert made.log.producer_states.remove_expired(made.now_ms) == 1
    made.append(("b", "1"))
    made.roll()
    made.clean()
    assert [header.base_offset for header in made.batches()] == [1, 2]


def test_a_segment_of_which_nothing_is_left_still_reaches_to_the_next() -> None:
    made = CompactedLog(segment_bytes=80)
    made.append(("a", "1"), producer_id=1)
    made.append(("a", "2"), producer_id=2)
    made.append(("a", "3"), producer_id=1)
    made.append(("a", "4"), producer_id=2)
    made.append(("x", "1"))
    assert len(made.log.segments) == 5
    made.clean()
    ends = [header.next_offset for header in made.batches()]
    assert ends == [1, 2, 3, 4, 5]
    empty = made.batches()[0]
    assert (empty.records_count, empty.producer_id, empty.base_sequence) == (0, -1, -1)
    assert made.rows() == [(3, "a", "4"), (4, "x", "1")]


def test_when_the_map_is_full_what_comes_later_stays_as_it_is() -> None:
    made = CompactedLog()
    for number in range(10):
        made.append((f"k{number % 5}", str(number)))
    made.roll()
    result = made.clean(dedupe_buffer_bytes=3 * ENTRY_BYTES, load_factor=1.0)
    assert result.clean_end_offset == 3
    assert result.stats.mapped_keys == 3
    assert len(made.rows()) == 10
    while made.checkpoint != 10:
        made.clean(dedupe_buffer_bytes=3 * ENTRY_BYTES, load_factor=1.0)
    assert made.rows() == [(n, f"k{n % 5}", str(n)) for n in range(5, 10)]


def test_a_full_map_still_takes_keys_that_it_has() -> None:
    made = CompactedLog()
    for number in range(10):
        made.append((f"k{number % 3}", str(number)))
    made.roll()
    made.clean(dedupe_buffer_bytes=3 * ENTRY_BYTES, load_factor=1.0)
    assert made.checkpoint == 10
    assert len(made.rows()) == 3


def test_a_map_that_cannot_hold_one_batch_is_an_error_and_leaves_nothing_behind() -> None:
    made = CompactedLog()
    made.append(("a", "1"), ("b", "1"), ("c", "1"))
    made.roll()
    with pytest.raises(DedupeBufferTooSmallError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        made.clean(dedupe_buffer_bytes=2 * ENTRY_BYTES, load_factor=1.0)
    assert not [name for name in made.disk.names(FOLDER) if name.endswith(".cleaned")]


def test_damaged_sources_are_not_cleaned_into_sound_looking_batches() -> None:
    made = CompactedLog()
    made.append(("a", "1"), ("b", "1"))
    made.append(("a", "2"))
    made.roll()
    made.disk.flip_bit(FOLDER / f"{0:020d}.log", 75)
    with pytest.raises(CorruptionError):
        made.clean()
    assert not [name for name in made.disk.names(FOLDER) if name.endswith(".cleaned")]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_old_formats_become_batches_v2(magic: int, codec: CompressionType) -> None:
    made = CompactedLog()
    old = [
        Record(0, START_MS, b"a", b"1"),
        Record(1, START_MS, b"b", b"1"),
        Record(2, START_MS, b"a", None),
    ]
    made.append_bytes(build_message_set(old, magic=magic, codec=codec))
    made.append(("b", "2"), ("c", "1"))
    made.roll()
    made.clean()
    assert made.rows() == [(2, "a", None), (3, "b", "2"), (4, "c", "1")]
    assert {header.magic for header in made.batches()} == {2}
    assert made.batches()[0].codec == codec
    assert made.records()[0].timestamp == (START_MS if magic else -1)
    assert made.batches()[0].delete_horizon_ms == START_MS + DAY_MS


def test_small_neighbours_become_one_segment() -> None:
    made = CompactedLog(segment_bytes=300)
    for _ in range(3):
        for number in range(12):
            made.append((f"k{number}", "v"))
    before = len(made.log.segments)
    made.clean()
    assert len(made.log.segments) == before, "what they take now would not fit into one"
    for _ in range(3):
        made.append(("z", "1"))
        made.roll()
        made.clean()
    assert [segment.size for segment in made.log.segments] == [61, 284, 284, 286, 70, 0]
    assert len(made.rows()) == 13


def test_indexes_of_a_cleaned_segment_are_sound() -> None:
    made = CompactedLog()
    for number in range(40):
        made.append((f"k{number % 20}", "v" * 30))
    made.roll()
    made.clean()
    segment = made.log.segments[0]
    segment.check_indexes()
    assert segment.offset_index.entries > 5
    for offset in range(20, 40):
        assert made.records(offset)[0].offset == offset
    assert segment.largest().timestamp == START_MS


def test_nothing_is_dropped_for_a_record_that_is_not_on_stable_storage() -> None:
    made = CompactedLog()
    made.append(("a", "1"))
    made.disk.sync_all()
    made.append(("a", "2"))
    made.roll()
    made.append(("x", "1"))
    clean(made.disk, made.plan(), Throttle())
    made.disk.crash()
    made.reopen()
    assert (1, "a", "2") in made.rows()
