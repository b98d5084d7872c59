"""Regular expressions of strangers, matched by RE2: in time linear in the text, within a limit.

It is the dialect that Kafka takes for subscriptions and filters; Java's lookaround and
backreferences are refused.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from odradek.core.errors import OdradekError

PATTERN_CHARACTERS_MAX: Final = 4_096
PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20

Matcher = Callable[[str], object]
"""Gives something true if the pattern matches the whole text."""


class PatternError(OdradekError):
    """A pattern is not one, or is too much; the message says why."""


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Matcher:
    """Return what matches whole texts against a pattern.

    Raises:
        PatternError: There is no such pattern.
    """
    matches: Matcher = compiled(pattern, captures=False).fullmatch
    return matches


def compiled(pattern: str, *, captures: bool = True) -> Any:
    """Return a pattern with the methods that those of ``re`` have.

    Raises:
        PatternError: There is no such pattern.
    """
    # Imported with the first pattern: most nodes never see one.
    import re2  # type: ignore[import-untyped]

    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"longer than {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False  # it would write to stderr
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.never_capture = not captures
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(text) from None
