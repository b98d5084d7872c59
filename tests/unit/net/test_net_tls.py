"""TLS listeners, client certificates, and what happens at the wrong door.

The certificates are made by ``tests.certificates``.
"""

import asyncio
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.net.server import (
    ConnectionInfo,
    EventKind,
    Listener,
    Reply,
    ServerLimits,
    TlsSettings,
)
from odradek.net.settings import ANONYMOUS, ClientAuth, TlsSettingsError, TlsVersion
from odradek.net.tls import server_context
from odradek.protocol.framing import Request
from tests.certificates import CLIENT_PRINCIPAL, make_pki
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


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pki(tmp_path_factory.mktemp("pki"))


def tls_listener(pki: Path, client_auth: ClientAuth = "none") -> Listener:
    settings = TlsSettings(
        pki / "server.pem", pki / "server.key", ca=pki / "ca.pem", client_auth=client_auth
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
async def test_a_handshake_has_a_place(pki: Path) -> None:
    limits = ServerLimits(handshake_ms_max=10**6, connections_max=1)
    async with serving(Echo(), limits, [tls_listener(pki)]) as up:
        silent = await up.connect("SSL")
        await until(lambda: up.server.connection_count == 1)
        refused = await up.connect("SSL")
        assert await refused.expect_close() == b""
        assert up.kinds() == ["refused"]
        await silent.close()
        await refused.close()


@on_loop
async def test_a_handshake_has_a_deadline(pki: Path) -> None:
    async with serving(Echo(), ServerLimits(handshake_ms_max=100), [tls_listener(pki)]) as up:
        silent = await up.connect("SSL")
        assert await silent.expect_close() == b""
        await until(lambda: up.server.connection_count == 0)
        assert up.kinds() == ["rejected"]
        await silent.close()


@on_loop
async def test_bad_bytes_inside_tls_close_the_connection(pki: Path) -> None:
    async with serving(Echo(), listeners=[tls_listener(pki)]) as up:
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
        stopping = asyncio.create_task(up.server.stop(grace_ms=80_000))
        assert await silent.expect_close() == b""
        held.answer()
        assert await busy.receive() == (1, b"a")
        assert await busy.expect_close() == b""
        await stopping
        await asyncio.gather(busy.close(), silent.close())


@pytest.mark.parametrize(
    ("client_auth", "certificate", "principal"),
    [
        ("none", "client", ANONYMOUS),
        ("requested", None, ANONYMOUS),
        ("requested", "client", CLIENT_PRINCIPAL),
        ("required", "client", CLIENT_PRINCIPAL),
    ],
)
@on_loop
async def test_the_principal_is_known_with_the_first_request(
    pki: Path, client_auth: ClientAuth, certificate: str | None, principal: str
) -> None:
    seen: list[str] = []

    def handle(request: Request, info: ConnectionInfo, reply: Reply) -> None:
        seen.append(info.principal)
        Echo()(request, info, reply)

    async with serving(handle, listeners=[tls_listener(pki, client_auth)]) as up:
        assert await is_served(up, client_context(pki, certificate))
        assert seen == [principal]


def one_line(path: Path) -> str:
    return " ".join(path.read_text().split("\n"))


@pytest.mark.parametrize("read", [Path.read_text, one_line])
@on_loop
async def test_certificates_may_be_given_as_text(pki: Path, read: Callable[[Path], str]) -> None:
    chain = f"{read(pki / 'server.pem')} {read(pki / 'ca.pem')}"
    settings = TlsSettings(
        chain, read(pki / "server.key"), ca=read(pki / "ca.pem"), client_auth="required"
    )
    assert "PRIVATE" not in repr(settings)
    async with serving(Echo(), listeners=[Listener("SSL", "127.0.0.1", 0, "SSL", settings)]) as up:
        assert await is_served(up, client_context(pki, "client"))
        assert not await is_served(up, client_context(pki, "stranger"))


def test_settings_that_cannot_work_are_refused(pki: Path) -> None:
    certificate, key = pki / "server.pem", pki / "server.key"
    for settings, message in (
        (TlsSettings(certificate, key, client_auth="required"), "needs the CA"),
        (TlsSettings(pki / "absent.pem", key), "cannot use the certificate .*No such file"),
        (TlsSettings(certificate), "no private key in it"),
        (TlsSettings(certificate, pki / "client.key"), "cannot use the certificate"),
        (TlsSettings(certificate, pki / "locked.key"), "its password is another"),
        (TlsSettings(certificate, pki / "locked.key", "wrong"), "its password is another"),
        (TlsSettings("nonsense", "nonsense"), "cannot use the certificate given as text"),
        (TlsSettings(certificate, key, ca=key), "cannot use the CA"),
        (TlsSettings(certificate, key, ca="nonsense"), "cannot use the CA given as text"),
    ):
        with pytest.raises(TlsSettingsError, match=message) as refused:
            server_context(settings)
        assert "PRIVATE" not in str(refused.value)
    locked = TlsSettings(certificate, pki / "locked.key", key_password="secret")
    assert server_context(locked).minimum_version == ssl.TLSVersion.TLSv1_2


ECDHE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
SUITES_OF_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


@pytest.mark.parametrize(
    ("versions", "suites", "spoken"),
    [
        (("TLSv1.2", "TLSv1.3"), (), {"TLSv1.2", "TLSv1.3"}),
        (("TLSv1.2",), (), {"TLSv1.2"}),
        (("TLSv1.3",), (), {"TLSv1.3"}),
        (("TLSv1.2", "TLSv1.3"), (ECDHE,), {"TLSv1.2"}),
        (("TLSv1.2", "TLSv1.3"), SUITES_OF_1_3, {"TLSv1.3"}),
        (("TLSv1.2", "TLSv1.3"), (*SUITES_OF_1_3, ECDHE), {"TLSv1.2", "TLSv1.3"}),
    ],
)
@on_loop
async def test_versions_and_suites_that_were_not_named_are_not_spoken(
    pki: Path, versions: tuple[TlsVersion, ...], suites: tuple[str, ...], spoken: set[str]
) -> None:
    settings = TlsSettings(
        pki / "server.both.pem", versions=versions, cipher_suites=suites, ca=pki / "ca.pem"
    )
    async with serving(Echo(), listeners=[Listener("SSL", "127.0.0.1", 0, "SSL", settings)]) as up:
        for name, version in (
            ("TLSv1.2", ssl.TLSVersion.TLSv1_2),
            ("TLSv1.3", ssl.TLSVersion.TLSv1_3),
        ):
            context = client_context(pki)
            context.minimum_version = context.maximum_version = version
            assert await is_served(up, context) == (name in spoken)
        if ECDHE in suites:
            other = client_context(pki)
            other.maximum_version = ssl.TLSVersion.TLSv1_2
            other.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
            assert not await is_served(up, other)


def test_cipher_suites_have_the_names_of_the_standard(pki: Path) -> None:
    names = {
        ECDHE: "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
        "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
        "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CCM": "ECDHE-ECDSA-AES128-CCM",
    }
    settings = TlsSettings(pki / "server.both.pem", cipher_suites=tuple(names))
    allowed = [each["name"] for each in server_context(settings).get_ciphers()]
    assert [name for name in allowed if not name.startswith("TLS_")] == list(names.values())


@pytest.mark.parametrize(
    ("versions", "suites", "message"),
    [
        (("TLSv1.2",), ("ROT13",), "no such cipher suite here: ROT13"),
        (("TLSv1.2",), ("ALL",), "no such cipher suite here: ALL"),
        (("TLSv1.2",), (ECDHE, "TLS_RSA_WITH_ROT13"), "no such cipher suite"),
        (("TLSv1.2", "TLSv1.3"), (ECDHE, SUITES_OF_1_3[0]), "all together"),
        (("TLSv1.3",), (ECDHE,), "no cipher suite of TLSv1.3"),
    ],
)
def test_cipher_suites_that_cannot_be_had_are_refused(
    pki: Path, versions: tuple[TlsVersion, ...], suites: tuple[str, ...], message: str
) -> None:
    settings = TlsSettings(pki / "server.both.pem", versions=versions, cipher_suites=suites)
    with pytest.raises(TlsSettingsError, match=message):
        server_context(settings)


@on_loop
async def test_an_ssl_listener_without_a_certificate_does_not_start() -> None:
    with pytest.raises(ValueError, match="no certificate"):
        async with serving(Echo(), listeners=[Listener("SSL", "127.0.0.1", 0, "SSL")]):
            pass
