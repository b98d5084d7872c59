"""Which clients a subscription to client metrics is for: its config ``match`` (KIP-714).

A list of ``selector=pattern``; a client is meant if all patterns match the whole of what it says
about itself, and every client is if there are none. Patterns are RE2's (``re2_patterns``): an
admin's pattern meets every client's names.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.re2_patterns import Matcher, PatternError, matcher

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


ClientMatch = Mapping[str, Matcher]


def parse_client_match(elements: Sequence[str]) -> ClientMatch:
    """Return the patterns by selector.

    Raises:
        ApiError: INVALID_CONFIG.
    """
    patterns: dict[str, Matcher] = {}
    for element in elements:
        selector, _, pattern = (part.strip() for part in element.partition("="))
        if selector not in SELECTORS or not pattern or "=" in pattern:
            raise _refusal(element, f"write one of {', '.join(sorted(SELECTORS))}, =, a pattern")
        try:
            patterns[selector] = matcher(pattern)
        except PatternError as error:
            raise _refusal(element, str(error)) from None
    return patterns


def is_match(match: ClientMatch, client: Mapping[str, str]) -> bool:
    """Whether a client is meant; what it does not say about itself matches nothing."""
    return all(
        bool(client.get(selector)) and matches(client[selector]) is not None
        for selector, matches in match.items()
    )


def _refusal(element: str, reason: str) -> ApiError:
    problem = f"Illegal client matching pattern: {element} ({reason})"
    return ApiError(ErrorCode.INVALID_CONFIG, problem)
