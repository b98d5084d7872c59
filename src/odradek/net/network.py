"""The port through which a server is reached: sockets (``sockets``), or a simulated network.

Only listening is here. Connecting is ``loop.create_connection``, which a simulated loop has too.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

Address = tuple[str, int]


class Incoming(Protocol):
    """A connection that was accepted and is not set up: so far it has cost next to nothing."""

    @property
    def peer(self) -> Address: ...

    @property
    def local(self) -> Address: ...

    def prepare(self) -> None:
        """Set the options of a connection that will be kept.

        Raises:
            OSError: The peer has gone already.
        """

    async def establish(
        self,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext | None,
        handshake_seconds: float | None,
    ) -> None:
        """Shake hands if there is a ``context``, then call ``protocol.connection_made``."""

    def close(self) -> None:
        """Hang up on a peer that was not established."""


class Listening(Protocol):
    """An address that is listened on."""

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Accept no more."""


class Network(Protocol):
    async def listen(
        self,
        host: str,
        port: int,
        *,
        backlog_max: int,
        pause_seconds: float,
        on_connection: Callable[[Incoming], None],
        on_error: Callable[[OSError], None],
    ) -> Listening:
        """Listen; both callbacks are called on the loop, until it is closed.

        Args:
            host: Empty for every address.
            port: 0 for a free one.
            backlog_max: Connections that may wait to be accepted.
            pause_seconds: How long accepting pauses when there are no descriptors left.
            on_connection: Called with each connection.
            on_error: Called when accepting fails.

        Raises:
            OSError: The address is taken or not ours.
        """
