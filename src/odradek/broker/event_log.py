"""Structured logs: events with fields, a line each, for people or as JSON. Not Kafka's kind of log.

The standard library's ``logging`` carries it, under loggers ``odradek.<area>``, so a program that
embeds a broker sees events wherever its own lines go. Only the command sets up a handler::

    2026-05-04T12:00:00.123Z INFO     odradek.node: started node_id=1 listeners=PLAINTEXT://:9092
    {"ts":"2026-05-04T12:00:00.123Z","level":"info","logger":"odradek.node","event":"started",…}

Much of what is logged comes from strangers. A field never breaks a line, has no control characters
and is cut after FIELD_CHARACTERS_MAX; what is more than a line, a traceback, is indented, so that
nothing in it passes as a line of its own. No record of a topic and no sensitive config is logged.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from odradek.core.event import Event, cut

LogFormat = Literal["human", "json"]

TRACEBACK_CHARACTERS_MAX: Final = 20_000
_COLOURS: Final = {
    logging.DEBUG: "\x1b[2m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}
_RESET: Final = "\x1b[0m"


def _timestamp(record: logging.LogRecord) -> str:
    """Return RFC 3339 in UTC, to the millisecond."""
    text = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class _Formatter(logging.Formatter):
    def _traceback(self, record: logging.LogRecord) -> str | None:
        if not record.exc_info:
            return None
        text = self.formatException(record.exc_info)
        # The end says what it was.
        return text if len(text) <= TRACEBACK_CHARACTERS_MAX else text[-TRACEBACK_CHARACTERS_MAX:]


class HumanFormatter(_Formatter):
    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname:<8}"
        colour = _COLOURS.get(record.levelno) if self._colour else None
        if colour is not None:
            level = f"{colour}{level}{_RESET}"
        lines = [f"{_timestamp(record)} {level} {record.name}: {record.getMessage()}"]
        traceback = self._traceback(record)
        if traceback is not None:
            lines.append(traceback)
        return "\n    ".join("\n".join(lines).splitlines())


class JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.msg
        line: dict[str, object] = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(message, Event):
            line |= {"event": message.name, **message.fields}
        else:  # not ours: asyncio's
            line["event"] = cut(record.getMessage())
        traceback = self._traceback(record)
        if traceback is not None:
            line["traceback"] = traceback
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


@contextmanager
def logging_to(stream: TextIO, log_format: LogFormat, level: str) -> Iterator[None]:
    """Write to ``stream`` what is logged meanwhile: ours from ``level`` on, others' warnings."""
    handler = logging.StreamHandler(stream)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(HumanFormatter(colour=stream.isatty()))
    root, ours = logging.getLogger(), logging.getLogger("odradek")
    level_before = ours.level
    root.addHandler(handler)
    ours.setLevel(level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(level_before)
        handler.close()
