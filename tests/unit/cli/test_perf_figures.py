"""Figures, dates, payloads and plots of the performance tools."""

import random
import time
from pathlib import Path

import pytest

from odradek.cli.consumer_perf_test import Count, rates
from odradek.cli.java_dates import JavaDateFormat
from odradek.cli.payloads import numbers, random_letters, read_payloads
from odradek.cli.producer_perf_test import repeat_names
from odradek.cli.producer_stats import ProducerStats, percentiles
from odradek.cli.text_plot import bar, bar_chart
from odradek.cli.tool_options import ToolError


def test_windows_and_total_read_as_kafkas() -> None:
    said: list[str] = []
    stats = ProducerStats(4, 0, 1000, said.append)
    for latency_ms, now_ms in ((10, 500), (30, 1000), (20, 1500), (1, 1600)):
        stats.add(latency_ms, 2**20, now_ms)
    stats.report_total(2000)
    assert said == [
        "2 records sent, 2.0 records/sec (2.00 MB/sec), 20.0 ms avg latency, 30.0 ms max latency.",
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 15.25 ms avg latency, 30.00 ms max"
        " latency, 20 ms 50th, 30 ms 95th, 30 ms 99th, 30 ms 99.9th.",
    ]


def test_a_steady_state_is_told_once_and_the_rest_is_silent() -> None:
    said: list[str] = []
    steady = ProducerStats(4, 0, 1000, said.append, is_steady_state=True)
    silent = ProducerStats(4, 0, 1000, said.append)
    silent.is_silent = True
    for now_ms in (1000, 2000):
        steady.add(1, 1, now_ms)
        silent.add(1, 1, now_ms)
    assert [line for line in said if "steady" in line] == ["In steady state."]
    assert len(said) == 3
    steady.report_total(2000)
    assert said[-1].startswith("2 steady state records sent, 1.000000 records/sec")


def test_nothing_delivered_is_no_division_by_zero() -> None:
    said: list[str] = []
    ProducerStats(4, 0, 1000, said.append).report_total(0)
    assert said[0].startswith("0 records sent, 0.000000 records/sec")


def test_many_records_are_sampled() -> None:
    stats = ProducerStats(1_000_000, 0, 10**9, lambda _: None)
    for number in range(10):
        stats.add(number, 1, 0)
    assert stats._samples == [0, 2, 4, 6, 8]


def test_percentiles_are_kafkas() -> None:
    assert percentiles(range(1000, 0, -1), (0.5, 0.95, 0.999)) == [501, 951, 1000]
    assert percentiles([], (0.5,)) == [0]


def test_rates_of_a_consumer() -> None:
    start, end = Count(1000, 10, 0), Count(3000, 30, 2**21)
    assert (
        rates(start, end, end, 1000) == "2.0000, 1.0000, 30, 10.0000, 1000, 1000, 2.0000, 20.0000"
    )
    assert rates(start, end, end, 2000).endswith("2000, 0, 0.0000, 0.0000")


def at(pattern: str) -> str:
    moment = time.mktime((2026, 3, 5, 14, 7, 9, 0, 0, -1))
    return JavaDateFormat(pattern).format(int(moment) * 1000 + 42)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd HH:mm:ss:SSS", "2026-03-05 14:07:09:042"),
        ("d.M.yy h 'o''clock' a", "5.3.26 2 o'clock PM"),
        ("EEE, dd MMM yyyy ''HH", "Thu, 05 Mar 2026 '14"),
        ("EEEE MMMM", "Thursday March"),
        ("", ""),
    ],
)
def test_dates_follow_javas_patterns(pattern: str, text: str) -> None:
    assert at(pattern) == text


@pytest.mark.parametrize("pattern", ["'open", "GG"])
def test_patterns_that_are_none_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"quote|letter"):
        JavaDateFormat(pattern)


def test_payloads_are_letters_or_numbers() -> None:
    payload = random_letters(1000, random.Random(0))
    assert len(payload(0)) == 1000
    assert payload(1) != payload(2)
    assert set(payload(3)) <= set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert numbers(12) == b"12"


def test_payloads_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_bytes(b"one\ntwo\n")
    assert read_payloads(file, "\\n") == [b"one", b"two"]
    assert read_payloads(file, "n") == [b"o", b"e\ntwo\n"]
    file.write_bytes(b"")
    with pytest.raises(ToolError, match="empty"):
        read_payloads(file, "\\n")
    with pytest.raises(ToolError, match="does not exist"):
        read_payloads(tmp_path / "none", "\\n")


def test_an_option_of_many_values_is_repeated() -> None:
    given = "--topic t --producer-props a=1 b=2 --command-property c=3 --throughput -1".split()
    repeated = (
        "--topic t --producer-props a=1 --producer-props b=2 --command-property c=3 --throughput -1"
    )
    assert repeat_names(given) == repeated.split()


def test_bars_are_as_long_as_their_share() -> None:
    assert bar(1, 4) == "████"
    assert bar(0, 4) == "    "
    assert bar(0.5, 1) == "▌"
    assert bar_chart("t", {"1": 1.0, "16": 2.0}, 2) == ["t", " 1 │█  1.00", "16 │██ 2.00"]
    assert bar_chart("t", {"1": 0.0}, 2) == ["t", "1 │   0.00"]
