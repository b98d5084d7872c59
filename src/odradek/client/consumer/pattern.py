"""Topics by pattern: looked after by this client, or by the coordinator."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)


class SubscriptionPattern(NamedTuple):
    """A pattern in RE2's syntax that the coordinator looks after (``group.protocol=consumer``)."""

    pattern: str


def matching(
    pattern: re.Pattern[str], topics: Iterable[tuple[str, bool]], *, exclude_internal: bool
) -> set[str]:
    """Return topics, given with whether they are internal, whose whole name matches."""
    return {
        name
        for name, is_internal in topics
        if pattern.fullmatch(name)
        and not (exclude_internal and (is_internal or name in INTERNAL_TOPICS))
    }
