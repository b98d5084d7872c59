"""Which clients a subscription to client metrics is for: its config ``match`` (KIP-714).

A list of ``selector=pattern``; a client is meant if all patterns match the whole of what it says
about itself, and every client is if there are none. Patterns are RE2's, which takes time linear in
the text: an admin's pattern meets every client's names. Java's lookaround and backreferences are
refused.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from odradek.core.errors import ApiError, ErrorCode

SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20


class Pattern(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


ClientMatch = Mapping[str, Pattern]


def parse_client_match(elements: Sequence[str]) -> ClientMatch:
    """Return the patterns by selector.

    Raises:
        ApiError: INVALID_CONFIG.
    """
    patterns: dict[str, Pattern] = {}
    for element in elements:
        selector, _, pattern = (part.strip() for part in element.partition("="))
        if selector not in SELECTORS or not pattern or "=" in pattern:
            raise _refusal(element, f"write one of {', '.join(sorted(SELECTORS))}, =, a pattern")
        patterns[selector] = _compiled(element, pattern)
    return patterns


def is_match(match: ClientMatch, client: Mapping[str, str]) -> bool:
    """Whether a client is meant; what it does not say about itself matches nothing."""
    return all(
        bool(client.get(selector)) and pattern.fullmatch(client[selector]) is not None
        for selector, pattern in match.items()
    )


def _compiled(element: str, pattern: str) -> Pattern:
    # Imported when there is a pattern, which is hardly ever.
    re2: Any = import_module("re2")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY_BYTES_MAX
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        raise _refusal(element, str(error)) from error
    return compiled


def _refusal(element: str, reason: str) -> ApiError:
    problem = f"Illegal client matching pattern: {element} ({reason})"
    return ApiError(ErrorCode.INVALID_CONFIG, problem)
