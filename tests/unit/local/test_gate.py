"""Bytes that wait in one direction, on real connections, and arrive when the cut is healed."""

import asyncio
from collections.abc import Awaitable, Callable

from odradek.local.gate import Gate, gated_loop

SECONDS_MAX = 60


class Echo(asyncio.Protocol):
    """A server that sends back what it gets, and keeps it."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.transports: list[asyncio.Transport] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transports.append(transport)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.transports[-1].write(data)


class Caller(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def send(self, data: bytes) -> None:
        self.transport.writelines([data])  # type: ignore[attr-defined]


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not is_true():
            await asyncio.sleep(0)


async def some_turns() -> None:
    """Let bytes that are on their way arrive: loopback needs none, and these are many turns."""
    for _ in range(200):
        await asyncio.sleep(0)


def run(story: Callable[[Gate, Echo, int], Awaitable[None]]) -> None:
    gate, echo = Gate(), Echo()

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: echo, "127.0.0.1", 0)
        async with server:
            await story(gate, echo, server.sockets[0].getsockname()[1])
            for transport in echo.transports:
                transport.abort()

    with asyncio.Runner(loop_factory=lambda: gated_loop(gate)) as runner:
        runner.run(main())


async def call(port: int) -> Caller:
    _, caller = await asyncio.get_running_loop().create_connection(Caller, "127.0.0.1", port)
    return caller


def test_what_is_sent_waits_and_arrives_in_order() -> None:
    async def story(gate: Gate, echo: Echo, port: int) -> None:
        caller = await call(port)
        caller.send(b"a")
        await until(lambda: caller.got == b"a")
        gate.hold({port: "send"})
        caller.send(b"b")
        caller.send(b"c")
        echo.transports[-1].write(b"!")
        await until(lambda: caller.got == b"a!")
        assert echo.got == b"a"
        gate.hold({})
        caller.send(b"d")
        await until(lambda: caller.got == b"a!bcd")

    run(story)


def test_what_is_received_waits_too() -> None:
    async def story(gate: Gate, echo: Echo, port: int) -> None:
        caller = await call(port)
        gate.hold({port: "receive"})
        caller.send(b"a")
        await until(lambda: echo.got == b"a")
        await some_turns()
        assert caller.got == b""
        gate.hold({port + 1: "both"})
        await until(lambda: caller.got == b"a")

    run(story)


def test_a_new_connection_waits_and_a_connection_that_is_given_up_sends_nothing() -> None:
    async def story(gate: Gate, echo: Echo, port: int) -> None:
        caller = await call(port)
        gate.hold({port: "both"})
        caller.send(b"never")
        caller.transport.abort()  # type: ignore[attr-defined]
        connecting = asyncio.ensure_future(call(port))
        await some_turns()
        assert not connecting.done()
        gate.hold({})
        (await connecting).send(b"later")
        await until(lambda: echo.got == b"later")

    run(story)
