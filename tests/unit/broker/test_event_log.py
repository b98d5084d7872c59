"""Log lines: for people and as JSON, whatever strangers put into the fields."""

import io
import json
import logging
import re
from pathlib import PurePath

import pytest

from odradek.broker.event_log import LogFormat, logging_to
from odradek.core.event import FIELD_CHARACTERS_MAX, Event

LOGGER = logging.getLogger("odradek.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(event: object, log_format: LogFormat, error: Exception | None = None) -> str:
    stream = io.StringIO()
    with logging_to(stream, log_format, "info"):
        LOGGER.warning(event, exc_info=error)
    return stream.getvalue()


def test_a_line_for_people() -> None:
    line = written(Event("started", node_id=1, dirs=["/a", "/b"], who=None, ok=True), "human")
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING  odradek\.test: (.*)\n"
    match = re.fullmatch(pattern, line)
    assert match is not None
    assert match[1] == "started node_id=1 dirs=/a,/b who=null ok=true"


def test_a_line_for_machines() -> None:
    event = Event("started", node_id=1, dirs=("/a", "/b"), path=PurePath("/x"), who=None)
    line = json.loads(written(event, "json"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("ts"))
    assert line == {
        "level": "warning",
        "logger": "odradek.test",
        "event": "started",
        "node_id": 1,
        "dirs": ["/a", "/b"],
        "path": "/x",
        "who": None,
    }


@pytest.mark.parametrize(
    "text", ["a\nb", "\x1b[31m", "x y", 'q"', "k=v", "", "\u2028", "\x85", "ü"]
)
def test_a_field_never_leaves_its_line(text: str) -> None:
    line = written(Event("e", field=text), "human")
    assert line.endswith("\n")
    shown = line.removesuffix("\n").partition(" field=")[2]
    assert shown.isprintable()
    assert (json.loads(shown) if shown.startswith('"') else shown) == text
    assert json.loads(written(Event("e", field=text), "json"))["field"] == text


def test_long_fields_are_cut() -> None:
    line = json.loads(written(Event("e", text="x" * 10**6, many=["x"] * 10**5), "json"))
    assert len(line["text"]) == FIELD_CHARACTERS_MAX + 1
    assert line["many"][-1] == "… 99900 more"


def test_a_traceback_cannot_pass_as_a_line() -> None:
    try:
        raise ValueError("bad\n2026-01-01T00:00:00.000Z INFO odradek.node: all is well")
    except ValueError as error:
        human, machine = (
            written(Event("failed"), "human", error),
            written(Event("failed"), "json", error),
        )
    first, *others = human.splitlines()
    assert first.endswith("odradek.test: failed")
    assert others
    assert all(line.startswith("    ") for line in others)
    assert len(machine.splitlines()) == 1
    assert "ValueError: bad" in json.loads(machine)["traceback"]


def test_what_others_log_comes_in_the_same_form() -> None:
    stream = io.StringIO()
    with logging_to(stream, "json", "info"):
        logging.getLogger("asyncio").error("task %s failed", 7)
        logging.getLogger("asyncio").info("using a selector")
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["logger"], line["event"]) == ("asyncio", "task 7 failed")


def test_levels_below_the_one_asked_for_are_not_written() -> None:
    stream = io.StringIO()
    with logging_to(stream, "human", "warning"):
        LOGGER.info(Event("not this"))
        LOGGER.error(Event("this"))
    LOGGER.error(Event("not after the end"))
    assert [line.rpartition(": ")[2] for line in stream.getvalue().splitlines()] == ["this"]


def test_only_a_terminal_gets_colours() -> None:
    for stream, coloured in ((Terminal(), True), (io.StringIO(), False)):
        with logging_to(stream, "human", "info"):
            LOGGER.error(Event("e"))
        assert ("\x1b[" in stream.getvalue()) == coloured
