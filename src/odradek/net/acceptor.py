"""One listener: takes connections, refuses those over a limit, sees handshakes through.

Not ``loop.create_server``, because it tells nobody about a TLS handshake that fails or is slow, and
can refuse a connection only after all the work of setting one up is done. Here limits are checked
on the bare connection, as the network hands it over.
"""

import asyncio
import ssl
from functools import partial
from itertools import count
from typing import Final

from odradek.net.connection import Connection
from odradek.net.hub import Hub
from odradek.net.network import Incoming, Listening, Network
from odradek.net.settings import ConnectionInfo, EventKind, Listener
from odradek.net.tls import server_context

_IPV4_IN_IPV6: Final = "::ffff:"


class Acceptor:
    """Accepts on one listener; the connections are found in the hub."""

    def __init__(self, hub: Hub, listener: Listener, network: Network) -> None:
        self.listener = listener
        self._hub = hub
        self._network = network
        self._context = _context_of(listener)
        self._loop = asyncio.get_running_loop()
        self._listening: Listening | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = count()

    @property
    def port(self) -> int:
        assert self._listening is not None
        return self._listening.port

    async def open(self) -> None:
        """Bind, listen and accept.

        Raises:
            OSError: The address is taken or not ours; the message names the listener.
        """
        limits = self._hub.limits
        try:
            self._listening = await self._network.listen(
                self.listener.host,
                self.listener.port,
                backlog_max=limits.backlog_max,
                pause_seconds=limits.accept_pause_ms / 1000,
                on_connection=self._admit,
                on_error=self._on_accept_error,
            )
        except OSError as error:
            where = f"{self.listener.host}:{self.listener.port}"
            message = f"listener {self.listener.name} cannot listen on {where}: {error.strerror}"
            raise OSError(error.errno, message) from error

    def replace_tls(self, context: ssl.SSLContext) -> None:
        """Use another context for new connections; those that there are keep theirs."""
        assert self._context is not None, "the listener speaks no TLS"
        self._context = context

    def close(self) -> None:
        """Stop accepting and drop what has not finished its handshake."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._context is not None:
            for task in self._tasks:
                task.cancel()
        # Plaintext is set up in two rounds of the loop and not cancelled: uvloop would drop it
        # after connection_made without ever calling connection_lost.

    def _on_accept_error(self, error: OSError) -> None:
        self._hub.emit(EventKind.ACCEPT_FAILED, None, f"{self.listener.name}: {error}", error)

    def _admit(self, incoming: Incoming) -> None:
        info = self._describe(incoming)
        refusal = self._hub.find_refusal(info.peer_host)
        if refusal is not None:
            incoming.close()
            self._hub.emit(EventKind.REFUSED, info, refusal)
            return
        try:
            incoming.prepare()
        except OSError:
            incoming.close()  # it has gone already
            return
        make_gate = self.listener.make_gate
        gate = None if make_gate is None else make_gate(info)
        connection = Connection(self._hub, info, gate, self.listener.name_of)
        self._hub.admit(connection)
        task = self._loop.create_task(self._establish(incoming, connection))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_established, incoming, connection))

    async def _establish(self, incoming: Incoming, connection: Connection) -> None:
        handshake_s = self._hub.limits.handshake_ms_max / 1000
        await incoming.establish(
            connection, self._context, None if self._context is None else handshake_s
        )

    def _on_established(
        self, incoming: Incoming, connection: Connection, task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if connection.is_made:
            return
        # It will not get connection_lost either: never made means never lost.
        incoming.close()
        self._hub.release(connection)
        if not task.cancelled():
            reason = "the peer went" if error is None else f"{type(error).__name__}: {error}"
            self._hub.emit(EventKind.REJECTED, connection.info, f"no TLS handshake: {reason}")

    def _describe(self, incoming: Incoming) -> ConnectionInfo:
        peer_host, peer_port = _plain(incoming.peer[0]), incoming.peer[1]
        local_host, local_port = incoming.local
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
    is_sasl = listener.security_protocol.startswith("SASL")
    # One that forgot its gate would let everybody in.
    assert is_sasl == (listener.make_gate is not None), listener.name
    if not listener.security_protocol.endswith("SSL"):
        return None
    if listener.tls is None:
        raise ValueError(f"listener {listener.name} speaks SSL and has no certificate")
    return server_context(listener.tls)


def _plain(host: str) -> str:
    """Return the address a person knows: a dual-stack socket shows IPv4 peers as IPv6."""
    return host.removeprefix(_IPV4_IN_IPV6)
