"""Something that happened, as the log shows it: a name and fields. ``broker/event_log`` formats it.

A field never breaks a line, has no control characters and is cut after FIELD_CHARACTERS_MAX.
"""

import json
from typing import Final

FIELD_CHARACTERS_MAX: Final = 2_000
ELEMENTS_MAX: Final = 100
_RESERVED: Final = frozenset({"ts", "level", "logger", "event", "traceback"})


class Event:
    """A log message with fields: ``logger.info(Event("started", node_id=1))``."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, **fields: object) -> None:
        assert _RESERVED.isdisjoint(fields)
        self.name = name
        self.fields = {key: _plain(value) for key, value in fields.items()}

    def __str__(self) -> str:
        """Return what people read, also where somebody else formats the line."""
        return " ".join([self.name, *(f"{k}={_shown(v)}" for k, v in self.fields.items())])


Field = str | int | float | None | list[str]


def _plain(value: object) -> Field:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        left_out = len(value) - ELEMENTS_MAX
        elements = [cut(str(each)) for each in value[:ELEMENTS_MAX]]
        return elements if left_out <= 0 else [*elements, f"… {left_out} more"]
    return cut(str(value))


def cut(text: str, characters_max: int = FIELD_CHARACTERS_MAX) -> str:
    """Return no more of a text than a line of the log should have."""
    return text if len(text) <= characters_max else f"{text[:characters_max]}…"


def _shown(value: Field) -> str:
    if isinstance(value, list):
        return _quoted(",".join(value))
    if isinstance(value, str):
        return _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    if not text.isprintable():
        return json.dumps(text)
    if not text or any(c in ' "=\\' for c in text):
        return json.dumps(text, ensure_ascii=False)
    return text
