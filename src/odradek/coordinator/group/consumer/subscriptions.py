"""What the members of a group subscribe to: topics by name, topics by regular expression.

Regular expressions are RE2's, matched against whole names as Kafka does (RE2/J ``matches``). A new
one is resolved in the heartbeat that brings it, so that the first answer already has an
assignment; Kafka does it behind the member's back. The ones already known are looked at again when
topics were created or ``group.consumer.regex.refresh.interval.ms`` has passed, at most every ten
seconds. Who may see which topic is not asked here: the view of topics decides that.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final

from odradek.coordinator.group.consumer.member import Member
from odradek.coordinator.group.consumer.records import ResolvedRegex
from odradek.coordinator.group.topic_view import TopicView
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.re2_patterns import PATTERN_CHARACTERS_MAX, PatternError, matcher

REGEX_REFRESH_INTERVAL_MIN_MS: Final = 10_000
REGEXES_PER_REFRESH_MAX: Final = 16
"""How many are resolved in one heartbeat, each against all names; the next one goes on."""

_NO_TOPICS: Final[frozenset[str]] = frozenset()


@dataclass
class Subscriptions:
    """An index over members, kept by telling it of every member before and after a change."""

    names: Counter[str] = field(default_factory=Counter)
    """How many members subscribe to a topic by its name."""
    regexes: Counter[str] = field(default_factory=Counter)
    resolved: dict[str, ResolvedRegex] = field(default_factory=dict)

    def copy(self) -> "Subscriptions":
        return Subscriptions(self.names.copy(), self.regexes.copy(), self.resolved.copy())

    def change(self, old: Member | None, new: Member | None) -> None:
        if old is not None:
            _take(self.names, old.subscribed_topic_names)
            _take(self.regexes, _regexes(old))
        if new is not None:
            self.names.update(new.subscribed_topic_names)
            self.regexes.update(_regexes(new))

    def topics_of(self, member: Member) -> frozenset[str]:
        """Return the topics a member subscribes to, by whichever means; not all need exist."""
        resolved = self.resolved.get(member.subscribed_topic_regex)
        if resolved is None:
            return member.subscribed_topic_names
        if not member.subscribed_topic_names:
            return resolved.topics
        return member.subscribed_topic_names | resolved.topics

    def topic_names(self) -> set[str]:
        return set(self.names).union(*(each.topics for each in self.resolved.values()))

    def __contains__(self, topic: str) -> bool:
        return topic in self.names or any(topic in each.topics for each in self.resolved.values())

    def due_regexes(self, topics: TopicView, now_ms: int, interval_ms: int) -> list[str]:
        """Return which expressions to resolve again, the oldest first, no more than a few."""
        oldest = nsmallest(
            REGEXES_PER_REFRESH_MAX,
            self.resolved,
            key=lambda each: self.resolved[each].timestamp_ms,
        )
        return [each for each in oldest if self._is_due(each, topics, now_ms, interval_ms)]

    def _is_due(self, regex: str, topics: TopicView, now_ms: int, interval_ms: int) -> bool:
        resolved = self.resolved[regex]
        if now_ms <= resolved.timestamp_ms + REGEX_REFRESH_INTERVAL_MIN_MS:
            return False
        return (
            resolved.version < topics.names_version or now_ms > resolved.timestamp_ms + interval_ms
        )


def _regexes(member: Member) -> tuple[str, ...]:
    return (member.subscribed_topic_regex,) if member.subscribed_topic_regex else ()


def _take(counts: Counter[str], keys: Iterable[str]) -> None:
    for key in keys:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


def resolve(regex: str, topics: TopicView, now_ms: int) -> ResolvedRegex:
    """Find the topics whose whole name matches.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        matches = matcher(regex)
    except PatternError as error:
        shown = regex if len(regex) <= PATTERN_CHARACTERS_MAX else regex[:32] + "…"
        raise _invalid(shown, str(error)) from None
    found = frozenset(name for name in topics.names() if matches(name))
    return ResolvedRegex(found or _NO_TOPICS, topics.version, now_ms)


def _invalid(regex: str, reason: str) -> ApiError:
    problem = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, problem)
