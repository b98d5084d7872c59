"""Frames from a byte stream, each in memory of its own (hot path: ``bench/client_consumer.py``).

A broker's answers may be large, and record batches in them live on after the next one has come. So
what is large is received straight into the memory where it stays, and only what is small is copied.
Unlike ``protocol.framing.FrameReader``, which serves peers that nobody knows, this believes the
size that a frame claims; up to a limit, beyond which memory follows the bytes that came.
"""

from struct import Struct
from typing import Final

from odradek.core.errors import CorruptionError

_SIZE: Final = Struct(">i")
_SCRATCH_BYTES: Final = 64 * 1024
_BELIEVED_BYTES_MAX: Final = 64 * 1024 * 1024


class ResponseReader:
    """The transport fills ``writable()`` and says how much; then ``next_frame()`` until None."""

    __slots__ = ("_end", "_frame", "_frame_end", "_frame_size", "_scratch", "_start", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._start = 0
        self._end = 0
        self._frame: bytearray | None = None  # one that is larger than what has come of it
        self._frame_size = 0
        self._frame_end = 0

    def writable(self) -> memoryview:
        """Return free space, never empty."""
        if self._frame is None:
            if self._start == self._end:
                self._start = self._end = 0
            return memoryview(self._scratch)[self._end :]
        if self._frame_end == len(self._frame):
            size = min(2 * len(self._frame), self._frame_size)
            larger = bytearray(size)
            larger[: self._frame_end] = self._frame
            self._frame = larger
        return memoryview(self._frame)[self._frame_end :]

    def wrote(self, count: int) -> None:
        if self._frame is None:
            self._end += count
        else:
            self._frame_end += count

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its size, or None for "need more".

        Raises:
            CorruptionError: The size is negative or over the limit.
        """
        if self._frame is not None:
            return self._take_large()
        body = self._start + _SIZE.size
        if body > self._end:
            if self._start < self._end:
                self._make_room()
            return None
        (size,) = _SIZE.unpack_from(self._scratch, self._start)
        if not 0 <= size <= self.bytes_max:
            raise CorruptionError(f"frame of {size} bytes, limit is {self.bytes_max}")
        stop = body + size
        if stop <= self._end:
            self._start = stop
            return memoryview(self._scratch[body:stop])
        self._begin_large(body, size)
        return None

    def _begin_large(self, body: int, size: int) -> None:
        came = self._end - body
        self._frame = bytearray(min(size, max(_BELIEVED_BYTES_MAX, 2 * came)))
        self._frame[:came] = memoryview(self._scratch)[body : self._end]
        self._frame_size, self._frame_end = size, came
        self._start = self._end = 0

    def _take_large(self) -> memoryview | None:
        if self._frame is None or self._frame_end < self._frame_size:
            return None
        frame, self._frame = self._frame, None
        return memoryview(frame)

    def _make_room(self) -> None:
        """Bring the beginning of a size to the beginning of the scratch."""
        rest = bytes(self._scratch[self._start : self._end])
        self._scratch[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
