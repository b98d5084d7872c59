"""What a handler gets besides its request."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.protocol.apis import Api
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.broker.node import Node
    from odradek.net.server import ConnectionInfo


class _Sentinel:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


PENDING: Final = _Sentinel("PENDING")
"""A handler's answer: ``context.reply`` will be called later."""

NO_REPLY: Final = _Sentinel("NO_REPLY")
"""A handler's answer: the client expects none (acks=0)."""

Answer = Message | _Sentinel


class RequestContext:
    """One request: who asks, in which version, and how to answer later."""

    __slots__ = (
        "api",
        "client_id",
        "connection",
        "listener",
        "node",
        "peer_host",
        "principal",
        "reply",
        "version",
    )

    def __init__(
        self,
        node: "Node",
        api: Api,
        version: int,
        client_id: str | None,
        listener: str,
        peer_host: str,
        principal: str,
        reply: Callable[[Message], None],
        connection: "ConnectionInfo",
    ) -> None:
        self.node = node
        self.api = api
        self.version = version
        self.client_id = client_id
        self.listener = listener
        self.peer_host = peer_host
        self.principal = principal
        self.reply = reply
        self.connection = connection
