"""The settings of a consumer, with Kafka's names and defaults, and what their texts mean.

Two are our own: ``queued.max.bytes``, how much may wait, fetched and not yet handed over; and
``surface.retriable.errors``, whether ``poll`` raises what will be tried again anyway.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.client.consumer.assignors import ASSIGNORS, Assignor
from odradek.client.errors import ConfigurationError
from odradek.client.settings import COMMON, Definition, Settings
from odradek.wire.sasl.login import login_from

EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
MAX_TIMESTAMP: Final = -3

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_MIB: Final = 1024 * 1024
_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE
)

DEFINITIONS: Final[Mapping[str, Definition]] = {
    **COMMON,
    "group.id": Definition(""),
    "group.instance.id": Definition(""),
    "group.protocol": Definition("classic", choices=("classic", "consumer")),
    "group.remote.assignor": Definition(""),
    "partition.assignment.strategy": Definition("range,cooperative-sticky"),
    "session.timeout.ms": Definition(45_000, 1),
    "heartbeat.interval.ms": Definition(3_000, 1),
    "max.poll.interval.ms": Definition(300_000, 1),
    "max.poll.records": Definition(500, 1),
    "enable.auto.commit": Definition(True),
    "auto.commit.interval.ms": Definition(5_000, 1),
    "auto.offset.reset": Definition("latest"),
    "isolation.level": Definition(
        "read_uncommitted", choices=("read_uncommitted", "read_committed")
    ),
    "client.rack": Definition(""),
    "fetch.min.bytes": Definition(1, 0),
    "fetch.max.bytes": Definition(50 * _MIB, 1),
    "fetch.max.wait.ms": Definition(500, 0),
    "max.partition.fetch.bytes": Definition(1 * _MIB, 1),
    "queued.max.bytes": Definition(64 * _MIB, 1),
    "check.crcs": Definition(True),
    "surface.retriable.errors": Definition(False),
    "exclude.internal.topics": Definition(True),
}


class ResetPolicy(NamedTuple):
    """Where to begin without a valid offset: a timestamp for ListOffsets, or an age, or nowhere."""

    timestamp: int | None = None
    age_ms: int | None = None

    @property
    def is_none(self) -> bool:
        return self.timestamp is None and self.age_ms is None

    def timestamp_at(self, wall_ms: int) -> int:
        if self.age_ms is not None:
            return max(0, wall_ms - self.age_ms)
        assert self.timestamp is not None, "there is nowhere to reset to"
        return self.timestamp


EARLIEST: Final = ResetPolicy(EARLIEST_TIMESTAMP)
LATEST: Final = ResetPolicy(LATEST_TIMESTAMP)
NOWHERE: Final = ResetPolicy()
_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": NOWHERE}


def consumer_settings(given: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Settings:
    """Check settings and how they go together.

    Raises:
        ConfigurationError: Something is unknown, wrong, or does not go with something else.
    """
    settings = Settings(DEFINITIONS, given, **keywords)
    reset_policy(settings)
    assignors(settings)
    login_from(settings)
    if settings.text("group.protocol") == "consumer":
        _check_consumer_protocol(settings)
    elif settings.integer("heartbeat.interval.ms") >= settings.integer("session.timeout.ms"):
        raise ConfigurationError("heartbeat.interval.ms has to be less than session.timeout.ms")
    if settings.text("group.instance.id") and not settings.text("group.id"):
        raise ConfigurationError("group.instance.id needs a group.id")
    return settings


def _check_consumer_protocol(settings: Settings) -> None:
    for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
        if name in settings.given:
            raise ConfigurationError(f"{name} is the group's own with group.protocol=consumer")


def reset_policy(settings: Settings) -> ResetPolicy:
    text = settings.text("auto.offset.reset")
    if text in _RESETS:
        return _RESETS[text]
    name, is_pair, duration = text.partition(":")
    if name != "by_duration" or not is_pair:
        raise ConfigurationError(
            f"auto.offset.reset: {text!r} is not earliest, latest, none or by_duration:PT1H"
        )
    return ResetPolicy(age_ms=_duration_ms(duration))


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ConfigurationError(f"auto.offset.reset: {text!r} is not a duration like P1DT2H3M4S")
    days, hours, minutes, seconds = (int(match[group] or 0) for group in range(1, 5))
    milliseconds = int((match[5] or "0").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + milliseconds


def assignors(settings: Settings) -> list[Assignor]:
    """Return the assignors of a classic group, the favourite one first."""
    names = [each.strip() for each in settings.text("partition.assignment.strategy").split(",")]
    for name in names:
        if name not in ASSIGNORS:
            raise ConfigurationError(
                f"partition.assignment.strategy: {name!r} is not one of {', '.join(ASSIGNORS)}"
            )
    return [ASSIGNORS[name] for name in dict.fromkeys(names)]


def is_read_committed(settings: Settings) -> bool:
    return settings.text("isolation.level") == "read_committed"
