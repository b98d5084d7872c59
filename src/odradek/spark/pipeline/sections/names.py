"""Names in a pipeline's file: what they may be made of, and what can be referred to by them."""

import re
from collections.abc import Callable
from typing import Final

from odradek.spark.pipeline.definition import SOURCE
from odradek.spark.pipeline.yaml_positions import Section, nearest

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
LETTERS: Final = "must be of letters, digits"
INTERVAL: Final = re.compile(
    r"\d+(\.\d+)?\s*(millisecond|second|minute|hour|day|week)s?", re.IGNORECASE
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class Names:
    """The source, tables and steps, in the order of the file."""

    def __init__(self) -> None:
        self._streams: list[str] = [SOURCE]
        self._known: list[str] = [SOURCE]

    @property
    def last_step(self) -> str:
        """What something is about that does not say: the last step, or the source."""
        return self._streams[-1]

    def learn(self, name: str, problem: Callable[[str], None], *, is_table: bool = False) -> None:
        if not _IDENTIFIER.fullmatch(name):
            problem(f"{LETTERS} and '_', for SQL to read it, not {name!r}")
        elif name.lower() in {each.lower() for each in self._known}:
            problem(f"{name!r} is the name of something else already")
        self._known.append(name)
        if not is_table:
            self._streams.append(name)

    def check(self, section: Section, field: str, read: str) -> None:
        """Complain of a name that is neither the source nor a table nor a step so far."""
        # SQL does not care for case.
        if read.lower() not in {each.lower() for each in self._known}:
            hint = nearest(read, self._known) or f"; there are: {', '.join(self._known)}"
            section.problem(field, f"there is no step or table {read!r} before this one{hint}")

    def referred_step(self, section: Section) -> str:
        """Return the step that an expectation or a sink is about."""
        step = section.text("step") or self.last_step
        if step not in self._streams:
            hint = nearest(step, self._streams) or f"; there are: {', '.join(self._streams)}"
            section.problem("step", f"there is no step {step!r}{hint}")
        return step
