"""What the life of a broker is made of: states, settings, and events for the driver."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias


class BrokerState(IntEnum):
    """Kafka's numbers, as the metric ``BrokerState`` shows them."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class LifecycleSettings(NamedTuple):
    heartbeat_interval_ms: int = 2_000  # broker.heartbeat.interval.ms
    session_ms: int = 9_000  # broker.session.timeout.ms, which is the controller's
    registration_ms_max: int = 60_000  # initial.broker.registration.timeout.ms
    directory_failure_ms_max: int = 30_000  # log.dir.failure.timeout.ms
    controlled_shutdown: bool = True  # controlled.shutdown.enable
    shutdown_silence_ms_max: int = 5_000
    """How long a broker that wants to leave waits for a controller that does not answer."""
    shutdown_ms_max: int = 300_000
    """How long it waits for one that answers and does not let it go. Kafka waits as long."""


# What happened, for the driver.


@dataclass(frozen=True, slots=True)
class Registered:
    epoch: int


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """Something keeps the broker from being registered, and may pass."""

    why: str


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All metadata up to the broker's own registration is applied: logs may be loaded."""


@dataclass(frozen=True, slots=True)
class Unfenced:
    """Clients may be served."""

    again: bool


@dataclass(frozen=True, slots=True)
class Unheard:
    """No controller has answered for as long as a session lasts: the broker is fenced by now."""

    why: str


@dataclass(frozen=True, slots=True)
class FencedAgain:
    """The controller did not hear of this broker in time."""

    why: str


@dataclass(frozen=True, slots=True)
class MayStop:
    """The broker may go: all that it led has other leaders, if ``granted``."""

    granted: bool
    why: str


@dataclass(frozen=True, slots=True)
class MustStop:
    """The broker cannot go on."""

    why: str


Event: TypeAlias = (
    Registered | StillWaiting | CaughtUp | Unfenced | Unheard | FencedAgain | MayStop | MustStop
)
