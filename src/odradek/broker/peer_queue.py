"""Requests to one other broker, made of what has gathered for it: one is under way at a time.

What comes while a request is under way goes with the next one, so its cost is shared by all that
waits, and a slow peer gets larger requests instead of more of them. A request leaves in the next
turn of the loop: one turn may bring many things for the same broker.

A peer that is fenced, or gone, is given up at once: what it has is reported as lost. Without that a
process that is stopped would keep its request until the time of the request is over.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from odradek.core.errors import ErrorCode
from odradek.protocol.message import Message
from odradek.wire.lane import Lane, LaneError, LaneSettings

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

CONNECT_TIMEOUT_MS_MAX: Final = 10_000


def known_code(code: int) -> ErrorCode:
    """Return a peer's error code; UNKNOWN_SERVER_ERROR for one that a later Kafka has invented."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class PeerQueue(ABC):
    """Subclasses keep what waits, make requests of it and take the answers."""

    def __init__(
        self, broker: "BrokerServer", purpose: str, broker_id: int, *, version_min: int
    ) -> None:
        timeout_ms = broker.config.integer("request.timeout.ms")
        settings = LaneSettings(
            client_id=f"broker-{broker.node_id}-{purpose}",
            request_timeout_ms=timeout_ms,
            connect_timeout_ms=min(timeout_ms, CONNECT_TIMEOUT_MS_MAX),
        )
        self.broker_id = broker_id
        self._peers = broker.peers
        self._lane: Lane = broker.peers.open_lane(purpose, broker_id, settings)
        self._version_min = version_min
        self._is_busy = False
        self._is_scheduled = False
        self._is_closed = False

    @abstractmethod
    def _next_request(self) -> Message | None:
        """Make a request of what waits; None if nothing does."""

    @abstractmethod
    def _on_answer(self, answer: Message) -> None: ...

    @abstractmethod
    def _on_failed(self, error: LaneError) -> None:
        """Take note that the last request has no answer; the peer may have carried it out."""

    def wake(self) -> None:
        """Send what waits, when this turn of the loop is over and no request is under way."""
        if not (self._is_busy or self._is_scheduled or self._is_closed):
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def on_update(self) -> None:
        """Give the peer up if it is not there any more, as the newest image says."""
        if self._peers.find_address(self.broker_id) is None:
            self._lane.drop("the broker is fenced or gone")
        self._lane.on_address_changed()

    def close(self) -> None:
        """Send no more. What is under way is reported as failed."""
        self._is_closed = True
        self._lane.close()

    def _send(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        assert not self._is_busy
        request = self._next_request()
        if request is not None:
            self._is_busy = True
            self._lane.send(request, self._answered, self._failed, version_min=self._version_min)

    def _answered(self, answer: Message) -> None:
        self._is_busy = False
        self._on_answer(answer)
        self.wake()

    def _failed(self, error: LaneError) -> None:
        self._is_busy = False
        self._on_failed(error)
        self.wake()
