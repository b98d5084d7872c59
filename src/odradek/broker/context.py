"""What a handler gets besides its request, and the way of its answer to the client. Hot path."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from odradek.broker.metrics.requests import RequestStats
from odradek.core.errors import CorruptionError
from odradek.core.slices import Steps
from odradek.core.stalls import STALL_US_MIN
from odradek.protocol.apis import Api
from odradek.protocol.framing import (
    Request,
    frame_response,
    frame_response_in_steps,
    open_response,
    response_frame,
)
from odradek.protocol.message import Buffer, Message

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.net.server import ConnectionInfo

T = TypeVar("T")

ELEMENTS_AT_ONCE_MAX: Final = 200
COUNTED_BYTES_MAX: Final = 64 * 1024
"""Of a controller's response: a longer one is passed on and its errors are not counted."""


class _Sentinel:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


PENDING: Final = _Sentinel("PENDING")
"""A handler's answer: ``context.reply`` will be called later, with None if no reply is expected."""

APPENDED: Final = _Sentinel("APPENDED")
"""A handler's answer: as PENDING, and nothing is left to be done but to wait. The next request of
this API on this connection may be handled meanwhile."""

NO_REPLY: Final = _Sentinel("NO_REPLY")
"""A handler's answer: the client expects none (acks=0)."""

Answer = Message | _Sentinel
"""What a handler returns. One that may take long is a generator instead (``slices``): it yields
between the parts of its work and returns the response."""

Handle = Callable[["RequestContext", Any], Answer | Steps[Message] | Steps[Answer]]
Reply = Callable[[list[Buffer] | None], None]


class ServedApi(NamedTuple):
    """What there is to know of an API when its requests come."""

    handle: Handle
    decode: Callable[[memoryview, int], Message]
    stats: RequestStats
    array: str | None
    """Which array of its answers may be long."""


class RequestContext:
    """One request: who asks, in which version, and how to answer later."""

    __slots__ = (
        "_began_us",
        "_send",
        "_served",
        "broker",
        "connection",
        "local_us",
        "request",
        "version",
    )

    def __init__(
        self,
        broker: "BrokerServer",
        served: ServedApi,
        request: Request,
        version: int,
        connection: "ConnectionInfo",
        send: Reply,
        began_us: int,
    ) -> None:
        self.broker = broker
        self.request = request
        self.version = version
        """Of the answer: 0 for an ApiVersions request from the future."""
        self.connection = connection
        self.local_us = -1
        """How long the handler took, once it has left the answer to others."""
        self._served = served
        self._send = send
        self._began_us = began_us

    @property
    def api(self) -> Api:
        return self.request.api

    @property
    def client_id(self) -> str | None:
        return self.request.client_id

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def peer_host(self) -> str:
        return self.connection.peer_host

    @property
    def principal(self) -> str:
        return self.connection.principal

    def count_apart(self, stats: RequestStats) -> None:
        """Count this request there, and not with the others of its API."""
        self._served = self._served._replace(stats=stats)

    def reply(self, message: Message | None) -> None:
        """Answer, with None if the client expects no reply; to be called once."""
        if message is None:
            self._finish(None, None)
            return
        request, array = self.request, self._served.array
        if array is None or len(getattr(message, array)) <= ELEMENTS_AT_ONCE_MAX:
            frame = frame_response(message, request.api, self.version, request.correlation_id)
            self._finish(message, frame)
            return
        self.run(
            frame_response_in_steps(
                message, array, request.api, self.version, request.correlation_id
            ),
            lambda frame: self._finish(message, frame),
        )

    def reply_bytes(self, data: Buffer) -> None:
        """Answer with a response that is encoded already, header included and without its size."""
        message = None
        if len(data) <= COUNTED_BYTES_MAX:
            with suppress(CorruptionError):  # a newer controller's: the client may know more
                _, body = open_response(memoryview(data), self.api, self.version)
                message = self.api.response().decode(body, self.version)
        self._finish(message, response_frame(data))

    def _finish(self, message: Message | None, frame: list[Buffer] | None) -> None:
        """Send an answer that is framed, and count its request."""
        self._send(frame)
        local_us, total_us = self.local_us, self.broker.clock.monotonic_us() - self._began_us
        self._served.stats.on_answered(message, self.version, total_us, local_us)
        if total_us >= STALL_US_MIN and local_us < 0:
            self.broker.slices.stalls.note(self.api.name, total_us)

    def run(self, steps: Steps[T], done: Callable[[T], None]) -> None:
        """Do a part of the work in slices; an error closes the connection."""
        broker, connection = self.broker, self.connection
        broker.slices.run(steps, done, lambda error: broker.server.fail_one(connection, error))
