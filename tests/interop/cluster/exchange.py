"""A relay between nodes of a cluster that keeps what they say to each other, decoded by us.

    with Exchange() as exchange:
        port = exchange.relay("controller 3001", upstream_port)
        ...                                     # nodes speak to `port`
        print("\\n".join(transcript(exchange.calls())))

Everything must decode with our protocol classes, and encode to the same bytes again: what does not
is in `exchange.problems`. A node's lanes show as the client ids of its connections.
"""

import socket
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from types import TracebackType
from typing import NamedTuple, Self

from odradek.core.errors import OdradekError
from odradek.protocol.framing import (
    FrameReader,
    Request,
    frame_response,
    open_request,
    open_response,
)
from odradek.protocol.message import Message
from tests.interop.ports import HOST

FRAME_BYTES_MAX = 64 << 20
RECEIVE_BYTES = 1 << 16
CONNECT_SECONDS_MAX = 10.0
SIZE_BYTES = 4


class Call(NamedTuple):
    """A request and its response; None while the response has not come."""

    server: str
    client_id: str | None
    api: str
    version: int
    request: Message
    response: Message | None


@dataclass
class _Pending:
    request: Request
    message: Message
    index: int


@dataclass
class _Talk:
    """One connection: what was asked and is not answered yet, oldest first."""

    server: str
    pending: deque[_Pending] = field(default_factory=deque)


class Exchange:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self._calls: list[Call] = []
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._closed = False

    def relay(self, server: str, upstream_port: int, port: int = 0) -> int:
        """Listen for ``server``, which is at ``upstream_port``; return where."""
        listener = socket.create_server((HOST, port))
        self._sockets.append(listener)
        threading.Thread(
            target=self._accept, args=(listener, server, upstream_port), daemon=True
        ).start()
        address: tuple[str, int] = listener.getsockname()
        return address[1]

    def calls(self) -> list[Call]:
        """Return what has been said so far, in the order of the requests."""
        with self._lock:
            return list(self._calls)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            open_ones = list(self._sockets)
        for each in open_ones:
            _shut(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self, listener: socket.socket, server: str, upstream_port: int) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection((HOST, upstream_port), CONNECT_SECONDS_MAX)
            except OSError:
                _shut(client)  # as if the node itself were not there
                continue
            upstream.settimeout(None)
            with self._lock:
                self._sockets += [client, upstream]
            talk = _Talk(server)
            for source, target, is_request in ((client, upstream, True), (upstream, client, False)):
                threading.Thread(
                    target=self._pump, args=(source, target, talk, is_request), daemon=True
                ).start()

    def _pump(
        self, source: socket.socket, target: socket.socket, talk: _Talk, is_request: bool
    ) -> None:
        """Hand bytes on as they come, after a look at the frames that they complete."""
        reader = FrameReader(FRAME_BYTES_MAX)
        try:
            while data := source.recv(RECEIVE_BYTES):
                reader.receive(data)
                while (frame := reader.next_frame()) is not None:
                    self._look(bytes(frame), talk, is_request)
                target.sendall(data)
        except OSError:
            pass  # a node is gone, or the relay is closed
        finally:
            _shut(source)
            _shut(target)

    def _look(self, frame: bytes, talk: _Talk, is_request: bool) -> None:
        try:
            with self._lock:
                (self._on_request if is_request else self._on_response)(frame, talk)
        except (OdradekError, AssertionError) as problem:
            kind = "request" if is_request else "response"
            self.problems.append(f"a {kind} to {talk.server} is not understood: {problem!r}")

    def _on_request(self, frame: bytes, talk: _Talk) -> None:
        request = open_request(memoryview(frame))
        message = request.decode()
        if message.to_bytes(request.version) != bytes(request.body):
            self.problems.append(f"{message} does not encode to what came")
        name, version = request.api.name, request.version
        call = Call(talk.server, request.client_id, name, version, message, None)
        talk.pending.append(_Pending(request, message, len(self._calls)))
        self._calls.append(call)

    def _on_response(self, frame: bytes, talk: _Talk) -> None:
        asked = talk.pending.popleft()
        api, version = asked.request.api, asked.request.version
        correlation_id, body = open_response(memoryview(frame), api, version)
        assert correlation_id == asked.request.correlation_id, "answers come in another order"
        message = api.response().decode(body, version)
        again = b"".join(frame_response(message, api, version, correlation_id))[SIZE_BYTES:]
        if again != frame:
            self.problems.append(f"{message} does not encode to what came")
        self._calls[asked.index] = self._calls[asked.index]._replace(response=message)


def transcript(calls: Iterable[Call]) -> list[str]:
    """Return what was said, a line for each call; repetitions of one are counted."""
    lines = []
    for (server, client_id, api, version), run in groupby(calls, key=lambda call: call[:4]):
        same = list(run)
        times = f" x {len(same)}" if len(same) > 1 else ""
        lines.append(f"{client_id} -> {server}: {api} v{version}{times}")
        lines.append(f"    {same[0].request}")
        lines.append(f"    {same[0].response}")
    return lines


def spoken(calls: Iterable[Call]) -> dict[str, tuple[int, ...]]:
    """Return the versions of each API that was used."""
    versions: dict[str, set[int]] = {}
    for call in calls:
        versions.setdefault(call.api, set()).add(call.version)
    return {name: tuple(sorted(versions[name])) for name in sorted(versions)}


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
