"""How far the configs of one group may go: between bounds that the broker sets, as in Kafka.

A change beyond them is refused. A value that is there already, because the bounds were others when
it was set, counts as the nearest one that is allowed.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.core.config.broker_config import BrokerConfig

_KINDS: Final = ("consumer", "share", "streams")
_BOUNDED: Final = (
    *(
        (kind, what)
        for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
        for kind in _KINDS
    ),
    ("share", "record.lock.duration.ms"),
    ("share", "delivery.count.limit"),
    ("share", "partition.max.record.locks"),
)


class Bounds(NamedTuple):
    """The broker's configs that bound one of a group's; None where there is no such bound."""

    least: str | None
    most: str


BOUNDS: Final[Mapping[str, Bounds]] = {
    **{
        f"{kind}.{what}": Bounds(f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
        for kind, what in _BOUNDED
    },
    "streams.num.standby.replicas": Bounds(None, "group.streams.max.standby.replicas"),
}
"""By the name of the group's config."""


def find_refusals(configs: Mapping[str, str], broker: BrokerConfig) -> Iterator[str]:
    """Yield what speaks against a group's configs, each of which is allowed by itself."""
    values = {name: int(configs[name]) for name in BOUNDS if name in configs}
    for name, value in values.items():
        least, most = BOUNDS[name]
        if least is not None and value < broker.integer(least):
            yield f"{name} must be greater than or equal to {least}"
        if value > broker.integer(most):
            yield f"{name} must be less than or equal to {most}"
    for kind in _KINDS:
        beat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        beat_ms, session_ms = (
            values.get(name, broker.integer(f"group.{name}")) for name in (beat, session)
        )
        if session_ms <= beat_ms:
            yield f"{session} must be greater than {beat}"


def clamp(configs: Mapping[str, str], broker: BrokerConfig) -> dict[str, int]:
    """Return those configs of a group that have bounds, each within them."""
    clamped = {}
    for name, (least, most) in BOUNDS.items():
        if name in configs:
            value = min(int(configs[name]), broker.integer(most))
            clamped[name] = value if least is None else max(value, broker.integer(least))
    return clamped
