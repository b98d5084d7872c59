"""The codecs: what goes in comes out, and what was not meant to go in is refused cheaply."""

import gzip
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest

from odradek.core.errors import CorruptionError
from odradek.records.compression import (
    CompressionType,
    _xxh32_short,
    compress,
    decompress,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED = [codec for codec in CompressionType if codec]
SAMPLES = [b"", b"x", b"the same again and again " * 10_000, bytes(range(256)) * 300]
MIB = 1024 * 1024


@pytest.mark.seed_row("1.11")
@pytest.mark.parametrize("sample", SAMPLES, ids=len)
@pytest.mark.parametrize("codec", CompressionType)
def test_what_goes_in_comes_out(codec: CompressionType, sample: bytes) -> None:
    for buffer in (sample, bytearray(sample), memoryview(sample)):
        assert decompress(codec, compress(codec, buffer)) == sample


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (CompressionType.GZIP, (-1, 1, 9)),
        (CompressionType.LZ4, (1, 9, 12, 17)),
        (CompressionType.ZSTD, (-100, 1, 3, 22)),
    ],
)
def test_kafkas_levels_are_taken(codec: CompressionType, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, SAMPLES[2], level=level)) == SAMPLES[2]


@pytest.mark.parametrize("codec", PACKED)
def test_the_output_is_capped_to_the_byte(codec: CompressionType) -> None:
    packed = compress(codec, SAMPLES[2])
    size = len(SAMPLES[2])
    assert decompress(codec, packed, output_bytes_max=size) == SAMPLES[2]
    with pytest.raises(CorruptionError, match="unpacks to more"):
        decompress(codec, packed, output_bytes_max=size - 1)


def test_a_bomb_is_refused_before_it_goes_off() -> None:
    # In a process that may not have the memory, so that what C and Rust allocate counts too.
    program = """
import resource
from odradek.core.errors import CorruptionError
from odradek.records.compression import CompressionType, compress, decompress
bombs = [(codec, compress(codec, bytes(100 << 20))) for codec in CompressionType if codec]
bombs.append((CompressionType.SNAPPY, bytes.fromhex("8080808001") + bytes(100)))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20), resource.RLIM_INFINITY))
for codec, bomb in bombs:
    try:
        decompress(codec, bomb, output_bytes_max=1 << 20)
    except CorruptionError:
        print(codec.name)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["GZIP", "SNAPPY", "LZ4", "ZSTD", "SNAPPY"]


@pytest.mark.parametrize("codec", PACKED)
def test_every_cut_is_noticed(codec: CompressionType) -> None:
    packed = compress(codec, b"some text that is not very long " * 3)
    for end in range(len(packed)):
        if codec == CompressionType.SNAPPY and end == 16:
            continue  # a xerial header with no chunks is how nothing looks
        with pytest.raises(CorruptionError):
            decompress(codec, packed[:end])


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("rest", [b"\x00", b"rubbish", None])
def test_bytes_after_the_end_are_noticed(codec: CompressionType, rest: bytes | None) -> None:
    packed = compress(codec, b"text " * 20)
    with pytest.raises(CorruptionError):
        decompress(codec, packed + (packed if rest is None else rest))


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_an_unknown_codec_is_corrupt(codec: int) -> None:
    with pytest.raises(CorruptionError):
        decompress(codec, b"")


def test_gzip_can_be_read_by_others() -> None:
    assert gzip.decompress(compress(CompressionType.GZIP, SAMPLES[2])) == SAMPLES[2]
    assert decompress(CompressionType.GZIP, gzip.compress(SAMPLES[2])) == SAMPLES[2]


def test_zlib_without_the_gzip_header_is_refused() -> None:
    with pytest.raises(CorruptionError):
        decompress(CompressionType.GZIP, zlib.compress(b"text"))


def test_snappy_has_xerials_framing() -> None:
    packed = compress(CompressionType.SNAPPY, SAMPLES[2])
    magic, version, compatible, length = struct.unpack_from(">8siii", packed)
    assert (magic, version, compatible) == (b"\x82SNAPPY\x00", 1, 1)
    chunk = cramjam.snappy.decompress_raw(packed[20 : 20 + length])
    assert bytes(chunk) == SAMPLES[2][: 32 * 1024]


def test_snappy_without_framing_is_read() -> None:
    for sample in SAMPLES:
        packed = bytes(cramjam.snappy.compress_raw(sample))
        assert decompress(CompressionType.SNAPPY, packed) == sample


@pytest.mark.parametrize("length", [0, -1, 5, 2**31 - 1])
def test_a_xerial_chunk_is_held_against_the_bytes_left(length: int) -> None:
    framed = struct.pack(">8siii", b"\x82SNAPPY\x00", 1, 1, length) + b"\x01\x00x"
    with pytest.raises(CorruptionError):
        decompress(CompressionType.SNAPPY, framed)


def test_the_length_that_snappy_declares_is_not_believed() -> None:
    declares_100_mib = b"\x80\x80\x80\x32" + b"\x00x"
    with pytest.raises(CorruptionError, match="declares more"):
        decompress(CompressionType.SNAPPY, declares_100_mib)
    with pytest.raises(CorruptionError):
        decompress(CompressionType.SNAPPY, b"\xff" * 10)


def test_snappys_densest_data_is_still_read() -> None:
    zeros = bytes(10 * MIB)
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))) == zeros


def test_lz4_is_what_kafkas_java_reader_takes() -> None:
    frame = compress(CompressionType.LZ4, SAMPLES[2])
    info = lz4.frame.get_frame_info(frame)
    assert info["block_size_id"] == lz4.frame.BLOCKSIZE_MAX64KB
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert not info["block_checksum"]
    assert not info["content_size"]


def test_lz4_from_others_is_read() -> None:
    for options in (
        {"block_linked": True, "content_checksum": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB, "block_checksum": True},
        {"store_size": False},
    ):
        frame = lz4.frame.compress(SAMPLES[2], **options)
        assert decompress(CompressionType.LZ4, frame) == SAMPLES[2]


@pytest.mark.parametrize("store_size", [False, True])
def test_our_xxh32_agrees_with_that_in_lz4(store_size: bool) -> None:
    for sample in SAMPLES[1:]:
        frame = lz4.frame.compress(sample, store_size=store_size)
        end = 14 if store_size else 6
        assert _xxh32_short(frame[4:end]) >> 8 & 0xFF == frame[end]


def test_xxh32_of_nothing_and_of_words() -> None:
    assert _xxh32_short(b"") == 0x02CC5D05
    assert _xxh32_short(b"a") == 0x550D7456
    assert _xxh32_short(b"abc") == 0x32D153FF


def test_the_old_lz4_checksum_is_written_and_read() -> None:
    right = compress(CompressionType.LZ4, SAMPLES[2])
    wrong = compress(CompressionType.LZ4, SAMPLES[2], lz4_broken_checksum=True)
    assert [i for i in range(len(right)) if right[i] != wrong[i]] == [6]
    assert wrong[6] == _xxh32_short(wrong[:6]) >> 8 & 0xFF
    with pytest.raises(CorruptionError):
        decompress(CompressionType.LZ4, wrong)
    for frame in (wrong, right, lz4.frame.compress(SAMPLES[2], store_size=True)):
        assert decompress(CompressionType.LZ4, frame, lz4_broken_checksum=True) == SAMPLES[2]
    for end in range(7):
        with pytest.raises(CorruptionError):
            decompress(CompressionType.LZ4, wrong[:end], lz4_broken_checksum=True)


def test_zstd_of_a_stream_of_unknown_size_is_read() -> None:
    packer = zstd.ZstdCompressor()
    frame = packer.compress(SAMPLES[2]) + packer.flush()
    assert decompress(CompressionType.ZSTD, frame) == SAMPLES[2]
