"""Bytes that are not Kafka's close the connection they come on, cost no memory, hurt no other."""

import random
import resource
import ssl
import struct

import pytest

from odradek.net.server import EventKind, ServerLimits
from tests.unit.net.net_harness import Echo, frame, on_loop, serving, until


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HUGE_CLIENT_ID = struct.pack(">ihhih", 10, 18, 0, 0, 32767)
# ApiVersions 3 is flexible: its header ends in a count of tagged fields.
MANY_TAGS = struct.pack(">ihhih", 15, 18, 3, 0, -1) + b"\xff\xff\xff\xff\x0f"
HOSTILE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": client_hello(),
    "negative size": struct.pack(">i", -1),
    "size of minus two billion": b"\x80\x00\x00\x00",
    "size of two billion": b"\x7f\xff\xff\xff",
    "one over the limit": struct.pack(">i", 104857601),
    "empty frame": struct.pack(">i", 0),
    "unknown api": struct.pack(">ihhih", 10, 9999, 0, 0, -1),
    "negative api": struct.pack(">ihhih", 10, -1, 0, 0, -1),
    "unknown version": struct.pack(">ihhih", 10, 3, 99, 0, -1),
    "short header": struct.pack(">ih", 2, 18),
    "client id past the end": HUGE_CLIENT_ID,
    "many tags": MANY_TAGS,
}


@pytest.mark.parametrize("name", HOSTILE)
@on_loop
async def test_hostile_bytes_close_only_their_connection(name: str) -> None:
    async with serving(Echo()) as up:
        good, bad = await up.connect(), await up.connect()
        assert await good.ask(b"before") == b"before"
        bad.send(HOSTILE[name])
        assert await bad.expect_close() == b""
        assert await good.ask(b"after") == b"after"
        assert up.kinds().count("rejected") == 1
        assert "failed" not in up.kinds()
        await good.close()
        await bad.close()


@pytest.mark.parametrize(("name", "hint"), [("http", "HTTP"), ("tls", "TLS")])
@on_loop
async def test_the_event_says_what_the_peer_seems_to_be(name: str, hint: str) -> None:
    async with serving(Echo()) as up:
        client = await up.connect()
        client.send(HOSTILE[name])
        await client.expect_close()
        (detail,) = up.details(EventKind.REJECTED)
        assert hint in detail
        await client.close()


@on_loop
async def test_random_bytes_cost_no_memory() -> None:
    """A thousand clients send noise and go; what they claim is never set aside."""
    noise = random.Random(4)
    async with serving(Echo()) as up:
        good = await up.connect()
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for round_number in range(1000):
            bad = await up.connect()
            bad.send(noise.randbytes(noise.randrange(1, 2000)))
            if round_number % 2:
                bad.send(struct.pack(">i", 104857600))
            await bad.close()
        assert await good.ask(b"still") == b"still"
        await until(lambda: up.server.connection_count == 1)
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        assert grown_kib < 30 * 1024
        assert up.server.counters.events[EventKind.FAILED] == 0
        await good.close()


@on_loop
async def test_a_claimed_size_is_not_set_aside() -> None:
    async with serving(Echo()) as up:
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        clients = [await up.connect() for _ in range(20)]
        for client in clients:
            client.send(struct.pack(">i", 104857600) + b"x" * 100)
        await until(lambda: up.server.counters.bytes_in == 20 * 104)
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        assert grown_kib < 30 * 1024
        for client in clients:
            await client.close()


@on_loop
async def test_a_frame_of_exactly_the_limit_passes() -> None:
    async with serving(Echo(), ServerLimits(frame_bytes_max=1000)) as up:
        client = await up.connect()
        assert await client.ask(b"x" * 990) == b"x" * 990
        client.send(frame(b"x" * 991))
        assert await client.expect_close() == b""
        assert "limit is 1000" in up.details(EventKind.REJECTED)[0]
        await client.close()
