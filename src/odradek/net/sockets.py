"""The real network: listening sockets, and what is accepted on them.

When the process is out of descriptors ``accept`` fails and the listening socket stays readable: a
loop that just tries again burns a core. So accepting pauses; clients wait in the backlog.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final

from odradek.net.network import Address, Incoming

_ACCEPTS_PER_TURN_MAX: Final = 64
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NOTHING_TO_ACCEPT: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)


class AcceptedSocket:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: socket.socket, peer: Address
    ) -> None:
        self.peer = peer
        self._loop = loop
        self._socket = client

    @property
    def local(self) -> Address:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def prepare(self) -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def establish(
        self,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext | None,
        handshake_seconds: float | None,
    ) -> None:
        await self._loop.connect_accepted_socket(
            lambda: protocol,
            self._socket,
            ssl=context,
            ssl_handshake_timeout=handshake_seconds,
        )

    def close(self) -> None:
        self._socket.close()


class ListeningSocket:
    def __init__(
        self,
        server: socket.socket,
        pause_seconds: float,
        on_connection: Callable[[Incoming], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = server
        self._pause_seconds = pause_seconds
        self._on_connection = on_connection
        self._on_error = on_error
        self._resume: asyncio.TimerHandle | None = None
        self._loop.add_reader(server, self._accept)

    @property
    def port(self) -> int:
        port = self._socket.getsockname()[1]
        assert isinstance(port, int)
        return port

    def close(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN_MAX):
            try:
                client, address = self._socket.accept()
            except _NOTHING_TO_ACCEPT:
                return
            except OSError as error:
                self._on_accept_error(error)
                return
            self._on_connection(AcceptedSocket(self._loop, client, address[:2]))

    def _on_accept_error(self, error: OSError) -> None:
        self._on_error(error)
        if error.errno in _EXHAUSTED:
            self._loop.remove_reader(self._socket)
            self._resume = self._loop.call_later(self._pause_seconds, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._resume = None
        self._loop.add_reader(self._socket, self._accept)


class SocketNetwork:
    """Implements ``odradek.net.network.Network`` with the operating system's sockets."""

    async def listen(
        self,
        host: str,
        port: int,
        *,
        backlog_max: int,
        pause_seconds: float,
        on_connection: Callable[[Incoming], None],
        on_error: Callable[[OSError], None],
    ) -> ListeningSocket:
        server = await _bind(host, port, backlog_max)
        return ListeningSocket(server, pause_seconds, on_connection, on_error)


async def _bind(host: str, port: int, backlog_max: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        server = socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=backlog_max, dualstack_ipv6=True
        )
    else:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)  # noqa: S104
        # IPv4 first: "localhost" is often both, and clients try 127.0.0.1.
        family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        server = socket.create_server(address[:2], family=family, backlog=backlog_max)
    server.setblocking(False)
    return server
