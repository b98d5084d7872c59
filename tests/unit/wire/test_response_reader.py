"""Frames out of a stream, however it is cut."""

from random import Random

import pytest

from odradek.core.errors import CorruptionError
from odradek.wire.response_reader import ResponseReader


def feed(reader: ResponseReader, data: bytes, piece: int) -> list[bytes]:
    frames = []
    view = memoryview(data)
    while view:
        space = reader.writable()
        assert space
        count = min(piece, len(space), len(view))
        space[:count] = view[:count]
        reader.wrote(count)
        view = view[count:]
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    return [bytes(frame) for frame in frames]


def framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@pytest.mark.parametrize("piece", [1, 3, 1000, 65_536, 1 << 20])
def test_frames_come_whole_however_the_stream_is_cut(piece: int) -> None:
    random = Random(piece)
    sizes = [0, 1, 5, 65_532, 65_533, 70_000, 3] + [random.randrange(300) for _ in range(50)]
    if piece == 1:
        sizes = [size for size in sizes if size < 1000]
    frames = [random.randbytes(size) for size in sizes]
    assert feed(ResponseReader(1 << 20), framed(frames), piece) == frames


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_size_may_be_cut_too(cut: int) -> None:
    frames = [b"x" * 10, b"y" * 70_000]
    assert feed(ResponseReader(1 << 20), framed(frames), 4 + 10 + cut) == frames


def test_a_frame_is_not_touched_by_the_next_one() -> None:
    reader = ResponseReader(1 << 20)
    kept = []
    for letter in (b"a", b"b", b"c"):
        data = framed([letter * 10])
        space = reader.writable()
        space[: len(data)] = data
        reader.wrote(len(data))
        kept.append(reader.next_frame())
    assert [bytes(frame or b"") for frame in kept] == [b"a" * 10, b"b" * 10, b"c" * 10]


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_a_size_that_cannot_be_is_refused(size: bytes) -> None:
    with pytest.raises(CorruptionError):
        feed(ResponseReader(1 << 20), size, 4)


def test_memory_follows_what_came_beyond_what_is_believed() -> None:
    reader = ResponseReader((1 << 31) - 1)
    feed(reader, (1 << 30).to_bytes(4, "big") + b"x" * 100, 50)
    assert len(reader.writable()) <= 64 * 1024 * 1024
