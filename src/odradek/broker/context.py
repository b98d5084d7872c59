"""What a handler gets besides its request."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.protocol.apis import Api
from odradek.protocol.framing import Request
from odradek.protocol.message import Buffer, Message

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.net.server import ConnectionInfo


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


class RequestContext:
    """One request: who asks, in which version, and how to answer later."""

    __slots__ = (
        "api",
        "broker",
        "client_id",
        "connection",
        "listener",
        "peer_host",
        "principal",
        "reply",
        "version",
    )

    def __init__(
        self,
        broker: "BrokerServer",
        api: Api,
        version: int,
        client_id: str | None,
        listener: str,
        peer_host: str,
        principal: str,
        reply: Callable[[Message | None], None],
        connection: "ConnectionInfo",
    ) -> None:
        self.broker = broker
        self.api = api
        self.version = version
        self.client_id = client_id
        self.listener = listener
        self.peer_host = peer_host
        self.principal = principal
        self.reply = reply
        self.connection = connection


class ForwardedContext(RequestContext):
    """A request that may go to the controller as it is, and whose response may come so."""

    __slots__ = ("reply_bytes", "request")

    request: Request
    reply_bytes: Callable[[Buffer], None]
    """Answers with an encoded response, header included and without its size."""
