"""What a client may cost: connections, descriptors, memory for what it does not read."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.net.server import ConnectionInfo, EventKind, Listener, Reply, ServerLimits
from odradek.protocol.framing import RECEIVE_BUFFER_BYTES, Request
from odradek.protocol.message import Buffer
from tests.unit.net.net_harness import (
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

ROOT = Path(__file__).parents[3]


@on_loop
async def test_connections_over_the_limit_are_refused_and_places_come_back() -> None:
    async with serving(Echo(), ServerLimits(connections_max=2)) as up:
        first, second = await up.connect(), await up.connect()
        third = await up.connect()
        assert await third.expect_close() == b""
        assert await first.ask(b"1") == b"1"
        assert await second.ask(b"2") == b"2"
        assert up.details(EventKind.REFUSED) == ["2 connections, the limit is 2"]
        assert up.server.counters.refused == 1
        await first.close()
        await until(lambda: up.server.connection_count == 1)
        fourth = await up.connect()
        assert await fourth.ask(b"4") == b"4"
        for client in (second, third, fourth):
            await client.close()


@on_loop
async def test_connections_of_one_address_are_limited() -> None:
    limits = ServerLimits(connections_per_ip_max=1, connections_per_ip_overrides={"127.0.0.3": 0})
    async with serving(Echo(), limits, [Listener("PLAINTEXT", "0.0.0.0", 0)]) as up:
        _, port = up.server.endpoints["PLAINTEXT"]

        async def is_served(source: str) -> bool:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(source, 0)
            )
            writers.append(writer)
            writer.write(frame(b""))
            try:
                return await reader.read(1) != b""
            except ConnectionResetError:
                return False

        writers: list[asyncio.StreamWriter] = []
        assert await is_served("127.0.0.1")
        assert not await is_served("127.0.0.1")
        assert await is_served("127.0.0.2")
        assert not await is_served("127.0.0.3")
        for writer in writers:
            writer.transport.abort()


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_accepting_pauses_and_comes_back() -> None:
    # In a process of its own: brokers that other tests use would lose their disk by it.
    story = (
        "from tests.unit.net.test_net_limits import accept_without_descriptors as story; story()"
    )
    subprocess.run([sys.executable, "-c", story], cwd=ROOT, check=True, timeout=180)


@on_loop
async def accept_without_descriptors() -> None:
    async with serving(Echo(), ServerLimits(accept_pause_ms=20)) as up:
        client = await up.connect()
        late = socket.socket()
        started = time.monotonic()
        with no_descriptors_left():
            late.connect(up.server.endpoints["PLAINTEXT"])  # the backlog takes it
            await until(lambda: up.server.counters.events[EventKind.ACCEPT_FAILED] >= 2)
            assert await client.ask(b"still") == b"still"
            failed = up.server.counters.events[EventKind.ACCEPT_FAILED]
            # One more at the start, and one for timers that count in whole milliseconds.
            assert failed <= (time.monotonic() - started) / 0.020 + 2
        await until(lambda: up.server.connection_count == 2)
        late.close()
        await client.close()


@on_loop
async def test_a_client_that_does_not_read_is_not_served_on() -> None:
    """2,000 small requests ask for 128 MB; what nobody takes is never made."""
    large = b"x" * 64_000

    def handler(request: Request, info: ConnectionInfo, reply: Reply) -> None:
        reply(response(large, request.correlation_id))

    async with serving(handler) as up:
        lazy, other = await up.connect(), await up.connect()
        lazy.writer.transport.pause_reading()  # type: ignore[attr-defined]
        lazy.send(b"".join(frame(b"", number) for number in range(2000)))
        await until(lambda: up.server.counters.bytes_out > 1024 * 1024)
        for number in range(50):
            assert await other.ask(b"", number) == large
        assert up.server.counters.bytes_out < 30_000_000
        lazy.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(2000):
            assert await lazy.receive() == (number, large)
        await lazy.close()
        await other.close()


def test_reading_stops_a_little_ahead_of_a_pending_request() -> None:
    held = Held()
    bench = Workbench(held, ServerLimits(read_ahead_bytes_max=1000))
    bench.receive(frame(b"1"))
    bench.receive(frame(b"2" * 500))
    assert bench.is_reading()
    bench.receive(frame(b"3" * 500))
    assert not bench.is_reading()
    held.answer()
    bench.run_due()
    assert bench.is_reading()
    held.answer()
    bench.run_due()
    assert [payload for _, payload, _ in held.pending] == [b"3" * 500]


def test_reading_goes_on_for_a_large_frame_that_nothing_blocks() -> None:
    bench = Workbench(Echo(), ServerLimits(read_ahead_bytes_max=1000))
    large = b"x" * (3 * RECEIVE_BUFFER_BYTES)
    bench.receive(frame(large)[:-1])
    assert bench.is_reading()
    bench.receive(b"x")
    assert bench.transport.written.endswith(large)


def test_a_congested_client_is_neither_read_nor_served() -> None:
    echo = Echo()
    bench = Workbench(echo)
    bench.receive(frame(b"1"))
    bench.connection.pause_writing()
    assert not bench.is_reading()
    bench.receive(frame(b"2"))  # was on its way
    assert len(echo.seen) == 1
    bench.connection.resume_writing()
    assert bench.is_reading()
    bench.run_due()
    assert len(echo.seen) == 2


def test_a_read_full_of_requests_is_not_read_on_before_its_turn() -> None:
    echo = Echo()
    bench = Workbench(echo, ServerLimits(requests_per_turn_max=2, read_ahead_bytes_max=50))
    bench.receive(frame(b"") * 10)
    assert len(echo.seen) == 2
    assert not bench.is_reading()
    for _ in range(5):
        bench.run_due()
    assert len(echo.seen) == 10
    assert bench.is_reading()


def test_the_replies_of_one_read_leave_in_one_write() -> None:
    bench = Workbench(Echo())
    bench.receive(frame(b"") * 64)
    assert bench.transport.writes == 1


def test_large_responses_to_one_read_do_not_pile_up() -> None:
    """Ten small requests in one read, 60 bytes of answer each, room for 100: the rest must wait."""
    echo = Echo()
    bench = Workbench(echo, ServerLimits(write_buffer_bytes_max=100))

    class FullAfter(FakeTransport):
        def write(self, data: Buffer) -> None:
            super().write(data)
            if len(self.written) > 100:
                bench.connection.pause_writing()

    bench.transport = FullAfter()
    bench.connection.connection_made(bench.transport)
    bench.receive(frame(b"x" * 52) * 10)
    assert len(echo.seen) == 2
    bench.connection.resume_writing()
    bench.run_due()
    assert len(echo.seen) == 4


def test_places_come_back_address_by_address() -> None:
    hub = Workbench(Echo(), ServerLimits(connections_per_ip_max=1)).hub
    (member,) = hub.members
    assert hub.find_refusal("10.0.0.1") is not None
    assert hub.find_refusal("10.0.0.2") is None
    hub.release(member)
    hub.release(member)
    assert hub.find_refusal("10.0.0.1") is None
    assert not hub._count_by_host, "a table that grows with every address ever seen"
