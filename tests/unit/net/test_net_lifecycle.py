"""Starting, and stopping without cutting off those who are waiting for an answer."""

import asyncio
import socket

import pytest

from odradek.net.connection import Connection
from odradek.net.server import ConnectionInfo, EventKind, Listener, Reply, Server
from odradek.protocol.framing import Request
from tests.unit.net.net_harness import (
    PLAIN,
    Echo,
    FakeTransport,
    Held,
    Workbench,
    frame,
    on_loop,
    response,
    serving,
    until,
)

GRACE_MS = 80_000


@on_loop
async def test_several_listeners_know_their_names() -> None:
    echo = Echo()
    async with serving(echo, listeners=[PLAIN, Listener("INTERNAL", "localhost", 0)]) as up:
        assert list(up.server.endpoints) == ["PLAINTEXT", "INTERNAL"]
        for name in ("PLAINTEXT", "INTERNAL"):
            client = await up.connect(name)
            await client.ask(b"")
            await client.close()
        assert [info.listener for info in echo.seen] == ["PLAINTEXT", "INTERNAL"]


@on_loop
async def test_an_empty_host_is_every_address() -> None:
    echo = Echo()
    async with serving(echo, listeners=[Listener("PLAINTEXT", "", 0)]) as up:
        _, port = up.server.endpoints["PLAINTEXT"]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(b""))
        await until(lambda: len(echo.seen) == 1)
        assert echo.seen[0].peer_host == "127.0.0.1"  # not ::ffff:127.0.0.1
        writer.transport.abort()


@on_loop
async def test_an_address_that_is_taken_names_the_listener_and_frees_the_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server([PLAIN, Listener("SECOND", "127.0.0.1", port)], Echo())
        with pytest.raises(OSError, match="listener SECOND cannot listen on"):
            await server.start()
        assert server.endpoints == {}
        await server.stop(0)


@on_loop
async def test_stop_waits_for_pending_requests_only() -> None:
    held = Held()
    async with serving(held) as up:
        busy, idle = await up.connect(), await up.connect()
        busy.send(frame(b"a", 1) + frame(b"b", 2))
        await until(lambda: len(held.pending) == 1 and up.server.connection_count == 2)
        stopping = asyncio.create_task(up.server.stop(grace_ms=GRACE_MS))
        assert await idle.expect_close() == b""
        with pytest.raises(OSError):
            await up.connect()
        assert not stopping.done()
        held.answer()
        assert await busy.receive() == (1, b"a")
        assert await busy.expect_close() == b""  # the second was not begun
        await stopping
        assert up.kinds().count("closed") == 2
        assert up.server.counters.closed == 2
        await asyncio.gather(busy.close(), idle.close())


@on_loop
async def test_stop_ends_at_the_grace_deadline() -> None:
    held = Held()
    async with serving(held) as up:
        client = await up.connect()
        client.send(frame(b""))
        await until(lambda: len(held.pending) == 1)
        await up.server.stop(grace_ms=20)
        assert up.server.connection_count == 0
        held.answer()  # too late, and no error
        assert await client.expect_close() == b""
        await client.close()


@on_loop
async def test_stop_sends_what_was_answered() -> None:
    payload = b"x" * 20_000_000
    async with serving(Echo()) as up:
        client = await up.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(frame(payload))
        await until(lambda: up.server.counters.requests == 1)
        stopping = asyncio.create_task(up.server.stop(grace_ms=GRACE_MS))
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await client.receive() == (0, payload)
        await stopping
        await client.close()


@on_loop
async def test_stop_right_after_a_connect() -> None:
    for rounds in range(6):
        server = Server([PLAIN], Echo())
        await server.start()
        client = socket.socket()
        client.connect(server.endpoints["PLAINTEXT"])
        for _ in range(rounds):
            await asyncio.sleep(0)
        await server.stop(grace_ms=0)
        assert server.connection_count == 0
        client.close()


@on_loop
async def test_close_all_drops_connections_and_goes_on() -> None:
    held = Held()
    async with serving(held) as up:
        clients = [await up.connect() for _ in range(3)]
        clients[0].send(frame(b""))
        await until(lambda: len(held.pending) == 1 and up.server.connection_count == 3)
        up.server.close_all("dropped by the test")
        for client in clients:
            assert await client.expect_close() == b""
            await client.close()
        assert up.details(EventKind.CLOSED) == ["dropped by the test"] * 3
        again = await up.connect()
        again.send(frame(b"again"))
        await until(lambda: len(held.pending) == 2)
        await again.close()


@on_loop
async def test_many_connections_come_and_go() -> None:
    async with serving(Echo()) as up:

        async def visit(number: int) -> None:
            client = await up.connect()
            assert await client.ask(b"%d" % number) == b"%d" % number
            await client.close()

        for batch in range(5):
            await asyncio.gather(*(visit(batch * 100 + number) for number in range(100)))
        await until(lambda: up.server.connection_count == 0)
        assert up.server.counters.opened == up.server.counters.closed == 500


def test_a_stop_from_inside_a_handler_lets_that_request_be_the_last() -> None:
    handled: list[int] = []

    def handler(request: Request, info: ConnectionInfo, reply: Reply) -> None:
        handled.append(request.correlation_id)
        bench.connection.stop()
        reply(response(b"bye", request.correlation_id))

    bench = Workbench(handler)
    bench.receive(frame(b"", 1) + frame(b"", 2))
    assert handled == [1]
    assert bench.transport.written.endswith(b"bye")
    assert bench.transport.closed
    assert bench.ends() == ["closed"]


def test_a_connection_that_is_made_after_the_stop_is_closed() -> None:
    bench = Workbench(Echo())
    late = Connection(bench.hub, bench.connection.info)
    late.stop()
    transport = FakeTransport()
    late.connection_made(transport)
    assert transport.closed


def test_what_comes_after_a_close_is_not_looked_at() -> None:
    """TLS hands over what it still has while it says goodbye."""
    echo = Echo()
    bench = Workbench(echo)
    bench.connection.stop()
    bench.receive(frame(b""))
    assert echo.seen == []
    assert bench.hub.counters.bytes_in == 0
