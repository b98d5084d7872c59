"""From a byte stream to requests and responses, and back. Sans-IO.

Hot path (``bench/protocol.py``).

A frame is a size (int32) and that many bytes. A request starts with

    api key int16, version int16, correlation id int32, client id nullable string, [tagged fields]

and a response with its correlation id and, in flexible versions, tagged fields. The client id is
a plain string even in flexible versions, because a broker must be able to read the header of a
request whose version it does not know.
"""

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.protocol.apis import API_VERSIONS_KEY, Api, api_for_key
from odradek.protocol.message import Buffer, Message
from odradek.protocol.primitives import too_many, too_short, uvarint

_SIZE: Final = Struct(">i")
_REQUEST_START: Final = Struct(">hhih")
_RESPONSE_START: Final = Struct(">ii")

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
KEPT_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
"""A buffer that grew is kept up to here: growing anew costs ten times what reading does."""

HEADER_TAGS_MAX: Final = 64
"""No known client sends any; a peer that is not logged in yet can send millions."""


class FrameReader:
    """Reassembles frames from a byte stream, in a buffer the transport reads straight into.

    The transport fills ``writable()`` and says how much with ``wrote(count)``, or hands over a
    chunk with ``receive(chunk)``; then ``next_frame()`` until it gives None. A frame is a view into
    the buffer, good until the next ``writable()`` or ``receive()``: requests are handled on the
    spot.
    """

    __slots__ = ("_buffer", "_end", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._start = 0  # first byte not yet handed out
        self._end = 0  # one past the last byte received

    def writable(self) -> memoryview:
        """Return free space, never empty."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > KEPT_BUFFER_BYTES_MAX:
                self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        elif self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def wrote(self, count: int) -> None:
        self._end += count
        assert self._end <= len(self._buffer)

    def receive(self, chunk: Buffer) -> None:
        view = memoryview(chunk)
        while view:
            space = self.writable()
            count = min(len(space), len(view))
            space[:count] = view[:count]
            self.wrote(count)
            view = view[count:]

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its size, or None for "need more".

        Raises:
            CorruptionError: The size is negative or over the limit; nothing that follows in the
                stream can be trusted.
        """
        start = self._start + _SIZE.size
        if start > self._end:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        # Checked before the body arrives: a hostile size must not make us wait for 2 GiB.
        if not 0 <= size <= self.frame_bytes_max:
            raise CorruptionError(f"frame of {size} bytes, limit is {self.frame_bytes_max}")
        stop = start + int(size)
        if stop > self._end:
            return None
        self._start = stop
        return memoryview(self._buffer)[start:stop]

    def _make_room(self) -> None:
        """Move the unread tail to a buffer with space behind it.

        The new size follows the bytes that came, not the size the peer claims, so that a peer
        pays in traffic for every byte of ours. A new buffer and not a resize: frames handed out
        earlier are views that pin the old one.
        """
        unread = self._end - self._start
        larger = bytearray(max(RECEIVE_BUFFER_BYTES, 2 * unread))
        larger[:unread] = memoryview(self._buffer)[self._start : self._end]
        self._buffer, self._start, self._end = larger, 0, unread


class Request(NamedTuple):
    """A request whose header has been read and whose body has not."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview

    @property
    def is_unknown_api_versions(self) -> bool:
        """Whether this is an ApiVersions request of a version from the future.

        Every other unknown version is refused. This one is answered, in version 0 and with
        UNSUPPORTED_VERSION, so that the client learns what to ask for; its body is not readable.
        """
        return self.api.key == API_VERSIONS_KEY and self.version > self.api.version_max

    def decode(self) -> Message:
        return self.api.request().decode(self.body, self.version)


def open_request(frame: memoryview) -> Request:
    """Read the header of a request.

    Raises:
        CorruptionError: Not a request, or one of an unknown API: hang up.
        ApiError: UNSUPPORTED_VERSION: hang up too, as Kafka does; the client would not expect an
            answer of another version.
    """
    try:
        key, version, correlation_id, client_id_size = _REQUEST_START.unpack_from(frame)
        api = api_for_key(key)
        position = _REQUEST_START.size
        client_id = None
        if client_id_size >= 0:
            stop = position + client_id_size
            if stop > len(frame):
                raise too_short("client id", stop - len(frame))
            client_id = str(frame[position:stop], "utf-8")
            position = stop
        if api.is_flexible(version):
            position = _skip_header_tags(frame, position)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise CorruptionError(f"request header: {error}") from error
    request = Request(api, version, correlation_id, client_id, frame[position:])
    if not request.is_unknown_api_versions:
        api.check_known(version)
    return request


def open_response(frame: memoryview, api: Api, version: int) -> tuple[int, memoryview]:
    """Return the correlation id and the body of a response."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
        position = _SIZE.size
        if api.response_header_version(version):
            position = _skip_header_tags(frame, position)
    except (struct_error, IndexError) as error:
        raise CorruptionError(f"response header: {error}") from error
    return correlation_id, frame[position:]


def _skip_header_tags(frame: memoryview, position: int) -> int:
    count, position = uvarint(frame, position)
    if count > HEADER_TAGS_MAX:
        raise too_many("tagged fields of a header", count)
    for _ in range(count):
        _, position = uvarint(frame, position)
        size, position = uvarint(frame, position)
        position += size
        if position > len(frame):
            raise too_short("a tagged field of a header", position - len(frame))
    return position


def frame_request(
    message: Message, api: Api, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """Return a whole request frame in pieces."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    out = bytearray(_SIZE.size)  # the size of the frame, known at the end
    out += _REQUEST_START.pack(api.key, version, correlation_id, size)
    out += name
    if api.is_flexible(version):
        out.append(0)
    return _frame(message, version, out)


def frame_response(message: Message, api: Api, version: int, correlation_id: int) -> list[Buffer]:
    """Return a whole response frame in pieces."""
    out = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if api.response_header_version(version):
        out.append(0)
    return _frame(message, version, out)


def _frame(message: Message, version: int, start: bytearray) -> list[Buffer]:
    parts: list[Buffer] = []
    parts.append(message.encode_after(start, parts, version))
    # Messages without records, nearly all of them, come in one piece.
    total = len(start) if len(parts) == 1 else sum(map(len, parts))
    _SIZE.pack_into(start, 0, total - _SIZE.size)
    return parts
