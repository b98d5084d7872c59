"""A connection that logs in, and logs in again: against a broker that says what it is told to."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from odradek.client.errors import AuthenticationError, ConnectionLostError, KafkaTimeoutError
from odradek.core.errors import ErrorCode
from odradek.protocol.framing import FrameReader, frame_response, open_request
from odradek.protocol.generated.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.generated.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.generated.sasl_authenticate import SaslAuthenticateResponse
from odradek.protocol.generated.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.message import Message
from odradek.wire import connection as connection_module
from odradek.wire.connection import Connection
from odradek.wire.sasl.login import Login

SECONDS_MAX = 120
LIFETIME_MS = 60_000
KNOWN = {18: 4, 3: 12, 17: 1, 36: 2}


class FakeBroker:
    """Knows one password. Remembers what it was asked; may be slow with Metadata."""

    def __init__(self, lifetime_ms: int = 0) -> None:
        self.lifetime_ms = lifetime_ms
        self.password = b"\0ann\0secret"
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.is_silent = False
        self.served: list[asyncio.Task[None]] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served.append(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                await self._serve(reader, writer)
        finally:
            writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(1 << 20)
        while chunk := await reader.read(65536):
            frames.receive(chunk)
            while (frame := frames.next_frame()) is not None:
                request = open_request(frame)
                self.asked.append(request.api.name)
                answer = await self._answer(request.api.name, request.decode())
                if answer is not None:
                    told = (request.api, request.version, request.correlation_id)
                    writer.writelines(frame_response(answer, *told))

    async def _answer(self, name: str, request: Message) -> Message | None:
        if name == "ApiVersions":
            versions = [ApiVersion(api_key=k, max_version=v) for k, v in KNOWN.items()]
            return ApiVersionsResponse(api_keys=versions)
        if name == "SaslHandshake":
            return None if self.is_silent else SaslHandshakeResponse(mechanisms=["PLAIN"])
        if name == "SaslAuthenticate":
            if getattr(request, "auth_bytes") != self.password:  # noqa: B009  # of one message only
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                return SaslAuthenticateResponse(error_code=code, error_message="no such user")
            return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)
        await self.may_answer.wait()
        return MetadataResponse()

    def count(self, name: str) -> int:
        return self.asked.count(name)


def run(
    broker_lifetime_ms: int,
    scenario: Callable[[FakeBroker, Callable[..., Awaitable[Connection]]], Awaitable[None]],
) -> None:
    async def main() -> None:
        broker = FakeBroker(broker_lifetime_ms)
        server = await asyncio.start_server(broker.accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def connect(password: str = "secret", timeout_ms: int = 60_000) -> Connection:
            login = Login("PLAIN", "ann", password)
            return await Connection.open(
                "127.0.0.1", port, client_id="c", login=login, timeout_ms=timeout_ms
            )

        async with asyncio.timeout(SECONDS_MAX):
            await scenario(broker, connect)
            await asyncio.gather(*broker.served)
        server.close()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def ask(connection: Connection) -> None:
    await connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_ms=60_000)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are renewed after 6 ms, long before they end."""
    monkeypatch.setattr(connection_module, "_SESSION_SHARE", 0.0001)


def test_a_client_logs_in_before_all_else() -> None:
    async def scenario(broker: FakeBroker, connect: Callable[..., Awaitable[Connection]]) -> None:
        connection = await connect()
        await ask(connection)
        assert broker.asked == ["ApiVersions", "SaslHandshake", "SaslAuthenticate", "Metadata"]
        connection.close()

    run(0, scenario)


def test_a_refused_client_hears_it_in_the_brokers_words() -> None:
    async def scenario(broker: FakeBroker, connect: Callable[..., Awaitable[Connection]]) -> None:
        with pytest.raises(AuthenticationError, match="no such user") as told:
            await connect("wrong-secret")
        assert "wrong-secret" not in str(told.value)
        assert not told.value.retriable

    run(0, scenario)


def test_a_broker_that_is_silent_is_given_up() -> None:
    async def scenario(broker: FakeBroker, connect: Callable[..., Awaitable[Connection]]) -> None:
        broker.is_silent = True
        while not broker.count("SaslHandshake"):  # the time may be over before it is asked for
            with pytest.raises(KafkaTimeoutError) as told:
                await connect(timeout_ms=50)
        assert "SaslHandshake" in str(told.value)

    run(0, scenario)


@pytest.mark.usefixtures("soon")
def test_nothing_comes_between_the_messages_of_a_renewal() -> None:
    async def scenario(broker: FakeBroker, connect: Callable[..., Awaitable[Connection]]) -> None:
        connection = await connect()
        while broker.count("SaslHandshake") < 4:
            await asyncio.gather(*(ask(connection) for _ in range(5)))
        after = [b for a, b in zip(broker.asked, broker.asked[1:], strict=False) if "Hand" in a]
        assert set(after) == {"SaslAuthenticate"}
        connection.close()

    run(LIFETIME_MS, scenario)


@pytest.mark.usefixtures("soon")
def test_a_renewal_waits_for_answers_that_are_held_back() -> None:
    async def scenario(broker: FakeBroker, connect: Callable[..., Awaitable[Connection]]) -> None:
        broker.may_answer.clear()
        connection = await connect()
        held = asyncio.create_task(ask(connection))
        await until(lambda: broker.count("Metadata") == 1 and not connection.is_writable)
        for _ in range(100):
            await asyncio.sleep(0)
        assert connection.in_flight == 1
        broker.may_answer.set()
        await held
        await until(lambda: broker.count("SaslAuthenticate") >= 2)
        await ask(connection)
        assert connection.is_open
        connection.close()

    run(LIFETIME_MS, scenario)


@pytest.mark.usefixtures("soon")
def test_a_renewal_that_fails_is_told_to_all_who_wait() -> None:
    async def scenario(broker: FakeBroker, connect: Callable[..., Awaitable[Connection]]) -> None:
        connection = await connect()
        broker.password = b"another"

        async def ask_on() -> None:
            while True:
                await ask(connection)

        with pytest.raises(AuthenticationError, match="no such user"):
            await ask_on()
        assert not connection.is_open

    run(LIFETIME_MS, scenario)


@pytest.mark.usefixtures("soon")
def test_closing_ends_renewals() -> None:
    async def scenario(broker: FakeBroker, connect: Callable[..., Awaitable[Connection]]) -> None:
        connection = await connect()
        await until(lambda: broker.count("SaslAuthenticate") >= 2)
        connection.close()
        with pytest.raises(ConnectionLostError):
            await ask(connection)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [each for each in others if "_log_in" in repr(each) and not each.cancelling()]

    run(LIFETIME_MS, scenario)
