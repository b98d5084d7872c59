"""The metrics over HTTP: what is there, what is not, and peers that mean no good."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from odradek.broker.metrics import endpoint as endpoint_module
from odradek.broker.metrics.endpoint import CONNECTIONS_MAX, REQUEST_BYTES_MAX, Endpoint
from odradek.testing.broker import Broker
from tests.unit.broker.metrics_scrape import Scrape

SECONDS_MAX = 120


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body, of which there must be as much as was said."""
        async with asyncio.timeout(SECONDS_MAX):
            data = await self.reader.read()
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert int(headers["Content-Length"]) == len(body)
        assert headers["Connection"] == "close"
        return int(status.split(" ")[1]), headers, body


Connect = Callable[[], Awaitable[Peer]]


@asynccontextmanager
async def serving(broker: Broker) -> AsyncIterator[Connect]:
    endpoint = Endpoint(broker.node, "127.0.0.1", 0)
    await endpoint.start()
    port = urlsplit(endpoint.url).port
    peers: list[Peer] = []

    async def connect() -> Peer:
        peers.append(Peer(*await asyncio.open_connection("127.0.0.1", port)))
        return peers[-1]

    try:
        yield connect
    finally:
        for peer in peers:
            peer.writer.close()
        await endpoint.stop()


def ask(request: bytes) -> tuple[int, dict[str, str], bytes]:
    async def main() -> tuple[int, dict[str, str], bytes]:
        async with Broker() as broker, serving(broker) as connect:
            peer = await connect()
            peer.writer.write(request)
            return await peer.answer()

    return asyncio.run(main())


def test_metrics_are_prometheus_text() -> None:
    status, headers, body = ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert Scrape(body).value("kafka_brokers") == 1


def test_a_node_that_serves_is_healthy() -> None:
    status, _, body = ask(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert (status, body) == (200, b"ok\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../secret HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", 405),
        (b"\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX + b"\r\n\r\n", 431),
        (b"x" * 10 * REQUEST_BYTES_MAX, 431),
    ],
)
def test_anything_else_is_refused(request_: bytes, status: int) -> None:
    assert ask(request_)[0] == status


def test_who_sends_a_lot_hears_the_answer_all_the_same() -> None:
    async def main() -> int:
        async with Broker() as broker, serving(broker) as connect:
            peer = await connect()
            for _ in range(64):
                peer.writer.write(b"x" * (1 << 16))
                await peer.writer.drain()
            return (await peer.answer())[0]

    assert asyncio.run(asyncio.wait_for(main(), SECONDS_MAX)) == 431


def test_before_the_node_is_ready_it_says_so() -> None:
    async def main() -> tuple[int, int]:
        async with Broker() as broker:
            node = broker.node
        # Stopped by now: it is as little ready as one that starts.
        assert not node.is_ready
        statuses = []
        endpoint = Endpoint(node, "127.0.0.1", 0)
        await endpoint.start()
        for path in (b"/healthz", b"/metrics"):
            peer = Peer(*await asyncio.open_connection("127.0.0.1", urlsplit(endpoint.url).port))
            peer.writer.write(b"GET " + path + b" HTTP/1.1\r\n\r\n")
            statuses.append((await peer.answer())[0])
            peer.writer.close()
        await endpoint.stop()
        return statuses[0], statuses[1]

    assert asyncio.run(main()) == (503, 503)


def test_who_is_slow_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "PEER_SECONDS_MAX", 0.05)

    async def main() -> int:
        async with Broker() as broker, serving(broker) as connect:
            peer = await connect()
            peer.writer.write(b"GET /metrics HTTP/1.1\r\n")  # and then nothing
            return (await peer.answer())[0]

    assert asyncio.run(main()) == 408


def test_who_does_not_hang_up_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "PEER_SECONDS_MAX", 1.0)

    async def main() -> None:
        async with Broker() as broker, serving(broker) as connect:
            status = 408
            while status == 408:  # this process stood still for longer than a peer may
                peer = await connect()
                peer.writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
                status = (await peer.answer())[0]
            assert status == 200
            with pytest.raises(ConnectionError):
                await chatter_on(peer)

    asyncio.run(asyncio.wait_for(main(), SECONDS_MAX))


async def chatter_on(peer: Peer) -> None:
    while True:
        peer.writer.write(b"x" * 1000)
        await peer.writer.drain()
        await asyncio.sleep(0)


def test_too_many_at_a_time_are_sent_away_and_room_is_made_again() -> None:
    async def main() -> None:
        async with Broker() as broker, serving(broker) as connect:
            idle = []
            for _ in range(CONNECTIONS_MAX):
                idle.append(await connect())
            status = 0
            while status != 503:  # the server may not have seen all of them yet
                crowded = await connect()
                crowded.writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
                status = await status_of(crowded)
            for peer in idle:
                peer.writer.close()
            while status != 200:
                peer = await connect()
                peer.writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
                status = await status_of(peer)

    asyncio.run(asyncio.wait_for(main(), SECONDS_MAX))


async def status_of(peer: Peer) -> int:
    """Return the status, or 503 if the peer was cut off: it may write after it is sent away."""
    try:
        return (await peer.answer())[0]
    except ConnectionError:
        return 503


def test_clients_have_their_turn_while_the_text_is_made() -> None:
    async def main() -> int:
        async with Broker(topics={"t": 50}) as broker, serving(broker) as connect:
            peer = await connect()
            peer.writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            turns = 0
            answer = asyncio.ensure_future(peer.answer())
            while not answer.done():
                turns += 1
                await asyncio.sleep(0)
            return turns

    assert asyncio.run(main()) > 50


def test_a_port_in_use_is_refused_with_its_address() -> None:
    async def main(port: int) -> None:
        async with Broker() as broker:
            await Endpoint(broker.node, "127.0.0.1", port).start()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            asyncio.run(main(port))
