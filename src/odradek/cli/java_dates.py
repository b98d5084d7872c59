"""Times in the patterns of Java's SimpleDateFormat, as far as digits, months and weekdays go."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final

_TOKENS: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FIELDS: Final[dict[str, Callable[[datetime], int]]] = {
    "y": lambda at: at.year,
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "H": lambda at: at.hour,
    "k": lambda at: at.hour or 24,
    "h": lambda at: at.hour % 12 or 12,
    "K": lambda at: at.hour % 12,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "S": lambda at: at.microsecond // 1000,
}
_NAMES: Final = {"M": ("%b", "%B"), "E": ("%a", "%A"), "a": ("%p", "%p"), "Z": ("%z", "%z")}
_NAME_LENGTH: Final = {"M": 3, "E": 1, "a": 1, "Z": 1}


class JavaDateFormat:
    def __init__(self, pattern: str) -> None:
        """Take a pattern apart.

        Raises:
            ValueError: There is something in it that is not known.
        """
        self._parts: list[Callable[[datetime], str]] = []
        position = 0
        while position < len(pattern):
            token = _TOKENS.match(pattern, position)
            if token is None:
                raise ValueError(f"{pattern!r}: the quote at {position} has no end")
            self._parts.append(_part(token))
            position = token.end()

    def format(self, time_ms: int) -> str:
        """Return a time, in milliseconds since 1970, as it is here."""
        at = datetime.fromtimestamp(time_ms / 1000).astimezone()
        return "".join(part(at) for part in self._parts)


def _part(token: re.Match[str]) -> Callable[[datetime], str]:
    quoted, letter = token[1], token[2]
    if letter is None:
        text = token[0] if quoted is None else quoted.replace("''", "'") or "'"
        return lambda _: text
    width = len(token[0])
    if letter in _NAMES and width >= _NAME_LENGTH[letter]:
        directive = _NAMES[letter][width > 3]
        return lambda at: at.strftime(directive)
    if letter not in _FIELDS:
        raise ValueError(f"the letter {letter} of date formats is not known here")
    field = _FIELDS[letter]
    if letter == "y" and width == 2:
        return lambda at: f"{at.year % 100:02}"
    return lambda at: str(field(at)).rjust(width, "0")
