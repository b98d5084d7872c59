"""One listening socket: takes connections, refuses those over a limit, bears a lack of descriptors.

Not ``loop.create_server``, because it tells nobody about a TLS handshake that fails or is slow, and
can refuse a connection only after all the work of setting one up is done. Here limits are checked
on the bare socket.

When the process is out of descriptors ``accept`` fails and the listening socket stays readable: a
loop that just tries again burns a core. So accepting pauses; clients wait in the backlog.
"""

import asyncio
import errno
import socket
import ssl
from functools import partial
from itertools import count
from typing import Final

from odradek.net.connection import Connection
from odradek.net.hub import Hub
from odradek.net.settings import ConnectionInfo, EventKind, Listener
from odradek.net.tls import server_context

_ACCEPTS_PER_TURN_MAX: Final = 64
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NOTHING_TO_ACCEPT: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_IPV4_IN_IPV6: Final = "::ffff:"


class Acceptor:
    """Accepts on one listener; the connections are found in the hub."""

    def __init__(self, hub: Hub, listener: Listener) -> None:
        self.listener = listener
        self._hub = hub
        self._context = _context_of(listener)
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = count()

    @property
    def port(self) -> int:
        assert self._socket is not None
        port = self._socket.getsockname()[1]
        assert isinstance(port, int)
        return port

    async def open(self) -> None:
        """Bind, listen and accept.

        Raises:
            OSError: The address is taken or not ours; the message names the listener.
        """
        try:
            self._socket = await _listen(self._loop, self.listener, self._hub.limits.backlog_max)
        except OSError as error:
            where = f"{self.listener.host}:{self.listener.port}"
            message = f"listener {self.listener.name} cannot listen on {where}: {error.strerror}"
            raise OSError(error.errno, message) from error
        self._loop.add_reader(self._socket, self._accept)

    def replace_tls(self, context: ssl.SSLContext) -> None:
        """Use another context for new connections; those that there are keep theirs."""
        assert self._context is not None, "the listener speaks no TLS"
        self._context = context

    def close(self) -> None:
        """Stop accepting and drop what has not finished its handshake."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._context is not None:
            for task in self._tasks:
                task.cancel()
        # Plaintext is set up in two rounds of the loop and not cancelled: uvloop would drop it
        # after connection_made without ever calling connection_lost.

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPTS_PER_TURN_MAX):
            try:
                client, address = self._socket.accept()
            except _NOTHING_TO_ACCEPT:
                return
            except OSError as error:
                self._on_accept_error(error)
                return
            self._admit(client, address)

    def _on_accept_error(self, error: OSError) -> None:
        self._hub.emit(EventKind.ACCEPT_FAILED, None, f"{self.listener.name}: {error}", error)
        if error.errno in _EXHAUSTED:
            assert self._socket is not None
            self._loop.remove_reader(self._socket)
            pause_s = self._hub.limits.accept_pause_ms / 1000
            self._resume = self._loop.call_later(pause_s, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._resume = None
        assert self._socket is not None
        self._loop.add_reader(self._socket, self._accept)

    def _admit(self, client: socket.socket, address: tuple[str, int]) -> None:
        info = self._describe(client, address)
        refusal = self._hub.find_refusal(info.peer_host)
        if refusal is not None:
            client.close()
            self._hub.emit(EventKind.REFUSED, info, refusal)
            return
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:
            client.close()  # it has gone already
            return
        connection = Connection(self._hub, info)
        self._hub.admit(connection)
        task = self._loop.create_task(self._establish(client, connection))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_established, client, connection))

    async def _establish(self, client: socket.socket, connection: Connection) -> None:
        handshake_s = self._hub.limits.handshake_ms_max / 1000
        await self._loop.connect_accepted_socket(
            lambda: connection,
            client,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else handshake_s,
        )

    def _on_established(
        self, client: socket.socket, connection: Connection, task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if connection.is_made:
            return
        # It will not get connection_lost either: never made means never lost.
        client.close()
        self._hub.release(connection)
        if not task.cancelled():
            reason = "the peer went" if error is None else f"{type(error).__name__}: {error}"
            self._hub.emit(EventKind.REJECTED, connection.info, f"no TLS handshake: {reason}")

    def _describe(self, client: socket.socket, address: tuple[str, int]) -> ConnectionInfo:
        peer_host, peer_port = _plain(address[0]), address[1]
        local_host, local_port = client.getsockname()[:2]
        return ConnectionInfo(
            listener=self.listener.name,
            security_protocol=self.listener.security_protocol,
            peer_host=peer_host,
            peer_port=peer_port,
            # Kafka's form, for logs that are searched with Kafka's tools.
            connection_id=f"{_plain(local_host)}:{local_port}-{peer_host}:{peer_port}"
            f"-{next(self._numbers)}",
        )


def _context_of(listener: Listener) -> ssl.SSLContext | None:
    if listener.security_protocol == "PLAINTEXT":
        return None
    if listener.tls is None:
        raise ValueError(f"listener {listener.name} speaks SSL and has no certificate")
    return server_context(listener.tls)


def _plain(host: str) -> str:
    """Return the address a person knows: a dual-stack socket shows IPv4 peers as IPv6."""
    return host.removeprefix(_IPV4_IN_IPV6)


async def _listen(
    loop: asyncio.AbstractEventLoop, listener: Listener, backlog_max: int
) -> socket.socket:
    host, port = listener.host, listener.port
    if not host and socket.has_dualstack_ipv6():
        server = socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=backlog_max, dualstack_ipv6=True
        )
    else:
        found = await loop.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)  # noqa: S104
        # IPv4 first: "localhost" is often both, and clients try 127.0.0.1.
        family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        server = socket.create_server(address[:2], family=family, backlog=backlog_max)
    server.setblocking(False)
    return server
