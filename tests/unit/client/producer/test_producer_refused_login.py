"""A producer that brokers refuse after its start is told why, at once or in the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from odradek.client.errors import AuthenticationError, KafkaTimeoutError
from odradek.client.producer import Producer
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.framing import FrameReader, frame_response, open_request
from odradek.protocol.generated.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.generated.init_producer_id import InitProducerIdResponse
from odradek.protocol.generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.generated.sasl_authenticate import SaslAuthenticateResponse
from odradek.protocol.generated.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.message import Message

SECONDS_MAX = 120
HOST = "127.0.0.1"
VERSIONS = {0: 9, 3: 12, 17: 1, 18: 4, 22: 4, 36: 2}
"""By key: Produce, Metadata, SaslHandshake, ApiVersions, InitProducerId, SaslAuthenticate."""
HOUR_MS = 3_600_000


class ForgetfulBroker:
    """Believes everybody until it is asked a certain thing: then it hangs up, and nobody."""

    def __init__(self, until: str) -> None:
        self._until = until
        self._believes = True
        self._served: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return f"{HOST}:{self._port}"

    async def close(self) -> None:
        self._server.close()
        await asyncio.gather(*self._served)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._served.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader(1 << 20)
        with suppress(ConnectionError):
            while (chunk := await reader.read(65536)) and not writer.is_closing():
                frames.receive(chunk)
                while (frame := frames.next_frame()) is not None:
                    request = open_request(frame)
                    if request.api.name == self._until:
                        self._believes = False
                        writer.close()
                        break
                    told = (request.api, request.version, request.correlation_id)
                    writer.writelines(frame_response(self._answer(request.api.name), *told))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    def _answer(self, name: str) -> Message:
        match name:
            case "ApiVersions":
                versions = [ApiVersion(api_key=k, max_version=v) for k, v in VERSIONS.items()]
                return ApiVersionsResponse(api_keys=versions)
            case "SaslHandshake":
                return SaslHandshakeResponse(mechanisms=["PLAIN"])
            case "SaslAuthenticate" if self._believes:
                return SaslAuthenticateResponse()
            case "SaslAuthenticate":
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                return SaslAuthenticateResponse(error_code=code, error_message="ann has left")
            case "InitProducerId":
                return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        assert name == "Metadata"
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=0)
        topic = MetadataResponseTopic(name="t", topic_id=Uuid(16), partitions=[partition])
        broker = MetadataResponseBroker(node_id=1, host=HOST, port=self._port)
        return MetadataResponse(brokers=[broker], topics=[topic])


@asynccontextmanager
async def producer_of(until: str) -> AsyncIterator[Producer]:
    broker = ForgetfulBroker(until)
    producer = Producer(
        bootstrap_servers=await broker.start(),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="ann",
        sasl_password="secret",
        linger_ms=0,
        request_timeout_ms=HOUR_MS // 2,
        delivery_timeout_ms=HOUR_MS // 2,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
    )
    async with asyncio.timeout(SECONDS_MAX):
        await producer.start()
        try:
            yield producer
        finally:
            await producer.close(0)
            await broker.close()


def test_a_record_that_waits_for_a_broker_that_refuses_us_is_told_why_in_the_end() -> None:
    async def main() -> None:
        async with producer_of("Produce") as producer:
            sent, sender = await producer.send("t", b"x"), producer._sender
            while not any(node.problem for node in sender._nodes.values()):
                assert not sent.done()
                await asyncio.sleep(0.001)
            now_ms = sender.now_ms
            sender.now_ms = lambda: now_ms() + HOUR_MS  # type: ignore[method-assign]
            sender.wake()
            with pytest.raises(KafkaTimeoutError, match=r"NETWORK_EXCEPTION.*ann has left") as late:
                await sent
            assert isinstance(late.value.__cause__, AuthenticationError)

    asyncio.run(main())


def test_who_is_refused_a_producer_id_is_told_at_once() -> None:
    """As with Java's client: without one nothing could ever be sent."""

    async def main() -> None:
        async with producer_of("InitProducerId") as producer:
            with pytest.raises(AuthenticationError, match="ann has left"):
                await (await producer.send("t", b"x"))

    asyncio.run(main())
