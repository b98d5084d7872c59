"""A server on a free port of 127.0.0.1, clients that speak raw bytes, and a wait for conditions."""

import asyncio
import functools
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple, ParamSpec

from odradek.net.connection import Connection
from odradek.net.event_loop import new_event_loop
from odradek.net.gate import Gate
from odradek.net.hub import Hub
from odradek.net.server import (
    ConnectionInfo,
    EventKind,
    Handler,
    Listener,
    Reply,
    Server,
    ServerLimits,
)
from odradek.protocol.framing import Request
from odradek.protocol.message import Buffer

P = ParamSpec("P")

DEADLINE_S = 90.0
PLAIN = Listener("PLAINTEXT", "127.0.0.1", 0)
PATIENT = ServerLimits(handshake_ms_max=80_000, close_ms_max=80_000)


def on_loop(
    story: Callable[P, Coroutine[None, None, None]],
) -> Callable[P, None]:
    """Run an async test on the loop the broker would use; nothing may reach its error handler."""

    @functools.wraps(story)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        unhandled: list[dict[str, object]] = []
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: unhandled.append(context))
            runner.run(asyncio.wait_for(story(*args, **kwargs), DEADLINE_S))
        assert unhandled == []

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds; the test's deadline is the limit."""
    while not condition():
        await asyncio.sleep(0.002)


def frame(payload: bytes, correlation_id: int = 0, key: int = 18) -> bytes:
    """Return a request: the header of version 0 of an API without client id, and any body."""
    body = struct.pack(">hhih", key, 0, correlation_id, -1) + payload
    return struct.pack(">i", len(body)) + body


def response(payload: bytes, correlation_id: int) -> list[Buffer]:
    header = struct.pack(">ii", 4 + len(payload), correlation_id)
    return [header, b"", payload] if payload else [header]


class Event(NamedTuple):
    kind: EventKind
    info: ConnectionInfo | None
    detail: str
    error: Exception | None


@dataclass
class Echo:
    """A handler that answers a request with its own body, at once."""

    seen: list[ConnectionInfo] = field(default_factory=list)

    def __call__(self, request: Request, info: ConnectionInfo, reply: Reply) -> None:
        self.seen.append(info)
        reply(response(bytes(request.body), request.correlation_id))


@dataclass
class Held:
    """A handler that keeps replies until the test gives them."""

    pending: list[tuple[int, bytes, Reply]] = field(default_factory=list)

    def __call__(self, request: Request, info: ConnectionInfo, reply: Reply) -> bool | None:
        self.pending.append((request.correlation_id, bytes(request.body), reply))
        return None

    def answer(self) -> None:
        correlation_id, payload, reply = self.pending.pop(0)
        reply(response(payload, correlation_id))


@dataclass
class Overlapped(Held):
    """As ``Held``; the next request of the same API may be handled meanwhile."""

    def __call__(self, request: Request, info: ConnectionInfo, reply: Reply) -> bool:
        super().__call__(request, info, reply)
        return True

    @property
    def numbers(self) -> list[int]:
        return [number for number, _, _ in self.pending]

    def answer_number(self, number: int) -> None:
        self.pending.sort(key=lambda entry: entry[0] != number)
        self.answer()


class Serving:
    """A running server, what happened to it, and how to reach it."""

    def __init__(self, server: Server, events: list[Event]) -> None:
        self.server = server
        self.events = events

    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.events]

    def details(self, kind: EventKind) -> list[str]:
        return [event.detail for event in self.events if event.kind == kind]

    async def connect(
        self, listener: str = "PLAINTEXT", context: ssl.SSLContext | None = None
    ) -> "Client":
        host, port = self.server.endpoints[listener]
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        return Client(reader, writer)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> tuple[int, bytes]:
        """Return correlation id and payload of the next response."""
        size, correlation_id = struct.unpack(">ii", await self.reader.readexactly(8))
        return correlation_id, await self.reader.readexactly(size - 4)

    async def ask(self, payload: bytes, correlation_id: int = 0) -> bytes:
        self.send(frame(payload, correlation_id))
        answered_id, answer = await self.receive()
        assert answered_id == correlation_id
        return answer

    async def expect_close(self) -> bytes:
        """Return what still came before the server hung up."""
        try:
            return await self.reader.read()
        except OSError:
            return b""

    async def close(self) -> None:
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def serving(
    handler: Handler,
    limits: ServerLimits | None = None,
    listeners: Sequence[Listener] = (PLAIN,),
) -> AsyncIterator[Serving]:
    events: list[Event] = []
    server = Server(
        listeners, handler, limits or PATIENT, on_event=lambda *event: events.append(Event(*event))
    )
    await server.start()
    try:
        yield Serving(server, events)
    finally:
        await server.stop(grace_ms=0)
        assert server.connection_count == 0


class FakeTransport(asyncio.Transport):
    """Takes what is written and sends only what the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes = 0
        self.unsent = 0
        self.reading = True
        self.closed = False
        self.aborted = False

    def write(self, data: Buffer) -> None:
        assert data
        self.writes += 1
        self.written += data

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        parts = list(list_of_data)
        assert all(parts), "asyncio of Python 3.12 would try to send an empty part for ever"
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Workbench:
    """A connection on a fake transport: the test is its event loop and its clock."""

    def __init__(
        self, handler: Handler, limits: ServerLimits | None = None, gate: Gate | None = None
    ) -> None:
        self.events: list[Event] = []
        self.due: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.hub = Hub(
            handler,
            limits or ServerLimits(),
            lambda *event: self.events.append(Event(*event)),
            self.due.append,
            lambda seconds, callback: self.later.append((seconds, callback)),
        )
        self.transport = FakeTransport()
        info = ConnectionInfo("PLAINTEXT", "PLAINTEXT", "10.0.0.1", 5000, "id")
        self.connection = Connection(self.hub, info, gate)
        self.hub.admit(self.connection)
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        while data:
            space = self.connection.get_buffer(-1)
            count = min(len(space), len(data))
            space[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    def run_due(self) -> None:
        """Run what was scheduled so far, as one round of a loop does."""
        due, self.due[:] = list(self.due), []
        for call in due:
            call()

    def pass_time(self, ms: float) -> None:
        """Let time pass and sweep as the server does."""
        end_ms = self.hub.now_ms + ms
        while self.hub.now_ms < end_ms:
            self.hub.now_ms = min(self.hub.now_ms + self.hub.sweep_ms, end_ms)
            self.connection.check_deadlines()

    def is_reading(self) -> bool:
        return self.transport.reading

    def is_aborted(self) -> bool:
        return self.transport.aborted

    def ends(self) -> list[str]:
        return [event.kind.value for event in self.events if event.kind != EventKind.OPENED]
