"""Who is connected to whom among the nodes of a cluster in this process, and what is cut.

All nodes are at 127.0.0.1. A node that connects to another one binds the port it comes from first
and tells the ``Wiring``, so that the one who accepts knows who it is. What arrives at a node from
another goes through a ``Gate``. While that way is cut the gate keeps what arrives, as a network
does that loses packets and has them sent again: it is delivered, in order, when the cut is healed.
A connection that is attempted across a cut waits until it is healed or given up.

All clients together are ``CLIENTS``. They are strangers: of theirs only the way to a node can be
cut, where a gate stands.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from odradek.net.network import Address, Incoming, Listening
from odradek.net.sockets import ListeningSocket

HOST: Final = "127.0.0.1"

CLIENTS: Final = 0
"""Stands for them where nodes have ids."""

_KILLED: Final = "the process was killed"

Way = tuple[int, int]
"""From which node to which."""


class Wiring:
    """Used from the threads of all nodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, int] = {}
        self._sources: dict[int, int] = {}
        self._cuts: set[Way] = set()
        self._gates: dict[Way, set[Gate]] = {}
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def set_listener(self, port: int, node_id: int) -> None:
        self._listeners[port] = node_id

    def listener(self, port: int) -> int | None:
        """Return which node listens on a port."""
        return self._listeners.get(port)

    def set_source(self, port: int, node_id: int) -> None:
        """Note whose connections come from a port."""
        self._sources[port] = node_id

    def source(self, port: int) -> int:
        """Return which node connects from a port, or ``CLIENTS``."""
        return self._sources.get(port, CLIENTS)

    def forget_source(self, port: int) -> None:
        self._sources.pop(port, None)

    # Cuts.

    def cut(self, ways: set[Way]) -> None:
        with self._lock:
            new = ways - self._cuts
            self._cuts |= new
            gates = [gate for way in new for gate in self._gates.get(way, ())]
        for gate in gates:
            gate.look_soon()

    def heal(self, ways: set[Way] | None = None) -> None:
        """Heal some ways, or all."""
        with self._lock:
            healed = self._cuts if ways is None else self._cuts & ways
            self._cuts = self._cuts - healed
            gates = [gate for way in healed for gate in self._gates.get(way, ())]
            waiting, self._waiting = self._waiting, []
        for gate in gates:
            gate.look_soon()
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    @property
    def cuts(self) -> frozenset[Way]:
        return frozenset(self._cuts)

    def is_cut(self, way: Way) -> bool:
        return way in self._cuts

    async def until_connected(self, one: int, other: int) -> None:
        """Wait until neither way between two nodes is cut: both are needed for a handshake."""
        ways = {(one, other), (other, one)}
        while True:
            with self._lock:
                if not ways & self._cuts:
                    return
                healed = asyncio.Event()
                self._waiting.append((asyncio.get_running_loop(), healed))
            await healed.wait()

    def add_gate(self, gate: "Gate") -> bool:
        """Return whether its way is open."""
        with self._lock:
            self._gates.setdefault(gate.way, set()).add(gate)
            return gate.way not in self._cuts

    def remove_gate(self, gate: "Gate") -> None:
        with self._lock:
            self._gates[gate.way].discard(gate)


class Gate(asyncio.Protocol):
    """Stands before a protocol, on the loop of the node that receives."""

    def __init__(self, wiring: Wiring, way: Way, inner: asyncio.BufferedProtocol) -> None:
        self.way = way
        self.inner = inner
        self.transport: asyncio.Transport | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self._wiring = wiring
        self._loop = asyncio.get_running_loop()
        self._held: list[Callable[[], None]] | None = None
        self._is_established = self._has_ended = False

    def look_soon(self) -> None:
        """Do as the wiring says; called from any thread."""
        with suppress(RuntimeError):  # the loop of a node that was killed meanwhile
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self._wiring.is_cut(self.way):
            if self._held is None:
                self._held = []
        elif self._held is not None:
            held, self._held = self._held, None
            for event in held:
                event()

    def _let_in(self, event: Callable[[], None]) -> None:
        if self._held is not None:
            self._held.append(event)
        elif not self._has_ended:
            event()

    def end(self) -> None:
        """Let nothing in any more, and close the connection if it is ``established``."""
        self._has_ended = True
        if self._is_established:
            assert self.transport is not None
            self.transport.abort()

    def established(self) -> None:
        """Note that the loop has done its part: the transport may be closed now.

        uvloop takes the socket for its own only after ``connection_made``. A transport that is
        closed before leaves a socket that closes its descriptor once more, when it is another's.
        """
        self._is_established = True
        if self._has_ended:
            self.end()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if not self._wiring.add_gate(self):
            self._held = []
        if not self._has_ended:
            self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._let_in(lambda: self._feed(data))

    def eof_received(self) -> bool:
        if self._held is None:
            return bool(self.inner.eof_received())
        self._held.append(self._close)
        return True  # this side does not know yet, and still sends

    def connection_lost(self, exc: Exception | None) -> None:
        self._wiring.remove_gate(self)
        self.on_lost()
        if exc is None:  # closed from this side
            self._held = None
        self._let_in(lambda: self.inner.connection_lost(exc))

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def _close(self) -> None:
        assert self.transport is not None
        self.inner.eof_received()
        self.transport.close()

    def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            space = memoryview(self.inner.get_buffer(len(rest)))
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            self.inner.buffer_updated(count)
            rest = rest[count:]


class GatedNetwork:
    """Implements ``odradek.net.network.Network`` for a node, with sockets that are bound."""

    def __init__(self, wiring: Wiring, node_id: int, bound: Mapping[int, socket.socket]) -> None:
        self._wiring = wiring
        self._node_id = node_id
        self._bound = bound

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
        assert host == HOST, host
        server = self._bound[port]
        server.setblocking(False)
        server.listen(backlog_max)

        def accept(incoming: Incoming) -> None:
            peer = self._wiring.source(incoming.peer[1])
            on_connection(GatedIncoming(incoming, self._wiring, (peer, self._node_id)))

        return ListeningSocket(server, pause_seconds, accept, on_error)


class GatedIncoming:
    def __init__(self, incoming: Incoming, wiring: Wiring, way: Way) -> None:
        self._incoming = incoming
        self._wiring = wiring
        self._way = way

    @property
    def peer(self) -> Address:
        return self._incoming.peer

    @property
    def local(self) -> Address:
        return self._incoming.local

    def prepare(self) -> None:
        self._incoming.prepare()

    async def establish(
        self,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext | None,
        handshake_seconds: float | None,
    ) -> None:
        inner = cast("asyncio.BufferedProtocol", protocol)
        gate = Gate(self._wiring, self._way, inner)
        await self._incoming.establish(gate, context, handshake_seconds)

    def close(self) -> None:
        self._incoming.close()


class Dialling:
    """Connects for one node: it stands in for ``create_connection`` of the node's loop."""

    def __init__(self, wiring: Wiring, node_id: int, loop: asyncio.AbstractEventLoop) -> None:
        self._wiring = wiring
        self._node_id = node_id
        self._loop = loop
        self._create_connection = loop.create_connection
        self._gates: set[Gate] = set()
        self._has_ended = False

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that has not come to its end."""
        return bool(self._gates)

    def end(self) -> None:
        """Abort every connection and make no more."""
        self._has_ended = True
        for gate in list(self._gates):
            gate.end()

    async def create_connection(
        self,
        make_protocol: Callable[[], asyncio.BufferedProtocol],
        host: str,
        port: int,
        **options: Any,
    ) -> tuple[asyncio.BaseTransport, asyncio.BufferedProtocol]:
        if self._has_ended:
            raise ConnectionRefusedError(_KILLED)
        peer = self._wiring.listener(port)
        if peer is None:
            peer = self._node_id  # no way to cut
        await self._wiring.until_connected(self._node_id, peer)
        client = socket.socket()
        client.setblocking(False)
        client.bind((HOST, 0))
        source = client.getsockname()[1]
        gate = Gate(self._wiring, (peer, self._node_id), make_protocol())
        gate.on_lost = lambda: self._forget(gate, source)
        self._wiring.set_source(source, self._node_id)
        self._gates.add(gate)
        try:
            await self._loop.sock_connect(client, (host, port))
            transport, _ = await self._create_connection(lambda: gate, sock=client, **options)
        except BaseException:
            client.close()
            self._forget(gate, source)
            raise
        gate.established()
        if self._has_ended:
            raise ConnectionRefusedError(_KILLED)
        return transport, gate.inner

    def _forget(self, gate: Gate, source: int) -> None:
        self._gates.discard(gate)
        self._wiring.forget_source(source)
