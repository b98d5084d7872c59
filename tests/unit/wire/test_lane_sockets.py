"""A lane on real sockets: TLS and a login, a broker that goes and comes back, bad addresses."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import uvloop

from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.message import Message
from odradek.wire.lane import Address, Lane, LaneError, LaneFailure, LaneSettings
from odradek.wire.sasl.login import Login
from tests.certificates import make_pki
from tests.unit.net.net_harness import on_loop
from tests.unit.wire.sasl.test_sasl_connection import FakeBroker

SECONDS_MAX = 80_000


def lane_to(find: Callable[[], Address | None], **others: object) -> Lane:
    settings = LaneSettings(
        "node-1",
        request_timeout_ms=SECONDS_MAX,
        connect_timeout_ms=SECONDS_MAX,
        backoff_ms=1,
        **others,  # type: ignore[arg-type]
    )
    return Lane("socket", find, settings, Random(1))


def ask(lane: Lane) -> "asyncio.Future[Message]":
    answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    lane.send(MetadataRequest(topics=[]), answered.set_result, answered.set_exception)
    return answered


@asynccontextmanager
async def listening(
    broker: FakeBroker, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    server = await asyncio.start_server(broker.accept, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in broker.served:
            task.cancel()
        await asyncio.gather(*broker.served, return_exceptions=True)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    return make_pki(tmp_path_factory.mktemp("lane-pki"))


def test_a_lane_logs_in_through_tls(pki: Path) -> None:
    @on_loop
    async def story() -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(pki / "server.pem", pki / "server.key")
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.load_verify_locations(pki / "ca.pem")
        broker = FakeBroker()
        async with listening(broker, tls=server) as port:
            login = Login("PLAIN", "ann", "secret")
            lane = lane_to(lambda: ("localhost", port), tls=client, login=login)
            assert isinstance(await ask(lane), MetadataResponse)
            assert broker.asked == ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata"]
            lane.close()

    story()


@on_loop
async def test_a_wrong_password_fails_a_request_in_words() -> None:
    async with listening(FakeBroker()) as port:
        lane = lane_to(lambda: ("127.0.0.1", port), login=Login("PLAIN", "ann", "wrong"))
        with pytest.raises(LaneError, match="no such user") as caught:
            await ask(lane)
        assert caught.value.failure is LaneFailure.UNREACHABLE
        lane.close()


@on_loop
async def test_a_lane_comes_back_after_its_peer_does() -> None:
    async with listening(FakeBroker()) as port:
        lane = lane_to(lambda: ("127.0.0.1", port))
        await ask(lane)
    for _ in range(3):
        with pytest.raises(LaneError):
            await ask(lane)
    async with listening(FakeBroker(), port):
        assert isinstance(await ask(lane), MetadataResponse)
        lane.close()


@pytest.mark.parametrize("address", [("127.0.0.1", 70_000), ("a" * 70 + ".test", 9092), ("", -1)])
def test_an_address_that_cannot_be_one_is_a_failure_like_others(address: Address) -> None:
    @on_loop
    async def story() -> None:
        lane = lane_to(lambda: address)
        with pytest.raises(LaneError) as caught:
            await ask(lane)
        assert caught.value.failure is LaneFailure.UNREACHABLE
        lane.close()

    story()


@on_loop
async def test_a_login_that_is_renewed_holds_requests_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.wire.connection._SESSION_SHARE", 0.0001)
    broker = FakeBroker(lifetime_ms=60_000)  # so a session is renewed every 6 ms
    async with listening(broker) as port:
        lane = lane_to(lambda: ("127.0.0.1", port), login=Login("PLAIN", "ann", "secret"))
        while broker.count("SaslAuthenticate") < 5:
            assert isinstance(await ask(lane), MetadataResponse)
        lane.close()


def test_a_request_without_any_time_left_does_not_hold_up_the_next_one() -> None:
    """uvloop makes no timer of a deadline that has come: it has no ``when``."""
    failed: list[LaneError] = []

    async def run() -> None:
        lane = lane_to(lambda: None)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(error: LaneError) -> None:
            failed.append(error)
            if len(failed) == 2:
                done.set_result(None)

        for _ in range(2):
            lane.send(MetadataRequest(topics=[]), print, fail, timeout_ms=0)
        await done
        lane.close()

    uvloop.run(run())
    assert len(failed) == 2
