"""The port to the active controller: request messages in, response messages out.

Handlers of admin requests and everything in a broker that changes metadata use this port, and do
not know whether the controller is in the same process or on another node.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.wire.connection import Versions

Then = Callable[[Message], None]
Failed = Callable[[ApiError], None]


class ControllerPort(Protocol):
    def forward(self, context: RequestContext, request: Message) -> Answer:
        """Have a client's request answered by the active controller, in the client's name.

        Returns PENDING, unless the request cannot be forwarded at all.
        """

    @property
    def versions(self) -> "Versions | None":
        """What the active controller speaks, if it is another node's and that is known."""

    def ask(
        self,
        request: Message,
        then: Then,
        failed: Failed,
        *,
        client: RequestContext | None = None,
    ) -> None:
        """Ask the active controller something, as this broker or in the name of a client.

        Exactly one of ``then`` and ``failed`` is called, now or later. ``then`` gets the
        controller's response, which may have error codes of its own; ``failed`` is for a request
        that no controller has answered.
        """
