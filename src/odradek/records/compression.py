"""The four codecs of Kafka, each with a ceiling on what it may unpack to.

``gzip``    one gzip member.
``snappy``  written in the framing of xerial's Java library: a 16-byte header, then chunks of at
            most 32 KiB, each with its int32 length. Read with or without that framing, because
            clients in other languages send plain snappy.
``lz4``     one LZ4 frame of independent blocks of 64 KiB without checksums, which is all that
            Kafka's Java reader takes. Kafka wrote a wrong header checksum until message format v1
            (KAFKA-3160); ``lz4_broken_checksum`` reads and writes that one.
``zstd``    one zstandard frame.

A peer says how long the data is, so nobody believes it: streams are drained in bounded steps until
they end or pass ``output_bytes_max``, and a declared length is held against what the packed bytes
could possibly unpack to. Truncated input, bytes after the end and whatever a library complains
about are all a ``CorruptionError``.

The libraries for snappy and lz4 are imported when such data is first met: a start needs neither.
"""

import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Final, Protocol

from odradek.core.errors import CorruptionError
from odradek.records.record import Buffer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Enough for any batch that a broker with sane limits has taken; callers who know better say so.
DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024


class UnpacksTooLongError(CorruptionError):
    """Data unpacks to more than the caller can afford; it may be sound otherwise."""


class CompressionType(IntEnum):
    """The codec's number in the attributes of a batch or message."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(
    codec: CompressionType,
    data: Buffer,
    *,
    level: int | None = None,
    lz4_broken_checksum: bool = False,
) -> bytes:
    """Pack ``data``; ``level`` is Kafka's ``compression.<codec>.level``, None its default."""
    match codec:
        case CompressionType.NONE:
            return bytes(data)
        case CompressionType.GZIP:
            return _gzip_compress(data, level)
        case CompressionType.SNAPPY:
            return _snappy_compress(data)
        case CompressionType.LZ4:
            packed = _lz4_compress(data, level)
            return _with_lz4_checksum(packed, broken=True) if lz4_broken_checksum else packed
        case CompressionType.ZSTD:
            return zstd.compress(data, level=level)


class Room:
    """Memory to unpack into, again and again; what lies in it is good until the next time.

    Fresh memory for a megabyte is 250 page faults, which take longer than to unpack it.
    """

    __slots__ = ("_end", "_space")

    def __init__(self) -> None:
        self._space = bytearray()
        self._end = 0

    def clear(self) -> None:
        self._end = 0

    def add(self, chunk: bytes) -> None:
        end = self._end + len(chunk)
        if end > len(self._space):
            larger = bytearray(max(2 * len(self._space), end))
            larger[: self._end] = memoryview(self._space)[: self._end]
            self._space = larger
        self._space[self._end : end] = chunk
        self._end = end

    def view(self) -> memoryview:
        return memoryview(self._space)[: self._end]


class _Fresh(list[bytes]):
    """The same for those who keep what they unpack."""

    add = list.append

    def view(self) -> bytes:
        return self[0] if len(self) == 1 else b"".join(self)


def decompress(
    codec: int,
    data: Buffer,
    *,
    output_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    lz4_broken_checksum: bool = False,
    room: Room | None = None,
) -> Buffer:
    """Unpack ``data``, which came from a peer or a disk; into ``room`` if there is one.

    Raises:
        UnpacksTooLongError: It unpacks to more than ``output_bytes_max``.
        CorruptionError: The codec is unknown, the data is malformed, cut short or followed by
            something else.
    """
    if codec == CompressionType.NONE:
        return data
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise CorruptionError(f"unknown compression codec {codec}")
    try:
        if codec == CompressionType.LZ4 and lz4_broken_checksum:
            data = _with_lz4_checksum(data, broken=False)
        if room is None:
            return unpack(memoryview(data), output_bytes_max, _Fresh())
        room.clear()
        return unpack(memoryview(data), output_bytes_max, room)
    except _library_errors() as error:
        raise CorruptionError(f"malformed {CompressionType(codec).name.lower()} data") from error


def _too_long(output_bytes_max: int) -> CorruptionError:
    return UnpacksTooLongError(f"data unpacks to more than {output_bytes_max} bytes")


class _Stream(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: Any, max_length: int = -1) -> bytes: ...


_STEP_BYTES_MIN: Final = 64 * 1024
_STEP_BYTES_MAX: Final = 4 * 1024 * 1024


def _drain(stream: _Stream, data: Buffer, output_bytes_max: int, out: Room | _Fresh) -> Buffer:
    # In steps: some libraries allocate ``max_length`` at once, whatever the data is worth.
    step_max = _STEP_BYTES_MIN if isinstance(out, Room) else _STEP_BYTES_MAX
    step = min(max(4 * len(data), _STEP_BYTES_MIN), step_max, output_bytes_max + 1)
    total = 0
    chunk = stream.decompress(data, max_length=step)
    while True:
        out.add(chunk)
        total += len(chunk)
        if total > output_bytes_max:
            raise _too_long(output_bytes_max)
        if stream.eof:
            break
        if stream.needs_input:
            raise CorruptionError("compressed data is cut short")
        chunk = stream.decompress(b"", max_length=step)
        if not chunk and not stream.eof:
            raise CorruptionError("compressed data is cut short")
    if stream.unused_data:
        raise CorruptionError("bytes are left after the compressed data")
    return out.view()


class _GzipStream:
    """zlib's decompressor behind the interface that the other two already have."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        # Output may still be buffered inside when the input is gone: only an empty chunk tells,
        # and _drain looks for that.
        return False

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: Any, max_length: int = -1) -> bytes:
        return self._inner.decompress(data or self._inner.unconsumed_tail, max_length)


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def _gzip_decompress(data: memoryview, output_bytes_max: int, out: Room | _Fresh) -> Buffer:
    # One member only. Java would take several, but no producer writes them, and a megabyte of
    # empty members would cost a copy of the rest of the data for each.
    return _drain(_GzipStream(), data, output_bytes_max, out)


_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")  # magic, version, oldest version that can read it
_XERIAL_CHUNK_BYTES: Final = 32 * 1024
_CHUNK_LENGTH: Final = struct.Struct(">i")
# The densest thing in snappy is a copy of 64 bytes written in three.
_SNAPPY_RATIO_MAX: Final = 22


def _snappy_compress(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1))
    for start in range(0, len(view), _XERIAL_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK_BYTES]))
        out += _CHUNK_LENGTH.pack(len(chunk))
        out += chunk
    return bytes(out)


def _snappy_decompress(data: memoryview, output_bytes_max: int, out: Room | _Fresh) -> Buffer:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _raw_snappy_decompress(data, output_bytes_max)
    left = output_bytes_max
    for packed in _xerial_chunks(data):
        chunk = _raw_snappy_decompress(packed, left)
        out.add(chunk)
        left -= len(chunk)
    return out.view()


def _xerial_chunks(data: memoryview) -> Iterator[memoryview]:
    position = _XERIAL_HEADER.size
    if len(data) < position:
        raise CorruptionError("snappy header is cut short")
    while position < len(data):
        if len(data) - position < _CHUNK_LENGTH.size:
            raise CorruptionError("snappy chunk is cut short")
        (length,) = _CHUNK_LENGTH.unpack_from(data, position)
        position += _CHUNK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise CorruptionError("snappy chunk is longer than the bytes that are left, or empty")
        yield data[position : position + length]
        position += length


def _raw_snappy_decompress(data: memoryview, output_bytes_max: int) -> bytes:
    if not len(data):
        raise CorruptionError("snappy data is empty")
    import cramjam

    declared = cramjam.snappy.decompress_raw_len(data)
    if declared > output_bytes_max:
        raise _too_long(output_bytes_max)
    if declared > len(data) * _SNAPPY_RATIO_MAX:
        raise CorruptionError("snappy data declares more than it can unpack to")
    return bytes(cramjam.snappy.decompress_raw(data))


# Kafka's default level, 9, is the one that means the fast compressor; every other means LZ4 HC.
_LZ4_LEVEL_FAST: Final = 9
_LZ4_LEVEL_MAX: Final = 12


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    fast = level is None or level == _LZ4_LEVEL_FAST
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if fast or level is None else min(level, _LZ4_LEVEL_MAX),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return packed


def _lz4_decompress(data: memoryview, output_bytes_max: int, out: Room | _Fresh) -> Buffer:
    import lz4.frame

    return _drain(lz4.frame.LZ4FrameDecompressor(), data, output_bytes_max, out)


_LZ4_MAGIC_BYTES: Final = 4
_LZ4_CONTENT_SIZE_FLAG: Final = 0x08


def _with_lz4_checksum(frame: Buffer, *, broken: bool) -> bytes:
    """Return the frame with its header checksum made right, or wrong in the old way.

    The checksum is over the frame descriptor; the old code took in the magic number before it.
    """
    patched = bytearray(frame)
    if len(patched) < _LZ4_MAGIC_BYTES + 3:
        raise CorruptionError("lz4 header is cut short")
    end = _LZ4_MAGIC_BYTES + 2
    if patched[_LZ4_MAGIC_BYTES] & _LZ4_CONTENT_SIZE_FLAG:
        end += 8
    if end >= len(patched):
        raise CorruptionError("lz4 header is cut short")
    covered = patched[:end] if broken else patched[_LZ4_MAGIC_BYTES:end]
    patched[end] = _xxh32_short(covered) >> 8 & 0xFF
    return bytes(patched)


def _xxh32_short(data: bytes | bytearray) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes: a frame descriptor never has more."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    state = 374761393 + len(data)
    words = len(data) // 4
    for (word,) in struct.iter_unpack("<I", data[: words * 4]):
        state = (state + word * 3266489917) & mask
        state = ((state << 17 | state >> 15) * 668265263) & mask
    for byte in data[words * 4 :]:
        state = (state + byte * 374761393) & mask
        state = ((state << 11 | state >> 21) * 2654435761) & mask
    state = ((state ^ state >> 15) * 2246822519) & mask
    state = ((state ^ state >> 13) * 3266489917) & mask
    return state ^ state >> 16


def _zstd_decompress(data: memoryview, output_bytes_max: int, out: Room | _Fresh) -> Buffer:
    return _drain(zstd.ZstdDecompressor(), data, output_bytes_max, out)


_UNPACK: Final[dict[int, Callable[[memoryview, int, Room | _Fresh], Buffer]]] = {
    CompressionType.GZIP: _gzip_decompress,
    CompressionType.SNAPPY: _snappy_decompress,
    CompressionType.LZ4: _lz4_decompress,
    CompressionType.ZSTD: _zstd_decompress,
}


def _library_errors() -> tuple[type[Exception], ...]:
    """Return what the libraries raise; only looked at when one of them has raised something."""
    import cramjam

    # python-lz4 raises plain RuntimeError, and EOFError for nothing at all.
    return (
        zlib.error,
        cramjam.DecompressionError,
        zstd.ZstdError,
        RuntimeError,
        EOFError,
        ValueError,
    )
