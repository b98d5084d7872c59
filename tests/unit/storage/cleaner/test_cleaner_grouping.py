"""Which segments are cleaned into one."""

from odradek.storage.cleaner.grouping import group_segments, index_interval_bytes
from odradek.storage.cleaner.task import SourceSegment
from odradek.storage.config import LogConfig
from tests.unit.storage.cleaner.compacted_log import compact_config


def grouped(sizes: list[int], config: LogConfig, step: int = 10) -> list[list[int]]:
    segments = [SourceSegment(slot * step, size) for slot, size in enumerate(sizes)]
    groups = group_segments(segments, len(sizes) * step, config)
    return [[each.size for each in group] for group in groups]


def test_neighbours_are_joined_while_they_fit() -> None:
    config = LogConfig(segment_bytes=100)
    assert grouped([40, 60, 1, 99, 1], config) == [[40, 60], [1, 99], [1]]
    assert grouped([500, 10, 500], config) == [[500], [10], [500]]
    assert grouped([0, 0, 0], config) == [[0, 0, 0]]
    assert grouped([], config) == []


def test_offsets_of_a_group_fit_an_int32() -> None:
    config = LogConfig(segment_bytes=100)
    assert grouped([10, 10, 10], config, step=2**30) == [[10, 10], [10]]
    assert grouped([10, 10], config, step=2**31) == [[10], [10]]


def test_indexes_of_a_group_have_room() -> None:
    config = compact_config(index_interval_bytes=10, segment_index_bytes=12 * 7)
    assert grouped([25, 25, 25], config) == [[25, 25], [25]]


def test_index_entries_move_apart_where_the_setting_would_overflow_the_index() -> None:
    config = compact_config(index_interval_bytes=10, segment_index_bytes=12 * 7)
    assert index_interval_bytes([SourceSegment(0, 10)], config) == 10
    assert index_interval_bytes([SourceSegment(0, 1000)], config) == 400
