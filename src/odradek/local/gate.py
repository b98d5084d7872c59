"""Cuts between the nodes of a local cluster, made in the nodes themselves.

All that goes from one node to another goes through a connection that one of them has opened. So a
node that holds back what it sends and receives on the connections that it opened, by the port at
their other end, makes any cut together with the others, in one direction or both:

- bytes to the port wait in this process, and arrive when the cut is healed;
- bytes from the port stay in the kernel's buffers, and TCP stops the sender when these are full;
- new connections wait, and fail like those that nobody answers.

As with a cable that is pulled, nothing is said to either side, and both notice by time alone. Other
than with a cable, the end of a process or of a connection is still seen at the other end. Clients
are not cut off: they reach every node.

The supervisor tells a node what to hold in a line of JSON on its stdin, all of it each time::

    {"hold": {"9093": "send", "9193": "both"}}
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from odradek.net.event_loop import new_event_loop

SEND: Final = "send"
RECEIVE: Final = "receive"
BOTH: Final = "both"


class Gate:
    """What one node holds back."""

    def __init__(self) -> None:
        self._held: dict[int, str] = {}
        self._links: set[GatedTransport] = set()
        self._changed = asyncio.Event()

    def hold(self, held: Mapping[int, str]) -> None:
        """Hold these directions of these ports back, and nothing else any more."""
        self._held = dict(held)
        for link in list(self._links):
            self._apply(link)
        self._changed.set()
        self._changed = asyncio.Event()

    async def until_open(self, port: int) -> None:
        """Return when a connection to a port can be made: its handshake needs both directions."""
        while port in self._held:
            await self._changed.wait()

    def wrap(self, transport: asyncio.Transport, port: int) -> "GatedTransport":
        link = GatedTransport(transport, port, self._links.discard)
        self._links.add(link)
        self._apply(link)
        return link

    def _apply(self, link: "GatedTransport") -> None:
        held = self._held.get(link.port, "")
        link.hold(sends=held in (SEND, BOTH), receives=held in (RECEIVE, BOTH))


class GatedTransport:
    """A transport as connections use it, whose directions can be held back."""

    def __init__(
        self, transport: asyncio.Transport, port: int, forget: Callable[["GatedTransport"], None]
    ) -> None:
        self.port = port
        self._transport = transport
        self._forget = forget
        self._waiting: list[bytes] = []
        self._holds_sends = False
        self._holds_receives = False

    def hold(self, *, sends: bool, receives: bool) -> None:
        if self._transport.is_closing():
            return
        self._holds_sends = sends
        if receives is not self._holds_receives:
            self._holds_receives = receives
            if receives:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if not sends and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._transport.writelines(waiting)

    def writelines(self, buffers: Iterable[bytes]) -> None:
        if self._holds_sends:
            # Bounded by the requests that a lane has in flight.
            self._waiting.extend(map(bytes, buffers))
        else:
            self._transport.writelines(buffers)

    def abort(self) -> None:
        self._forget(self)
        self._waiting.clear()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        """Leave the rest as it is."""
        return getattr(self._transport, name)


def gated_loop(gate: Gate) -> asyncio.AbstractEventLoop:
    """Return a loop whose outgoing connections go through a gate."""
    plain = new_event_loop()
    base: Any = type(plain)
    plain.close()

    class GatedLoop(base):  # type: ignore[misc]  # asyncio's or uvloop's
        async def create_connection(
            self, factory: Callable[[], Any], host: str, port: int, **options: Any
        ) -> Any:
            await gate.until_open(port)

            def make() -> Any:
                protocol = factory()
                made = protocol.connection_made

                def connection_made(transport: asyncio.Transport) -> None:
                    made(gate.wrap(transport, port))

                protocol.connection_made = connection_made
                return protocol

            return await super().create_connection(make, host, port, **options)

    loop = GatedLoop()
    assert isinstance(loop, asyncio.AbstractEventLoop)
    return loop
