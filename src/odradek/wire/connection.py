"""One connection to one broker: requests out, responses back in the order they were asked.

Versions are agreed on when it opens: each request goes out in the newest version that both ends
know, or the newest up to ``version_max`` where the caller cannot do more. A response's bytes are
its own: record batches in it stay good for as long as they are referred to.

With SASL the client logs in before all else, and again before its session ends (KIP-368): that goes
through the same connection, and no other request may come between its messages, so they wait.

A connection that breaks fails all that wait for it; it is not opened again, its owner makes a new
one. Nothing here retries.
"""

import asyncio
import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from odradek.core.errors import CorruptionError, ErrorCode
from odradek.protocol.apis import Api, api_for_key
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.message import Message
from odradek.wire.connection_metrics import NO_METRICS, ConnectionMetrics
from odradek.wire.errors import (
    AuthenticationError,
    ConnectionLostError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedError,
    check,
)
from odradek.wire.response_reader import ResponseReader
from odradek.wire.sasl.exchange import HANDSHAKE_VERSION, authenticate
from odradek.wire.sasl.login import Login

FRAME_BYTES_MAX: Final = (1 << 31) - 1
SOFTWARE_NAME: Final = "odradek"
SOFTWARE_VERSION: Final = "0.1.0"
_API_VERSIONS_FALLBACK: Final = 0
_SESSION_SHARE: Final = 0.85
"""When a session is renewed: Java's clients do so between 85 and 95 percent of it."""

R = TypeVar("R", bound=Message)
Request = Message | Callable[[int], Message]


class Answered(Protocol):
    """What gets an answer, or what happened instead: a future, or something quicker."""

    def done(self) -> bool:
        """Whether it waits no longer."""
        ...

    def set_result(self, answer: Message, /) -> None:
        """Take the answer, from within the call that brought it: it must not raise."""
        ...

    def set_exception(self, error: Exception, /) -> None: ...


class _InFlight(NamedTuple):
    correlation_id: int
    api: Api
    version: int
    answered: Answered
    sent_ms: float


class Versions:
    """What a broker speaks."""

    def __init__(self, response: ApiVersionsResponse) -> None:
        self._ranges = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }
        self.features: Mapping[str, int] = {
            each.name: each.max_version_level for each in response.finalized_features
        }

    def newest(self, api: Api, version_max: int | None = None) -> int:
        """Return the version to speak.

        Raises:
            UnsupportedError: There is none that both know.
        """
        theirs = self._ranges.get(api.key)
        ours = api.version_stable_max if version_max is None else version_max
        if theirs is None:
            raise UnsupportedError(f"the broker does not know {api.name}")
        version = min(ours, theirs[1])
        if version < max(api.version_known_min, theirs[0]):
            known = f"{theirs[0]}-{theirs[1]}"
            raise UnsupportedError(
                f"{api.name} {ours} is not among what the broker knows ({known})"
            )
        return version

    def range_of(self, api_key: int) -> tuple[int, int] | None:
        """Return the first and the last version of an API; None if it is not spoken."""
        return self._ranges.get(api_key)

    def knows(self, api_key: int, version: int = 0) -> bool:
        theirs = self._ranges.get(api_key)
        return theirs is not None and version <= theirs[1]


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self,
        client_id: str,
        metrics: ConnectionMetrics | None = None,
        response_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self._client_id = client_id
        self._metrics = metrics or NO_METRICS
        self._reader = ResponseReader(response_bytes_max)
        self._in_flight: deque[_InFlight] = deque()
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None
        self._failure: Exception | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_paused = False
        self._is_logging_in = False
        self._idle = asyncio.Event()
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self.versions = Versions(ApiVersionsResponse())
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the connection is gone, for whatever reason."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
        metrics: ConnectionMetrics | None = None,
        timeout_ms: int = 10_000,
        response_bytes_max: int = FRAME_BYTES_MAX,
    ) -> "Connection":
        """Connect, agree on versions, and log in.

        Raises:
            ConnectionLostError: Nobody answers there, or not as a broker does.
            AuthenticationError: The broker knows us not.
        """
        loop = asyncio.get_running_loop()
        server_hostname = host if tls is not None else None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: cls(client_id, metrics, response_bytes_max),
                    host,
                    port,
                    ssl=tls,
                    server_hostname=server_hostname,
                )
                try:
                    await connection._agree()
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError as error:
            raise ConnectionLostError(f"{host}:{port}: no answer in {timeout_ms} ms") from error
        except (OSError, ConnectionLostError) as error:
            problem = _why_not(error, has_tls=tls is not None)
            raise ConnectionLostError(f"{host}:{port}: {problem}") from error
        if login is not None:
            try:
                await connection._log_in(login, timeout_ms)
            except AuthenticationError:
                connection._metrics.on_login(is_good=False)
                raise
            connection._metrics.on_login(is_good=True)
        return connection

    async def _agree(self) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        api = api_for_key(request.ID)
        answer = await self._send(request, api, api.version_stable_max)
        assert isinstance(answer, ApiVersionsResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self._send(ApiVersionsRequest(), api, _API_VERSIONS_FALLBACK)
            assert isinstance(answer, ApiVersionsResponse)
        check(answer.error_code, about="ApiVersions")
        self.versions = Versions(answer)

    # Who we are.

    async def _log_in(self, login: Login, timeout_ms: float) -> None:
        """Log in, and have it done again in time; the connection is given up if that fails."""

        async def ask(request: Message, response: type[R]) -> R:
            api = api_for_key(response.ID)
            version = self.versions.newest(api)
            if response is SaslHandshakeResponse and version < HANDSHAKE_VERSION:
                raise UnsupportedError("the broker is too old for SASL as it is since Kafka 1.0")
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    answer = await self.post(request, api, version)
            except TimeoutError as error:
                raise KafkaTimeoutError(f"{api.name}: no answer in {timeout_ms} ms") from error
            assert isinstance(answer, response)
            return answer

        self._set_barriers(is_logging_in=True)
        try:
            # Answers come in order: a JoinGroup that waits for others would look like no answer.
            while self._in_flight:
                self._idle.clear()
                await self._idle.wait()
            lifetime_ms = await authenticate(ask, login)
        except BaseException as error:
            given_up = ConnectionLostError("the login was given up")
            self._fail(error if isinstance(error, KafkaError) else given_up)
            raise
        self._set_barriers(is_logging_in=False)
        if lifetime_ms > 0:
            wait = lifetime_ms / 1000 * _SESSION_SHARE
            loop = asyncio.get_running_loop()
            self._renewal = loop.call_later(wait, self._renew, login, timeout_ms)

    def _renew(self, login: Login, timeout_ms: float) -> None:
        self._renewal = asyncio.get_running_loop().create_task(self._log_in(login, timeout_ms))
        # Whoever waits for an answer is told what went wrong; the next connection will be as well.
        self._renewal.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _set_barriers(
        self, *, is_paused: bool | None = None, is_logging_in: bool | None = None
    ) -> None:
        """Hold requests back while the peer does not read, or wants to see who we are first."""
        if is_paused is not None:
            self._is_paused = is_paused
        if is_logging_in is not None:
            self._is_logging_in = is_logging_in
        if self._failure is None and (self._is_paused or self._is_logging_in):
            self._writable.clear()
        else:
            self._writable.set()

    @property
    def is_open(self) -> bool:
        return self._failure is None and self._transport is not None

    @property
    def is_writable(self) -> bool:
        """Whether more can be sent now: a peer that does not read fills the transport up."""
        return self._writable.is_set()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    async def ask(
        self,
        request: Request,
        response: type[R],
        *,
        timeout_ms: float = 30_000,
        version_max: int | None = None,
    ) -> R:
        """Send a request and return its response.

        A request that differs from version to version is given as a function of the version.

        Raises:
            ConnectionLostError: The connection broke before the answer came.
            KafkaTimeoutError: No answer came in time; the connection is given up.
            UnsupportedError: The broker does not know the API.
        """
        api = api_for_key(response.ID)
        version = self.versions.newest(api, version_max)
        if not isinstance(request, Message):
            request = request(version)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self._send(request, api, version)
        except TimeoutError as error:
            # Answers come in order: those behind this one would wait as well.
            self._fail(KafkaTimeoutError(f"{api.name}: no answer in {timeout_ms:.0f} ms"))
            raise KafkaTimeoutError(f"{api.name}: no answer in {timeout_ms:.0f} ms") from error
        assert isinstance(answer, response)
        return answer

    async def tell(self, request: Message, *, version_max: int | None = None) -> None:
        """Send a request that is not answered (Produce with acks=0)."""
        api = api_for_key(request.ID)
        self._write(request, api, self.versions.newest(api, version_max))
        await self._writable.wait()

    def post(self, request: Message, api: Api, version: int) -> "asyncio.Future[Message]":
        """Send at once; the answer comes to the future, with no limit on how long that may take.

        For those who keep an order of their own and look at ``is_writable`` first.

        Raises:
            ConnectionLostError: The connection is gone.
        """
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.post_for(answered, request, api, version)
        return answered

    def post_for(self, answered: Answered, request: Message, api: Api, version: int) -> None:
        """As ``post``; the answer comes to ``answered``."""
        sent_ms = self._write(request, api, version)
        self._in_flight.append(_InFlight(self._correlation_id, api, version, answered, sent_ms))

    def post_unanswered(self, request: Message, api: Api, version: int) -> None:
        """Send at once what is not answered (Produce with acks=0)."""
        self._write(request, api, version)

    async def wait_writable(self) -> None:
        """Return when more can be sent, or the connection is gone."""
        await self._writable.wait()

    def give_up(self, failure: KafkaError) -> None:
        """Close, and tell all who wait why."""
        self._fail(failure)

    async def _send(self, request: Message, api: Api, version: int) -> Message:
        while not self._writable.is_set():
            await self._writable.wait()
        return await self.post(request, api, version)

    def _write(self, request: Message, api: Api, version: int) -> float:
        """Write a request; return when that was."""
        if self._failure is not None or self._transport is None:
            raise self._failure or ConnectionLostError("not connected")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = frame_request(request, api, version, self._correlation_id, self._client_id)
        self._transport.writelines(frame)
        now_ms = self._metrics.clock()
        self._metrics.on_request(sum(map(len, frame)), now_ms)
        return now_ms

    def close(self) -> None:
        self._fail(ConnectionLostError("the connection was closed"))

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        self._metrics.on_connected()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.wrote(nbytes)
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._on_frame(frame)
        except CorruptionError as error:
            self._fail(ConnectionLostError(f"the broker's answer makes no sense: {error}"))

    def _on_frame(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise CorruptionError("an answer that nobody waits for")
        asked = self._in_flight[0]  # until it is decoded: bad bytes fail it with the others
        correlation_id, body = open_response(frame, asked.api, asked.version)
        if correlation_id != asked.correlation_id:
            raise CorruptionError(f"an answer to {correlation_id}, not to {asked.correlation_id}")
        version = asked.version
        if asked.api.name == "ApiVersions" and _is_refusal(body):
            version = _API_VERSIONS_FALLBACK
        self._metrics.on_response(asked.api.name, len(frame), asked.sent_ms)
        answer = asked.api.response().decode(body, version)
        self._in_flight.popleft()
        if not asked.answered.done():
            asked.answered.set_result(answer)
        if not self._in_flight:
            self._idle.set()

    def pause_writing(self) -> None:
        self._set_barriers(is_paused=True)

    def resume_writing(self) -> None:
        self._set_barriers(is_paused=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionLostError(f"the connection broke: {exc or 'closed by the broker'}"))

    def _fail(self, failure: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._writable.set()
        self._idle.set()
        if self._renewal is not None:
            self._renewal.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._metrics.on_closed()
        waiting, self._in_flight = self._in_flight, deque()
        for each in waiting:
            if not each.answered.done():
                each.answered.set_exception(failure)
        if not self.closed.done():
            self.closed.set_result(None)


def _is_refusal(body: memoryview) -> bool:
    """Whether an ApiVersions response says UNSUPPORTED_VERSION: it then has version 0 (KIP-511)."""
    return int.from_bytes(body[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


def _why_not(error: Exception, *, has_tls: bool) -> str:
    """Return why a connection could not be made, with a hint where the port may be the wrong one.

    A broker that gets TLS on a port without it takes the hello for a huge frame and hangs up; one
    that gets no TLS where it wants it sends an alert, or hangs up as well.
    """
    text = str(error)
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in text:
        return "connection refused: nothing listens there"
    if isinstance(error, socket.gaierror):
        return f"the host is not known: {text}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return text
    if has_tls:
        problem = text or "the broker hung up"
        return f"the TLS handshake failed: {problem} (does the port speak TLS? security.protocol)"
    if isinstance(error, ConnectionLostError | ConnectionResetError):
        return f"{text or 'the broker hung up'} (does the port want TLS? security.protocol)"
    return text or "no connection"
