"""A connection to a broker, for tests that speak the protocol themselves, in any version."""

import socket
from types import TracebackType
from typing import Self, TypeVar

from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import FrameReader, frame_request, open_response
from odradek.protocol.message import Message

TIMEOUT_SECONDS = 120
FRAME_BYTES_MAX = 64 * 1024 * 1024

R = TypeVar("R", bound=Message)


class BrokerConnection:
    def __init__(self, port: int, client_id: str | None = "test") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._client_id = client_id
        self._sent = 0
        self._answered = 0

    def ask(self, request: Message, response: type[R], version: int | None = None) -> R:
        """Return the answer; without ``version`` the newest one is spoken."""
        self.send(request, version)
        return self.receive(response, version)

    def send(self, request: Message, version: int | None = None) -> None:
        api = api_for_key(request.ID)
        version = api.version_max if version is None else version
        self._sent += 1
        frame = frame_request(request, api, version, self._sent, self._client_id)
        self.socket.sendall(b"".join(frame))

    def receive(self, response: type[R], version: int | None = None) -> R:
        """Return the next answer; what was sent before its request is not answered any more."""
        api = api_for_key(response.ID)
        version = api.version_max if version is None else version
        correlation_id, body = open_response(self._receive(), api, version)
        assert self._answered < correlation_id <= self._sent
        self._answered = correlation_id
        return response.decode(body, version)

    def _receive(self) -> memoryview:
        while (frame := self._reader.next_frame()) is None:
            chunk = self.socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the broker hung up")
            self._reader.receive(chunk)
        return frame

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
