"""Times, durations and CSV files of ``consumer-groups --reset-offsets``."""

import pytest

from odradek.cli.offset_reset import parse_datetime, parse_duration, read_csv, to_csv
from odradek.cli.tool_options import ToolError
from odradek.core.ids import TopicPartition

MINUTE = 60_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1S", 1000),
        ("PT0.5S", 500),
        ("P1D", 24 * 60 * MINUTE),
        ("P1DT2H3M4.005S", (26 * 60 + 3) * MINUTE + 4005),
        ("pt15m", 15 * MINUTE),
        ("-PT1M", -MINUTE),
        ("PT-1M", -MINUTE),
        ("PT36H", 36 * 60 * MINUTE),
    ],
)
def test_durations_are_javas(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1DT", "P1Y", "PT1", "P1H", "PT1.5M"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ToolError):
        parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-14T22:13:20.000",
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T23:13:20.000+01:00",
        "2023-11-14T23:13:20.000+01",
        "2023-11-14T22:13:20",
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str) -> None:
    assert parse_datetime(text) == 1_700_000_000_000


@pytest.mark.parametrize(
    "text", ["2023-11-14", "2023-11-14 22:13", "noT", "2023-13-14T00:00:00.000"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ToolError):
        parse_datetime(text)


def test_csv_is_read_as_it_was_written() -> None:
    plans = {
        "g,1": {TopicPartition("t", 0): 4, TopicPartition("t", 1): 7},
        "h": {TopicPartition("u", 0): 0},
    }
    assert to_csv(plans, with_group=True).splitlines()[0] == '"g,1",t,0,4'
    assert read_csv(to_csv(plans, with_group=True), None) == plans
    alone = {"h": plans["h"]}
    assert to_csv(alone, with_group=False) == "u,0,0\n"
    assert read_csv('"u",0,0\n\n', "h") == alone


@pytest.mark.parametrize("text", ["t,0\n", "t,x,1\n", "t,0,1,2,3\n", "t,0,\n"])
def test_lines_that_are_no_offsets(text: str) -> None:
    with pytest.raises(ToolError, match=r"line 1 of the CSV file"):
        read_csv(text, "g")


def test_a_line_without_a_group_needs_one() -> None:
    with pytest.raises(ToolError):
        read_csv("t,0,1\n", None)
