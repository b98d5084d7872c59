"""Offsets as Spark keeps them, and ranges cut into tasks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.ids import TopicPartition
from odradek.spark.offsets import (
    OffsetRange,
    limit_by_rate,
    offsets_json,
    parse_offsets,
    split_ranges,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_equal_offsets_have_equal_texts_in_the_form_of_sparks_kafka_source() -> None:
    offsets = {TopicPartition("t", 10): 1, TopicPartition("t", 2): 7, TopicPartition("a", 0): 3}
    text = json.dumps(offsets_json(offsets), separators=(",", ":"))
    assert text == '{"a":{"0":3},"t":{"2":7,"10":1}}'
    assert json.dumps(offsets_json(parse_offsets(json.loads(text))), separators=(",", ":")) == text


@pytest.mark.parametrize(
    "wrong", [{"t": 5}, {"t": {"0": True}}, {"t": {"0": "5"}}, {"t": {"0": -1}}]
)
def test_what_is_no_offsets_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        parse_offsets(wrong)


def test_the_rate_is_shared_by_what_each_partition_has() -> None:
    assert limit_by_rate(100, {A: 0, B: 50}, {A: 300, B: 150}) == {A: 75, B: 75}


def test_a_small_partition_is_not_starved() -> None:
    assert limit_by_rate(10, {A: 0, B: 0}, {A: 10_000, B: 1}) == {A: 9, B: 1}


def test_what_is_within_the_rate_is_left_alone() -> None:
    assert limit_by_rate(100, {A: 0, B: 5}, {A: 10, B: 5}) == {A: 10, B: 5}


def test_without_options_a_partition_is_a_task_and_empty_ones_are_none() -> None:
    ranges = [OffsetRange(A, 5, 9), OffsetRange(B, 3, 3)]
    assert split_ranges(ranges, partitions_min=None, records_max=None) == [OffsetRange(A, 5, 9)]


def test_records_max_bounds_every_task() -> None:
    tasks = split_ranges([OffsetRange(A, 0, 10)], partitions_min=None, records_max=4)
    assert tasks == [OffsetRange(A, 0, 3), OffsetRange(A, 3, 6), OffsetRange(A, 6, 10)]


def test_partitions_min_cuts_the_large_ones() -> None:
    ranges = [OffsetRange(A, 0, 90), OffsetRange(B, 0, 10)]
    tasks = split_ranges(ranges, partitions_min=4, records_max=None)
    assert [each.size for each in tasks if each.partition == A] == [30, 30, 30]
    assert [each for each in tasks if each.partition == B] == [OffsetRange(B, 0, 10)]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6),
    st.none() | st.integers(1, 20),
    st.none() | st.integers(1, 500),
)
def test_tasks_cover_every_offset_once(
    sizes: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = [
        OffsetRange(TopicPartition("t", number), start, start + size)
        for number, (start, size) in enumerate(sizes)
    ]
    tasks = split_ranges(ranges, partitions_min=partitions_min, records_max=records_max)
    for whole in ranges:
        parts = [each for each in tasks if each.partition == whole.partition]
        covered = [offset for part in parts for offset in range(part.start, part.end)]
        assert covered == list(range(whole.start, whole.end))
    assert all(each.size > 0 for each in tasks)
    if records_max is not None:
        assert all(each.size <= records_max for each in tasks)
