"""TLS listeners, client certificates, and what happens at the wrong door.

The certificates are made by the ``openssl`` command.
"""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from odradek.net.server import EventKind, Listener, ServerLimits, TlsSettings
from odradek.net.settings import ClientAuth
from odradek.net.tls import server_context
from tests.unit.net.net_harness import (
    PLAIN,
    Client,
    Echo,
    Held,
    Serving,
    frame,
    on_loop,
    serving,
    until,
)

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


def openssl(folder: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def sign(folder: Path, name: str, ca: str) -> None:
    key = f"-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key"
    openssl(folder, f"req {key} -subj /CN={name} -out {name}.csr")
    (folder / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    openssl(
        folder,
        f"x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days 2"
        f" -extfile san -out {name}.pem",
    )


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder: one CA signed ``server`` and ``client``, another signed ``stranger``."""
    folder = tmp_path_factory.mktemp("pki")
    for ca in ("ca", "other"):
        key = f"-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {ca}.key"
        openssl(folder, f"req -x509 {key} -subj /CN={ca} -days 2 -out {ca}.pem")
    sign(folder, "server", "ca")
    sign(folder, "client", "ca")
    sign(folder, "stranger", "other")
    openssl(folder, "ec -in server.key -aes128 -passout pass:secret -out locked.key")
    return folder


def tls_listener(pki: Path, client_auth: ClientAuth = "none") -> Listener:
    settings = TlsSettings(
        pki / "server.pem", pki / "server.key", ca_file=pki / "ca.pem", client_auth=client_auth
    )
    return Listener("SSL", "127.0.0.1", 0, "SSL", settings)


def client_context(pki: Path, name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pki / "ca.pem"))
    if name is not None:
        context.load_cert_chain(pki / f"{name}.pem", pki / f"{name}.key")
    return context


async def is_served(up: Serving, context: ssl.SSLContext) -> bool:
    try:
        client = await up.connect("SSL", context)
    except (OSError, ssl.SSLError):
        return False
    try:
        # In TLS 1.3 a client learns with its first read that its certificate was not liked.
        return await client.ask(b"x") == b"x"
    except (OSError, asyncio.IncompleteReadError):
        return False
    finally:
        await client.close()


@on_loop
async def test_requests_over_tls(pki: Path) -> None:
    echo = Echo()
    async with serving(echo, listeners=[PLAIN, tls_listener(pki)]) as up:
        client = await up.connect("SSL", client_context(pki))
        large = bytes(range(256)) * 8000
        assert await client.ask(large) == large
        client.send(b"".join(frame(b"x" * (number % 50), number) for number in range(1000)))
        for number in range(1000):
            assert await client.receive() == (number, b"x" * (number % 50))
        assert (echo.seen[0].listener, echo.seen[0].security_protocol) == ("SSL", "SSL")
        await client.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_loop
async def test_tls_versions(pki: Path, version: ssl.TLSVersion) -> None:
    async with serving(Echo(), listeners=[tls_listener(pki)]) as up:
        context = client_context(pki)
        context.minimum_version = context.maximum_version = version
        assert await is_served(up, context)


@pytest.mark.parametrize(
    ("client_auth", "certificate", "served"),
    [
        ("none", None, True),
        ("none", "stranger", True),
        ("requested", None, True),
        ("requested", "client", True),
        ("requested", "stranger", False),
        ("required", None, False),
        ("required", "client", True),
        ("required", "stranger", False),
    ],
)
@on_loop
async def test_client_auth(
    pki: Path, client_auth: ClientAuth, certificate: str | None, served: bool
) -> None:
    async with serving(Echo(), listeners=[tls_listener(pki, client_auth)]) as up:
        assert await is_served(up, client_context(pki, certificate)) == served
        await until(lambda: up.server.connection_count == 0)
        kinds = up.kinds()
        assert kinds == (["opened", "closed"] if served else ["rejected"])


@on_loop
async def test_plaintext_at_a_tls_port_is_rejected(pki: Path) -> None:
    async with serving(Echo(), listeners=[tls_listener(pki)]) as up:
        client = await up.connect("SSL")
        client.send(frame(b"hello"))
        await client.expect_close()
        await until(lambda: up.server.connection_count == 0)
        assert up.kinds() == ["rejected"]
        assert "no TLS handshake" in up.details(EventKind.REJECTED)[0]
        assert await is_served(up, client_context(pki))
        await client.close()


@on_loop
async def test_a_peer_that_leaves_in_the_handshake_is_forgotten(pki: Path) -> None:
    async with serving(Echo(), listeners=[tls_listener(pki)]) as up:
        client = await up.connect("SSL")
        client.send(b"\x16\x03\x01")
        await until(lambda: up.server.connection_count == 1)
        await client.close()
        await until(lambda: up.server.connection_count == 0)
        assert up.kinds() == ["rejected"]


@on_loop
async def test_a_handshake_has_a_deadline_and_a_place(pki: Path) -> None:
    limits = ServerLimits(handshake_ms_max=100, connections_max=1)
    async with serving(Echo(), limits, [tls_listener(pki)]) as up:
        silent = await up.connect("SSL")
        await until(lambda: up.server.connection_count == 1)
        refused = await up.connect("SSL")
        assert await refused.expect_close() == b""
        assert await silent.expect_close() == b""
        await until(lambda: up.server.connection_count == 0)
        assert up.kinds() == ["refused", "rejected"]
        await silent.close()
        await refused.close()


@on_loop
async def test_bad_bytes_inside_tls_close_the_connection(pki: Path) -> None:
    async with serving(Echo(), ServerLimits(close_ms_max=50), [tls_listener(pki)]) as up:
        client = await up.connect("SSL", client_context(pki))
        client.send(frame(b"ok", 1) + b"\xff" * 100)
        assert await client.receive() == (1, b"ok")
        assert await client.expect_close() == b""
        await until(lambda: up.server.connection_count == 0)
        assert up.kinds() == ["opened", "rejected"]
        await client.close()


@on_loop
async def test_a_tls_client_that_does_not_read_is_not_served_on(pki: Path) -> None:
    echo = Echo()
    async with serving(echo, listeners=[tls_listener(pki)]) as up:
        client = await up.connect("SSL", client_context(pki))
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        payload = b"x" * 500_000
        sending = asyncio.create_task(send_many(client, payload, 100))
        await until(lambda: up.server.counters.bytes_out > 5_000_000)
        other = await up.connect("SSL", client_context(pki))
        for _ in range(20):
            assert await other.ask(b"y") == b"y"
        assert up.server.counters.bytes_out < 30_000_000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(100):
            assert await client.receive() == (number, payload)
        await sending
        await asyncio.gather(client.close(), other.close())


async def send_many(client: Client, payload: bytes, count: int) -> None:
    for number in range(count):
        client.send(frame(payload, number))
        await client.writer.drain()


@on_loop
async def test_stop_answers_over_tls_and_ends_handshakes(pki: Path) -> None:
    held = Held()
    async with serving(held, ServerLimits(handshake_ms_max=10**6), [tls_listener(pki)]) as up:
        busy = await up.connect("SSL", client_context(pki))
        silent = await up.connect("SSL")
        busy.send(frame(b"a", 1))
        await until(lambda: len(held.pending) == 1 and up.server.connection_count == 2)
        stopping = asyncio.create_task(up.server.stop(grace_ms=10_000))
        assert await silent.expect_close() == b""
        held.answer()
        assert await busy.receive() == (1, b"a")
        assert await busy.expect_close() == b""
        await stopping
        await asyncio.gather(busy.close(), silent.close())


def test_settings_that_cannot_work_are_refused(pki: Path) -> None:
    certificate, key = pki / "server.pem", pki / "server.key"
    with pytest.raises(ValueError, match="needs the CA"):
        server_context(TlsSettings(certificate, key, client_auth="required"))
    with pytest.raises(ValueError, match="cannot use the certificate"):
        server_context(TlsSettings(pki / "absent.pem", key))
    with pytest.raises(ValueError, match="cannot use the certificate"):
        server_context(TlsSettings(certificate, pki / "client.key"))
    with pytest.raises(ValueError, match="cannot use the certificate"):
        server_context(TlsSettings(certificate, pki / "locked.key"))
    with pytest.raises(ValueError, match="cannot use the CA"):
        server_context(TlsSettings(certificate, key, ca_file=key))
    with pytest.raises(ValueError, match="no such ciphers"):
        server_context(TlsSettings(certificate, key, ciphers="ROT13"))
    locked = TlsSettings(certificate, pki / "locked.key", key_password="secret")
    assert server_context(locked).minimum_version == ssl.TLSVersion.TLSv1_2


@on_loop
async def test_an_ssl_listener_without_a_certificate_does_not_start() -> None:
    with pytest.raises(ValueError, match="no certificate"):
        async with serving(Echo(), listeners=[Listener("SSL", "127.0.0.1", 0, "SSL")]):
            pass
