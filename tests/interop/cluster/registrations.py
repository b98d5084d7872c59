"""A broker that registers and sends heartbeats, as an Odradek broker does, to any controller."""

from collections.abc import Mapping
from itertools import count
from typing import Any, Final, Protocol, TypeVar

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import ClusterImage
from odradek.metadata.features import ANNOUNCED_FEATURES
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from odradek.protocol.message import Message
from tests.interop.kafka_peer.node import CLUSTER_ID

R = TypeVar("R", bound=Message)
Ranges = Mapping[str, tuple[int, int]]

FEATURES: Final[Ranges] = {name: (each.min, each.max) for name, each in ANNOUNCED_FEATURES.items()}
PLAINTEXT: Final = Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)
_FIRST_ID = 10_000
_numbers = count(_FIRST_ID)
BEATS_MAX: Final = 200
"""Kafka's controller gives itself half of broker.heartbeat.interval.ms for an answer: on a busy
machine it needs more for its first one, and a broker asks again."""


class Asked(Protocol):
    """A controller: a real one, or ours."""

    def ask(self, request: Message, response: type[R], version: int | None = None) -> R: ...

    def catch_up(self) -> ClusterImage:
        """Return what is committed now."""


def new_id() -> int:
    """Return an id that no broker of this run has had."""
    return next(_numbers)


def new_uuid() -> Uuid:
    """Return an id of a directory or an incarnation that nothing of this run has had."""
    return Uuid(b"tests of" + next(_numbers).to_bytes(8, "big"))


def registration(features: Ranges = FEATURES, **changes: Any) -> BrokerRegistrationRequest:
    """Return the request of a new broker, changed in what a test is about."""
    fields = {
        "broker_id": new_id(),
        "cluster_id": CLUSTER_ID,
        "incarnation_id": new_uuid(),
        "listeners": [PLAINTEXT],
        "features": [
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features.items()
        ],
        "rack": None,
        "log_dirs": [new_uuid()],
        "previous_broker_epoch": -1,
    }
    return BrokerRegistrationRequest(**{**fields, **changes})


class Registered:
    """A broker that has registered, and its heartbeats."""

    def __init__(self, controller: Asked, **changes: Any) -> None:
        self.controller = controller
        self.request = registration(**changes)
        self.epoch = self.ask().broker_epoch

    def ask(self) -> BrokerRegistrationResponse:
        return self.controller.ask(self.request, BrokerRegistrationResponse)

    def beat(self, offset: int, *, fence: bool = False, **changes: Any) -> list[str]:
        """Send a heartbeat; return the flags of the response, or its error."""
        request = BrokerHeartbeatRequest(
            **{
                "broker_id": self.request.broker_id,
                "broker_epoch": self.epoch,
                "current_metadata_offset": offset,
                "want_fence": fence,
                **changes,
            }
        )
        for _ in range(BEATS_MAX):
            answer = self.controller.ask(request, BrokerHeartbeatResponse)
            if answer.error_code != ErrorCode.REQUEST_TIMED_OUT:
                break
        if answer.error_code:
            return [ErrorCode(answer.error_code).name]
        flags = {
            "caught up": answer.is_caught_up,
            "fenced": answer.is_fenced,
            "shut down": answer.should_shut_down,
        }
        return [name for name, flag in flags.items() if flag]
