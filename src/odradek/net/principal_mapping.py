r"""From the subject of a client's certificate to a user: ``ssl.principal.mapping.rules``.

    RULE:^CN=([^,]*),OU=Service.*$/$1@service/L, DEFAULT

Rules are tried in their order, and the first whose pattern matches the whole subject counts.
``DEFAULT`` matches everything and changes nothing. What a rule makes is as in Java: ``$1`` stands
for the first group, ``$0`` for the match; a number that is no group stays as it is. ``L`` and ``U``
after the last slash make the name lower or upper case. A slash within a rule is written ``\/``.

Patterns are RE2's, so that no certificate makes one run for long; lookaround and backreferences of
Java are refused.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.core.re2_patterns import PatternError, compiled

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)")
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


class MappingRulesError(ValueError):
    """Rules are malformed; the message says where."""


class _Rule(NamedTuple):
    pattern: Any
    replacement: str
    change_case: Callable[[str], str]

    def apply(self, subject: str) -> str | None:
        if self.pattern.fullmatch(subject) is None:
            return None
        return self.change_case(self.pattern.sub(self._expand, subject))

    def _expand(self, match: Any) -> str:
        groups = len(match.groups())

        def part(reference: re.Match[str]) -> str:
            escaped, digits = reference.groups()
            if escaped is not None:
                return str(escaped)
            # The longest number that is a group; what is left of the digits is text.
            for end in range(len(digits), 0, -1):
                if int(digits[:end]) <= groups:
                    return (match.group(int(digits[:end])) or "") + str(digits[end:])
            return reference[0]

        return _REFERENCE.sub(part, self.replacement)


class PrincipalMapper:
    """Implements the rules of a listener."""

    def __init__(self, text: str) -> None:
        """Read the rules.

        Raises:
            MappingRulesError: They are malformed.
        """
        self._rules = _parse(text)

    def name_of(self, subject: str) -> str:
        """Return the name of the user.

        Raises:
            CorruptionError: No rule matches: the client must not pass as somebody else.
        """
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        raise CorruptionError(f"no rule of ssl.principal.mapping.rules matches {subject!r}")


def _parse(text: str) -> list[_Rule | None]:
    """Return the rules; None is DEFAULT."""
    rules: list[_Rule | None] = []
    position = 0
    while position < len(text.rstrip()):
        match = _RULE.match(text, position)
        if match is None:
            raise MappingRulesError(
                f"{text[position:]!r} is no rule: DEFAULT, or RULE:pattern/replacement/ with L or U"
            )
        is_default, pattern, replacement, case = match.groups()
        rules.append(None if is_default else _rule(pattern, replacement, case))
        position = match.end()
    if not rules:
        raise MappingRulesError("there is no rule")
    return rules


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        found = compiled(pattern.replace("\\/", "/"))
    except PatternError as error:
        raise MappingRulesError(f"the pattern {pattern!r}: {error}") from None
    return _Rule(found, replacement, _CASES[case])
