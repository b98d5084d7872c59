"""The network of a world: links between nodes, and what listens and connects on each.

Nodes are known by name and by address; ``localhost`` is the node itself. A connection attempt hangs
while its link is cut or its target is down, and gives up after ``CONNECT_SECONDS_MAX``; where
nobody listens it is refused. Faults are calls: ``cut``, ``heal``, ``reset``, and the fields of a
``link``.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from odradek.net.network import Address, Incoming
from odradek.testing.simulation.links import Link
from odradek.testing.simulation.transport import SimTransport

if TYPE_CHECKING:
    from odradek.testing.simulation.loop import SimLoop
    from odradek.testing.simulation.world import World

CONNECT_SECONDS_MAX: Final = 127.0
"""When Linux gives up a connection that nobody answers."""
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class SimNetwork:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._links: dict[tuple[str, str], Link] = {}

    def link(self, source: str, target: str) -> Link:
        """Return the way from one node to another."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(self._world, source, target)
        return found

    def cut(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """Let nothing through; it is held until the link heals."""
        self.link(source, target).cut()
        if both_ways:
            self.link(target, source).cut()

    def partition(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Cut all links between two groups of nodes."""
        rest = list(others)
        for one in some:
            for other in rest:
                self.cut(one, other)

    def heal(self, source: str, target: str, *, both_ways: bool = True) -> None:
        self.link(source, target).heal()
        if both_ways:
            self.link(target, source).heal()

    def heal_all(self) -> None:
        for link in self._links.values():
            link.heal()

    def reset(self, one: str, other: str) -> None:
        """Break every connection between two nodes; both ends see a reset."""
        self._world.note(f"{one}-{other}", "reset")
        address = self._world.nodes[other].address
        for end in list(self._world.nodes[one].network.ends):
            if end.peer[0] == address:
                end.on_reset()
                end.other.on_reset()

    def find_node(self, host: str) -> "NodeNetwork | None":
        for node in self._world.nodes.values():
            if host in (node.name, node.address):
                return node.network
        return None

    def loop_of(self, node: str) -> "SimLoop":
        return self._world.nodes[node].loop

    def note(self, where: str, what: str) -> None:
        self._world.note(where, what)


class _Attempt:
    """A connection that is being made."""

    def __init__(self, source: "NodeNetwork", target: "NodeNetwork", port: int) -> None:
        self.source = source
        self.target = target
        self.port = port
        self.made: asyncio.Future[SimTransport] = source.loop.create_future()
        self._there = source.network.link(source.name, target.name)
        self._back = source.network.link(target.name, source.name)
        self._there.carry(0, self._on_request)

    def _on_request(self) -> None:
        if self.made.done() or not self.target.has_kernel:
            return
        listener = self.target.listeners.get(self.port)
        is_remote = self.source is not self.target
        if listener is None or (listener.is_loopback and is_remote):
            self._back.carry(0, self._on_refusal)
            return
        if listener.waiting >= listener.backlog_max:
            return  # as Linux: the client tries again, until it gives up
        here = (self.source.address, next(self.source.ports))
        there = (self.target.address, self.port)
        server = SimTransport(self.target, self._back, there, here)
        client = SimTransport(self.source, self._there, here, there)
        server.other, client.other = client, server
        listener.on_request(server)
        self._back.carry(0, self._on_answer, client)

    def _on_refusal(self) -> None:
        if not self.made.done() and not self.source.loop.is_dead:
            error = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
            self.made.set_exception(error)

    def _on_answer(self, client: SimTransport) -> None:
        if self.made.done():
            self.source.ends.pop(client, None)
            client.send_reset()
        else:
            self.made.set_result(client)


class SimIncoming:
    """Implements ``odradek.net.network.Incoming``."""

    def __init__(self, transport: SimTransport) -> None:
        self._transport = transport

    @property
    def peer(self) -> Address:
        return self._transport.peer

    @property
    def local(self) -> Address:
        return self._transport.local

    def prepare(self) -> None:
        if self._transport.is_closing():
            raise OSError(errno.EINVAL, "Invalid argument")

    async def establish(
        self,
        protocol: asyncio.BaseProtocol,
        context: ssl.SSLContext | None,
        handshake_seconds: float | None,  # noqa: ARG002
    ) -> None:
        if context is not None:
            raise NotImplementedError("a simulated network speaks no TLS")
        self._transport.establish(protocol)

    def close(self) -> None:
        self._transport.close()


class SimListening:
    """Implements ``odradek.net.network.Listening``."""

    def __init__(
        self,
        host: "NodeNetwork",
        port: int,
        backlog_max: int,
        on_connection: Callable[[SimTransport], None],
    ) -> None:
        self.port = port
        self.backlog_max = backlog_max
        self.is_loopback = False
        self.waiting = 0  # connections that were not accepted yet
        self._host = host
        self._on_connection = on_connection

    def on_request(self, transport: SimTransport) -> None:
        self.waiting += 1
        self._host.loop.call_soon(self._accept, transport)

    def _accept(self, transport: SimTransport) -> None:
        self.waiting -= 1
        if self._host.listeners.get(self.port) is self:
            self._on_connection(transport)
        else:
            transport.send_reset()  # it waited while the listener closed

    def close(self) -> None:
        if self._host.listeners.get(self.port) is self:
            del self._host.listeners[self.port]


class SimSocketName:
    """As much of a socket as is asked for its name."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address


class SimServer(asyncio.AbstractServer):
    """What ``asyncio.start_server`` returns."""

    def __init__(self, host: "NodeNetwork", listening: SimListening) -> None:
        self._host = host
        self._listening = listening

    @property
    def port(self) -> int:
        return self._listening.port

    @property
    def sockets(self) -> tuple[SimSocketName, ...]:
        return (SimSocketName((self._host.address, self.port)),) if self.is_serving() else ()

    def close(self) -> None:
        self._listening.close()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._host.loop

    def is_serving(self) -> bool:
        return self._host.listeners.get(self.port) is self._listening

    async def start_serving(self) -> None:
        """Do nothing: it listens from the beginning."""

    async def serve_forever(self) -> None:
        await self._host.loop.create_future()

    async def wait_closed(self) -> None:
        """Return at once: connections are not waited for."""


class NodeNetwork:
    """The network as one node has it; implements ``odradek.net.network.Network``."""

    def __init__(self, network: SimNetwork, name: str, address: str) -> None:
        self.network = network
        self.name = name
        self.address = address
        self.life = 1
        self.has_kernel = True
        self.listeners: dict[int, SimListening] = {}
        self.ends: dict[SimTransport, None] = {}
        self.missed: dict[SimTransport, None] = {}
        """Ends of an earlier life that were sent something while the machine was off."""
        self.ports = count(40_000)
        self._listening_ports = count(30_000)

    @property
    def loop(self) -> "SimLoop":
        return self.network.loop_of(self.name)

    def note(self, what: str) -> None:
        self.network.note(self.name, what)

    # For what runs on the node.

    async def listen(
        self,
        host: str,
        port: int,
        *,
        backlog_max: int,
        pause_seconds: float,  # noqa: ARG002
        on_connection: Callable[[Incoming], None],
        on_error: Callable[[OSError], None],  # noqa: ARG002
    ) -> SimListening:
        return self._listen(host, port, backlog_max, lambda end: on_connection(SimIncoming(end)))

    def serve(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> SimServer:
        """Listen with one protocol per connection, as ``loop.create_server``."""
        listening = self._listen(host, port, 100, lambda end: end.establish(protocol_factory()))
        return SimServer(self, listening)

    async def connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Connect, as ``loop.create_connection``.

        Raises:
            OSError: Nobody listens there, nobody answers, or there is no such node.
        """
        attempt = _Attempt(self, self._find(host), port)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                transport = await attempt.made
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, "Connection timed out") from None
        protocol = protocol_factory()
        transport.establish(protocol)
        return transport, protocol

    def getaddrinfo(self, host: str, port: int) -> list[tuple[Any, ...]]:
        address = (self._find(host).address, port)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]

    def _find(self, host: str) -> "NodeNetwork":
        if host in _LOOPBACK:
            return self
        found = self.network.find_node(host)
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, f"no node has the name {host}")
        return found

    def _listen(
        self, host: str, port: int, backlog_max: int, then: Callable[[SimTransport], None]
    ) -> SimListening:
        if host not in (*_EVERYWHERE, *_LOOPBACK, self.name, self.address):
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        if port in self.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listening = SimListening(self, port or next(self._listening_ports), backlog_max, then)
        listening.is_loopback = host in _LOOPBACK
        self.listeners[listening.port] = listening
        return listening

    # For the node itself.

    def on_crash(self, *, says_goodbye: bool) -> None:
        self.life += 1
        self.listeners.clear()
        ends, self.ends = self.ends, {}
        self.has_kernel = says_goodbye
        if says_goodbye:
            for end in ends:
                end.on_process_end()

    def on_start(self) -> None:
        self.has_kernel = True
        missed, self.missed = self.missed, {}
        for end in missed:
            end.send_reset()
