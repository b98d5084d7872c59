"""Metrics and health over HTTP: ``GET /metrics``, ``GET /healthz``, and nothing else.

One request per connection, then it is closed: scrapers open a new one every time just as well. A
peer may send ``REQUEST_BYTES_MAX`` bytes of a request, has ``PEER_SECONDS_MAX`` to do so and as
long to take the answer, and over ``CONNECTIONS_MAX`` at a time are sent away. There is neither a
password nor TLS: it listens on 127.0.0.1 unless told otherwise, and who lets others in puts a
proxy in front.
"""

import asyncio
import logging
from typing import Final, Protocol

from odradek.broker.metrics.registry import NodeMetrics
from odradek.core.event import Event

_logger: Final = logging.getLogger("odradek.metrics")
CONNECTIONS_MAX: Final = 8
REQUEST_BYTES_MAX: Final = 8 * 1024
PEER_SECONDS_MAX: Final = 5

_METRICS, _HEALTH = b"/metrics", b"/healthz"
_PLAIN: Final = "text/plain; charset=utf-8"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Observed(Protocol):
    """The node whose metrics are served."""

    @property
    def is_ready(self) -> bool: ...

    @property
    def problems(self) -> list[str]: ...

    @property
    def metrics(self) -> NodeMetrics: ...


class Endpoint:
    def __init__(self, node: Observed, host: str, port: int) -> None:
        self._node = node
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._peers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where the metrics are; the port is the real one."""
        assert self._server is not None, "not started"
        port = self._server.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{port}/metrics"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The address is taken or not ours.
        """
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            where = f"{self._host}:{self._port}"
            problem = f"the metrics cannot be had on {where}: {error.strerror or error}"
            raise OSError(error.errno, problem) from error
        _logger.info(Event("listening", url=self.url))

    async def stop(self) -> None:
        """Stop listening, and hang up on whoever is there."""
        assert self._server is not None, "not started"
        self._server.close()
        for peer in list(self._peers):
            peer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._peers) >= CONNECTIONS_MAX:
            _write(writer, 503, "too many connections\n")
            writer.close()
            return
        self._peers.add(writer)
        try:
            status, content_type, body = await self._answer(reader)
            _write(writer, status, body, content_type)
            writer.write_eof()
            async with asyncio.timeout(PEER_SECONDS_MAX):
                await writer.drain()
                # Until the peer hangs up: a close while it still sends would cut the answer.
                while await reader.read(REQUEST_BYTES_MAX):
                    pass
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # it went, or is too slow: there is nobody to tell
        finally:
            self._peers.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str, str | bytes]:
        try:
            async with asyncio.timeout(PEER_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return 431, _PLAIN, "the request is too large\n"
        except TimeoutError:
            return 408, _PLAIN, "the request took too long\n"
        return await self._answer_to(head.split(b"\r\n", 1)[0])

    async def _answer_to(self, line: bytes) -> tuple[int, str, str | bytes]:
        words = line.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return 400, _PLAIN, "this is HTTP/1.1\n"
        method, path = words[0], words[1].split(b"?", 1)[0]
        if path not in (_METRICS, _HEALTH):
            return 404, _PLAIN, "there are /metrics and /healthz\n"
        if method != b"GET":
            return 405, _PLAIN, "GET it\n"
        if not self._node.is_ready:
            return 503, _PLAIN, "starting or stopping\n"
        if path == _HEALTH:
            problems = self._node.problems
            return (503, _PLAIN, "\n".join([*problems, ""])) if problems else (200, _PLAIN, "ok\n")
        from odradek.broker.metrics.exposition import CONTENT_TYPE

        return 200, CONTENT_TYPE, await self._text()

    async def _text(self) -> bytes:
        chunks = []
        for chunk in self._node.metrics.chunks():
            chunks.append(chunk)
            await asyncio.sleep(0)  # clients come first
        return b"".join(chunks)


def _write(
    writer: asyncio.StreamWriter,
    status: int,
    body: str | bytes,
    content_type: str = _PLAIN,
) -> None:
    data = body.encode() if isinstance(body, str) else body
    allow = "Allow: GET\r\n" if status == 405 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(data)}\r\n{allow}Connection: close\r\n\r\n"
    )
    writer.write(head.encode())
    writer.write(data)
