"""Quantiles from fixed buckets are close to the true ones; windows forget what is old."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.metrics.histogram import BOUNDS_US, Histogram, Reading, Window, quantiles

SHARES = [0.5, 0.75, 0.95, 0.98, 0.99, 0.999]
ERROR_MAX = 0.19
WITHIN_US = BOUNDS_US[-1]


def true_quantile(values: list[int], share: float) -> int:
    """The smallest value that at least this share of all is not above."""
    ordered = sorted(values)
    rank = next(i for i in range(1, len(ordered) + 1) if i >= share * len(ordered))
    return ordered[rank - 1]


@given(st.lists(st.integers(0, WITHIN_US), min_size=1, max_size=200))
def test_a_quantile_is_off_by_at_most_a_bucket(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    assert histogram.sum_us == sum(values)
    assert sum(histogram.counts) == len(values)
    for share, found in zip(SHARES, quantiles(histogram.counts, SHARES), strict=True):
        true = true_quantile(values, share)
        # In small numbers, where buckets are a microsecond wide, by that microsecond.
        assert true * (1 - ERROR_MAX) - 1 <= found <= true * (1 + ERROR_MAX) + 1


def test_times_over_the_last_bound_are_counted_and_shown_as_the_last_bound() -> None:
    histogram = Histogram()
    histogram.record(10**12)
    assert quantiles(histogram.counts, [0.5, 0.999]) == [WITHIN_US, WITHIN_US]


def test_without_observations_a_quantile_is_zero() -> None:
    assert quantiles(Histogram().counts, SHARES) == [0.0] * len(SHARES)


def test_a_window_spans_one_to_two_spans_however_often_it_is_asked() -> None:
    window = Window(Reading(0, (0,)), span_ms=100)
    # The total is the time itself, so growth is the width of the window.
    for now_ms in range(1, 1000, 7):
        since_ms, (grown,) = window.growth([now_ms], now_ms)
        assert grown == now_ms - since_ms
        assert grown <= 207
        assert grown >= min(now_ms, 100)


def test_a_window_that_nobody_asked_for_long_reaches_back_to_the_last_question() -> None:
    window = Window(Reading(0, (0,)), span_ms=100)
    window.growth([5], 150)
    window.growth([6], 160)
    assert window.growth([50], 5000) == (150, [45])
    assert window.growth([51], 5001) == (150, [46])
    assert window.growth([60], 5100) == (5000, [10])
