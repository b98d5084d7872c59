"""From a byte stream to requests and responses, and back. Sans-IO.

Hot path (``bench/protocol.py``).

A frame is a size (int32) and that many bytes. A request starts with

    api key int16, version int16, correlation id int32, client id nullable string, [tagged fields]

and a response with its correlation id and, in flexible versions, tagged fields. The client id is
a plain string even in flexible versions, because a broker must be able to read the header of a
request whose version it does not know.
"""

from collections.abc import Generator
from struct import Struct as BinaryStruct
from struct import error as struct_error
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.protocol.apis import API_VERSIONS_KEY, Api, api_for_key
from odradek.protocol.message import Buffer, Message, Struct
from odradek.protocol.primitives import too_many, too_short, uvarint, write_uvarint

_SIZE: Final = BinaryStruct(">i")
_SIZE_BYTES: Final = 4
_REQUEST_START: Final = BinaryStruct(">hhih")
_KEY: Final = BinaryStruct(">h")
_RESPONSE_START: Final = BinaryStruct(">ii")

FIRST_BUFFER_BYTES: Final = 4 * 1024
"""Enough for what most connections ever send at once: a group's heartbeats, a fetch, a produce."""
GROWTH: Final = 4
RECEIVE_BUFFER_BYTES: Final = 256 * 1024
"""A read that fills the buffer makes it grow up to here, whatever the size of its frames."""
KEPT_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
"""A buffer that grew is kept up to here: growing anew costs ten times what reading does."""

STEP_ELEMENTS: Final = 100
"""Of a large array, encoded without a pause: topics with their partitions or their configs."""

HEADER_TAGS_MAX: Final = 64
"""No known client sends any; a peer that is not logged in yet can send millions."""


class FrameReader:
    """Reassembles frames from a byte stream, in a buffer the transport reads straight into.

    The transport fills ``writable()`` and says how much with ``wrote(count)``, or hands over a
    chunk with ``receive(chunk)``; then ``next_frame()`` until it gives None. A frame is a view into
    the buffer, good until the next ``writable()`` or ``receive()``: requests are handled on the
    spot.

    A broker has thousands of these, most of which carry a heartbeat now and then: the buffer
    begins small, and grows when a read has filled it. A busy connection soon has one that takes
    all that the socket holds in one read.

    What a read has of the next frame moves to the front of the same buffer: a new one would be
    fresh memory for every megabyte or two. A large frame is read to its end and no further, so
    that there is nothing to move.
    """

    __slots__ = ("_buffer", "_end", "_peak", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._start = 0  # first byte not yet handed out
        self._end = 0  # one past the last byte received
        self._peak = 0  # the most that ``_end`` was since the buffer was last fitted

    def writable(self) -> memoryview:
        """Return free space, never empty."""
        end = self._end
        if end > self._peak:
            self._peak = end
        if self._start == end:
            if end:
                size = len(self._buffer)
                if size > KEPT_BUFFER_BYTES_MAX:
                    self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
                elif end == size < RECEIVE_BUFFER_BYTES:
                    self._buffer = bytearray(min(GROWTH * size, RECEIVE_BUFFER_BYTES))
                self._start = self._end = 0
            return memoryview(self._buffer)
        frame_bytes = self._unfinished_bytes()
        if end == len(self._buffer) or self._start + frame_bytes > len(self._buffer):
            self._make_room(frame_bytes)
        stop = self._start + frame_bytes
        if frame_bytes > RECEIVE_BUFFER_BYTES and stop <= len(self._buffer):
            return memoryview(self._buffer)[self._end : stop]
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
        start, end = self._start + _SIZE_BYTES, self._end
        if start > end:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        # Checked before the body arrives: a hostile size must not make us wait for 2 GiB.
        if not 0 <= size <= self.frame_bytes_max:
            raise CorruptionError(f"frame of {size} bytes, limit is {self.frame_bytes_max}")
        stop: int = start + size
        if stop > end:
            return None
        self._start = stop
        return memoryview(self._buffer)[start:stop]

    def next_key(self) -> int:
        """Return the API key of the next request, be it whole or not; -1 if it has not come."""
        start = self._start + _SIZE.size
        if start + _KEY.size > self._end:
            return -1
        (key,) = _KEY.unpack_from(self._buffer, start)
        return int(key)

    def _unfinished_bytes(self) -> int:
        """Return the size of the next frame, its own size included; 0 if it is whole or unknown."""
        start, unread = self._start, self._end - self._start
        if unread < _SIZE_BYTES:
            return 0
        (size,) = _SIZE.unpack_from(self._buffer, start)
        is_possible = unread - _SIZE_BYTES < size <= self.frame_bytes_max
        return _SIZE_BYTES + size if is_possible else 0

    def _make_room(self, frame_bytes: int) -> None:
        """See to it that there is space behind what is unread; in another buffer if need be.

        The new size follows the bytes that came, not the size the peer claims, so that a peer
        pays in traffic for every byte of ours. A new buffer and not a resize: frames handed out
        earlier are views that pin the old one.
        """
        buffer, start, end = self._buffer, self._start, self._end
        unread = end - start
        is_grown = len(buffer) >= RECEIVE_BUFFER_BYTES
        if start and is_grown and max(frame_bytes, 2 * unread) <= len(buffer):
            view = memoryview(buffer)
            view[:unread] = view[start:end]
        elif end < len(buffer):
            return  # it takes a larger one, but first the bytes that pay for it
        else:
            wanted = max(min(GROWTH * len(buffer), RECEIVE_BUFFER_BYTES), 2 * unread)
            if frame_bytes > unread:
                wanted = min(wanted, frame_bytes + -frame_bytes % RECEIVE_BUFFER_BYTES)
            self._buffer = bytearray(wanted)
            self._buffer[:unread] = memoryview(buffer)[start:end]
        self._start, self._end = 0, unread

    def fit(self) -> None:
        """Give back most of the buffer if no more than a part of it was used since the last call.

        To be called now and then, between reads. Frames handed out earlier stay good.
        """
        wanted = max(FIRST_BUFFER_BYTES, GROWTH * max(self._peak, self._end))
        if self._start == self._end and len(self._buffer) > wanted:
            self._buffer = bytearray(wanted)
            self._start = self._end = 0
        self._peak = self._end

    @property
    def buffer_bytes(self) -> int:
        """What the buffer takes of memory now."""
        return len(self._buffer)


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
        if version >= api.flexible_from:
            # One byte says that there are no tags, as in nearly every request.
            position = _skip_header_tags(frame, position) if frame[position] else position + 1
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise CorruptionError(f"request header: {error}") from error
    request = Request(api, version, correlation_id, client_id, frame[position:])
    is_known = api.version_known_min <= version <= api.version_max
    if not is_known and not request.is_unknown_api_versions:
        api.check_known(version)
    return request


def request_bytes(request: Request) -> bytes:
    """Return a request as it came, header included and without its size.

    Put together from its parts, so that requests need not keep their frames. Tagged fields of the
    header are left out: none is known, and they are between the client and the broker.
    """
    name = b"" if request.client_id is None else request.client_id.encode()
    size = -1 if request.client_id is None else len(name)
    start = _REQUEST_START.pack(request.api.key, request.version, request.correlation_id, size)
    tags = b"\0" if request.api.is_flexible(request.version) else b""
    return b"".join((start, name, tags, request.body))


def response_frame(data: Buffer) -> list[Buffer]:
    """Return the frame of a response that is encoded already, header included."""
    return [_SIZE.pack(len(data)), data]


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
    if version >= api.flexible_from and api.response_header_version(version):
        out.append(0)
    return _frame(message, version, out)


def frame_response_in_steps(
    message: Message, array: str, api: Api, version: int, correlation_id: int
) -> Generator[None, None, list[Buffer]]:
    """Return a whole response frame, yielding after every ``STEP_ELEMENTS`` of one of its arrays.

    Encoding the response to a request for ten thousand topics takes longer than a broker can be
    away. The array must be a field of the message itself, and no records may be in it.

    An encoder is one function for a whole message. So the message is encoded without the array
    and with parts of it: what comes before and after the elements is the same each time.
    """
    elements = getattr(message, array)
    empty = _encoded(message, array, [], version)
    one = _encoded(message, array, elements[:1], version)
    # The first difference is in the count: 1 for none and 2 for one if compact, else 0 and 1.
    differs = next(at for at, (a, b) in enumerate(zip(empty, one, strict=False)) if a != b)
    is_compact = empty[differs] == 1
    before = differs if is_compact else differs + 1 - _SIZE.size
    after = len(empty) - differs - 1
    out = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if api.response_header_version(version):
        out.append(0)
    out += empty[:before]
    out += _count(len(elements), is_compact)
    for start in range(0, len(elements), STEP_ELEMENTS):
        yield
        part = elements[start : start + STEP_ELEMENTS]
        encoded = _encoded(message, array, part, version)
        out += memoryview(encoded)[
            before + len(_count(len(part), is_compact)) : len(encoded) - after
        ]
    out += empty[len(empty) - after :]
    _SIZE.pack_into(out, 0, len(out) - _SIZE.size)
    return [out]


def _encoded(message: Message, array: str, part: list[Struct], version: int) -> bytearray:
    whole = getattr(message, array)
    setattr(message, array, part)
    try:
        out = bytearray()
        parts: list[Buffer] = []
        parts.append(message.encode_after(out, parts, version))
        assert len(parts) == 1, "no records"
        return out
    finally:
        setattr(message, array, whole)


def _count(elements: int, is_compact: bool) -> bytes:
    if not is_compact:
        return _SIZE.pack(elements)
    out = bytearray()
    write_uvarint(out, elements + 1)
    return bytes(out)


def _frame(message: Message, version: int, start: bytearray) -> list[Buffer]:
    parts: list[Buffer] = []
    parts.append(message.encode_after(start, parts, version))
    # Messages without records, nearly all of them, come in one piece.
    total = len(start) if len(parts) == 1 else sum(map(len, parts))
    _SIZE.pack_into(start, 0, total - _SIZE.size)
    return parts
