"""The transport of a broker: listeners, connections, one timer for all deadlines, a graceful stop.

``Server`` is used on one event loop: ``await start()``, then the handler is called for every
request (its rules are in :mod:`odradek.net.settings`), until ``await stop(grace_ms)``.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from odradek.net.acceptor import Acceptor
from odradek.net.hub import Hub
from odradek.net.network import Network
from odradek.net.settings import (
    ConnectionInfo,
    Counters,
    EventKind,
    Handler,
    Listener,
    OnEvent,
    Reply,
    SecurityProtocol,
    ServerLimits,
    TlsSettings,
)
from odradek.net.sockets import SocketNetwork

__all__ = [
    "ConnectionInfo",
    "Counters",
    "EventKind",
    "Handler",
    "Listener",
    "OnEvent",
    "Reply",
    "SecurityProtocol",
    "Server",
    "ServerLimits",
    "TlsSettings",
]

_ABORT_MS_MAX: Final = 1_000
"""How long the loop may take to tell aborted connections so; it needs two of its rounds."""


def ignore_event(
    kind: EventKind, info: ConnectionInfo | None, detail: str, error: Exception | None
) -> None:
    """Take note of nothing; the counters still count."""


def _call_soon(callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(callback)


def _call_later(seconds: float, callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, callback)


class Server:
    """Serves a set of listeners with one handler."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        handler: Handler,
        limits: ServerLimits | None = None,
        *,
        on_event: OnEvent = ignore_event,
        network: Network | None = None,
    ) -> None:
        names = [listener.name for listener in listeners]
        assert len(set(names)) == len(names), f"two listeners of one name: {names}"
        self._listeners = tuple(listeners)
        self._network = network or SocketNetwork()
        self._hub = Hub(handler, limits or ServerLimits(), on_event, _call_soon, _call_later)
        self._acceptors: list[Acceptor] = []
        self._endpoints: dict[str, tuple[str, int]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Host as configured and real port of each listener, by name; empty before the start."""
        return dict(self._endpoints)

    @property
    def counters(self) -> Counters:
        return self._hub.counters

    @property
    def connection_count(self) -> int:
        """Connections there are, also those in a handshake or about to be closed."""
        return len(self._hub.members)

    async def start(self) -> None:
        """Listen on every listener, or on none.

        Raises:
            OSError: An address cannot be listened on.
            ValueError: The TLS settings of a listener cannot be used.
        """
        assert self._sweeper is None, "started before"
        try:
            for listener in self._listeners:
                acceptor = Acceptor(self._hub, listener, self._network)
                await acceptor.open()
                self._acceptors.append(acceptor)
                self._endpoints[listener.name] = (listener.host, acceptor.port)
        except BaseException:
            self._endpoints.clear()
            await self.stop(grace_ms=0)
            raise
        self._schedule_sweep()

    async def stop(self, grace_ms: float) -> None:
        """Accept no more, let pending requests be answered for ``grace_ms``, then close all."""
        self._stop_accepting()
        for member in list(self._hub.members):
            member.stop()
        await self._wait_for_none(grace_ms)
        self.close_all("the server stops")
        await self._wait_for_none(_ABORT_MS_MAX)
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def replace_tls(self, listener: str, context: ssl.SSLContext) -> None:
        """Let a TLS listener show another certificate to those who connect from now on."""
        for acceptor in self._acceptors:
            if acceptor.listener.name == listener:
                acceptor.replace_tls(context)

    def fail_one(self, connection: ConnectionInfo, error: Exception) -> None:
        """End a connection whose request failed after its handler had returned, as if before."""
        for member in list(self._hub.members):
            if member.info is connection:
                member.fail(error)

    def close_one(self, connection: ConnectionInfo, detail: str) -> None:
        """Drop one connection at once, if it is still there."""
        for member in list(self._hub.members):
            if member.info is connection:
                member.abort(detail)

    def close_all(self, detail: str = "all connections are dropped") -> None:
        """Drop every connection at once; the server goes on accepting new ones."""
        for member in list(self._hub.members):
            member.abort(detail)

    def _stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()

    async def _wait_for_none(self, ms_max: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ms_max / 1000):
                await self._hub.wait_until_vacant()

    def _schedule_sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._hub.now_ms = loop.time() * 1000
        self._sweeper = loop.call_later(self._hub.sweep_ms / 1000, self._sweep)

    def _sweep(self) -> None:
        self._schedule_sweep()  # first: the next one comes whatever happens in this one
        for member in list(self._hub.members):
            member.check_deadlines()
