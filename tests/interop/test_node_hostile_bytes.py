"""Bytes that are no requests, thrown at the port while a client works.

The connection closes, the client goes on, memory stays flat. "Closes" is seen from the outside:
the peer reads the end of the stream, or a reset, before a deadline. Where the bytes may be the
start of a good request the node must wait for the rest, and it is the peer who hangs up.
"""

import errno
import random
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from odradek.protocol.apis import ALL_APIS, Api
from odradek.protocol.framing import RECEIVE_BUFFER_BYTES, frame_request
from odradek.protocol.generated.metadata import MetadataRequest
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.node_process import NodeProcess

DEADLINE_SECONDS = 60
GROWTH_KIB_MAX = 12 * 1024
FRAME_BYTES_MAX = 100 * 1024 * 1024  # socket.request.max.bytes
APIS = {api.name: api for api in ALL_APIS}
PRODUCE, FETCH, METADATA = APIS["Produce"], APIS["Fetch"], APIS["Metadata"]
HUGE = 2**31 - 1
RECEIVE_BUFFER_KIB = RECEIVE_BUFFER_BYTES // 1024  # what a connection has anyway


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api: Api, version: int) -> bytes:
    tags = b"\0" if api.is_flexible(version) else b""
    return struct.pack(">hhih", api.key, version, 7, 4) + b"evil" + tags


def compact(count: int) -> bytes:
    """Return the length of a compact array or string: one more, as an unsigned varint."""
    value, out = count + 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tls_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def good_request() -> bytes:
    parts = frame_request(MetadataRequest(topics=None), METADATA, 12, 1, "good")
    return b"".join(map(bytes, parts))


REFUSED = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": tls_hello(),
    "negative size": struct.pack(">i", -1) + bytes(100),
    "size above the limit": struct.pack(">i", FRAME_BYTES_MAX + 1) + bytes(100),
    "largest size": struct.pack(">i", HUGE) + bytes(100),
    "empty frame": frame(b""),
    "half a header": frame(header(METADATA, 12)[:6]),
    "client id beyond the frame": frame(struct.pack(">hhih", 3, 12, 7, 30_000)),
    "client id that is not UTF-8": frame(struct.pack(">hhih", 3, 12, 7, 2) + b"\xff\xfe\0"),
    "unknown API": frame(struct.pack(">hhih", 12_345, 0, 7, -1)),
    "API of brokers": frame(header(APIS["Vote"], 0) + bytes(20)),
    "version from the future": frame(header(METADATA, 99) + bytes(20)),
    "version from the past": frame(header(PRODUCE, 0) + bytes(20)),
    "huge count": frame(header(METADATA, 1) + struct.pack(">i", HUGE)),
    "negative count": frame(header(FETCH, 4) + struct.pack(">iiiibi", -1, 100, 1, HUGE, 0, -2)),
    "huge compact count": frame(header(METADATA, 12) + compact(2**32 - 2)),
    "endless varint": frame(header(METADATA, 12) + b"\xff" * 40),
    "huge record set": frame(
        header(PRODUCE, 3)
        + struct.pack(">hhiihs", -1, 1, 1000, 1, 1, b"t")
        + struct.pack(">iii", 1, 0, HUGE)
    ),
    "many topics in a short fetch": frame(
        header(FETCH, 4) + struct.pack(">iiiibi", -1, 100, 1, HUGE, 0, 50_000_000)
    ),
    "huge header tags": frame(header(METADATA, 12)[:-1] + compact(HUGE)),
    "garbage after a good request": good_request() + b"\xff" * 64,
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("node") / "data") as started:
        Confluent(started.bootstrap_servers).create_topic("t")
        yield started


def connect(node: NodeProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), DEADLINE_SECONDS)


def is_closed_after(node: NodeProcess, data: bytes) -> bool:
    """Send and read until the other side closes; False if it does not before the deadline."""
    with connect(node) as peer:
        try:
            peer.sendall(data)
            while peer.recv(65_536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:  # closed before it had read everything
            return True
    return True


def check_serves(node: NodeProcess) -> None:
    client = Confluent(node.bootstrap_servers)
    (place,) = client.produce("t", [Sent(b"good", b"value")])
    assert client.consume("t", 1, start=place.offset)[0].record == Sent(b"good", b"value")


@pytest.mark.parametrize("name", REFUSED)
def test_the_connection_closes(node: NodeProcess, name: str) -> None:
    assert is_closed_after(node, REFUSED[name])


def test_a_request_that_stops_half_way_harms_nobody(node: NodeProcess) -> None:
    request = good_request()
    with ExitStack() as held:
        for size in range(1, len(request)):
            peer = held.enter_context(connect(node))
            peer.sendall(request[:size])
        check_serves(node)
    check_serves(node)


def test_announced_bytes_cost_nothing_until_they_come(node: NodeProcess) -> None:
    check_serves(node)  # so that all it needs is imported, whichever test comes first
    before = node.rss_kib()
    with ExitStack() as held:
        for _ in range(100):
            peer = held.enter_context(connect(node))
            peer.sendall(struct.pack(">i", FRAME_BYTES_MAX) + header(PRODUCE, 9) + bytes(1000))
        check_serves(node)  # after their bytes were read: one loop reads all connections
        grown = node.rss_kib() - before
    assert grown < 2 * 100 * RECEIVE_BUFFER_KIB, f"{grown} KiB"


def hostile_bytes(chance: random.Random) -> bytes:
    """Random bytes, random bytes in a frame, or a request with one byte changed."""
    match chance.randrange(3):
        case 0:
            return chance.randbytes(chance.randrange(1, 5000))
        case 1:
            api = chance.choice(ALL_APIS)
            version = chance.randrange(api.version_max + 2)
            return frame(header(api, version) + chance.randbytes(chance.randrange(500)))
        case _:
            request = bytearray(good_request())
            request[chance.randrange(4, len(request))] = chance.randrange(256)
            return bytes(request)


def hang_up(peer: socket.socket) -> None:
    """Say that no more will come, unless the other side has closed by now."""
    try:
        peer.shutdown(socket.SHUT_WR)
    except OSError as error:
        # A reset that has arrived leaves nothing to shut down; it is no ConnectionError to Python.
        if error.errno != errno.ENOTCONN:
            raise


def throw(node: NodeProcess, chance: random.Random, count: int) -> None:
    for _ in range(count):
        with connect(node) as peer, suppress(ConnectionError):
            peer.sendall(hostile_bytes(chance))
            hang_up(peer)
            while peer.recv(65_536):
                pass


@pytest.mark.slow
def test_memory_stays_flat_under_hostile_bytes(tmp_path: Path) -> None:
    seed = 1
    chance = random.Random(seed)
    with NodeProcess(tmp_path / "data") as node:
        client = Confluent(node.bootstrap_servers)
        client.create_topic("t")
        throw(node, chance, 300)
        check_serves(node)  # by now everything is imported and every buffer is as large as it gets
        before = node.rss_kib()
        for _ in range(10):
            for data in REFUSED.values():
                assert is_closed_after(node, data)
            throw(node, chance, 200)
            check_serves(node)
        grown = node.rss_kib() - before
    assert grown < GROWTH_KIB_MAX, f"{grown} KiB with seed {seed}"
