"""What one request costs the transport: CPU of the server's thread, on loopback.

The server echoes; its client is a process of its own, so that only the server is measured.
"""

import asyncio
import multiprocessing
import socket
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event

from bench.timing import Row
from odradek.net.event_loop import new_event_loop
from odradek.net.server import ConnectionInfo, Listener, Reply, Server
from odradek.protocol.framing import Request

SECONDS = 1.0
HEADER = struct.pack(">hhih", 18, 0, 0, -1)
ANSWER = struct.pack(">ii", 24, 0) + b"x" * 20


def _answer(request: Request, info: ConnectionInfo, reply: Reply) -> None:  # noqa: ARG001
    reply([ANSWER])


def _client(port: int, body_bytes: int, pipelined: int, stop: Event) -> None:
    request = struct.pack(">i", len(HEADER) + body_bytes) + HEADER + b"x" * body_bytes
    burst, answers = request * pipelined, len(ANSWER) * pipelined
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not stop.is_set():
            peer.sendall(burst)
            missing = answers
            while missing:
                missing -= len(peer.recv(missing))


async def _measure(body_bytes: int, pipelined: int) -> float:
    """Return the µs of CPU per request."""
    server = Server([Listener("PLAINTEXT", "127.0.0.1", 0)], _answer)
    await server.start()
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    _, port = server.endpoints["PLAINTEXT"]
    client = context.Process(target=_client, args=(port, body_bytes, pipelined, stop))
    client.start()
    while server.counters.requests < 100:
        await asyncio.sleep(0.01)
    requests, cpu = server.counters.requests, time.thread_time()
    await asyncio.sleep(SECONDS)
    cost = (time.thread_time() - cpu) / (server.counters.requests - requests)
    stop.set()
    await asyncio.to_thread(client.join)
    await server.stop(0)
    return cost * 1e6


def _loops() -> Iterator[tuple[str, Callable[[], asyncio.AbstractEventLoop]]]:
    preferred = new_event_loop()
    preferred.close()
    if not isinstance(preferred, asyncio.BaseEventLoop):
        yield "uvloop", new_event_loop
    yield "asyncio", asyncio.new_event_loop


def run() -> list[Row]:
    rows = []
    for operation, body_bytes, pipelined in (
        ("a request of 200 B", 200, 1),
        ("64 requests of 200 B in a row, each", 200, 64),
        ("a request of 100 KB", 100_000, 1),
        ("a request of 1 MB", 1_000_000, 1),
    ):
        for name, factory in _loops():
            with asyncio.Runner(loop_factory=factory) as runner:
                cost = runner.run(_measure(body_bytes, pipelined))
            rows.append(Row(operation, name, cost, "µs CPU"))
    return rows
