"""The column codec, both twins, where it is one byte or one row from being wrong."""

import mmap
import struct
from types import ModuleType

import pytest

from odradek.core.errors import CorruptionError
from odradek.records import codec, column_codec
from odradek.records.columns import BinaryColumn, HeaderColumn

try:
    from odradek.records import _compiled

    TWINS: list[ModuleType] = [column_codec, _compiled]
except ImportError:
    TWINS = [column_codec]

SOUND = BinaryColumn(struct.pack("=3q", 0, 1, 2), b"ab", None, 0)


@pytest.fixture(params=TWINS, ids=lambda module: module.__name__.rpartition(".")[2])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    assert isinstance(request.param, ModuleType)
    return request.param


def body_of(*keys: bytes | None) -> bytes:
    encoder = codec.RecordEncoder(0)
    for key in keys:
        encoder.append(0, key, b"v", [("h", key)])
    return bytes(encoder.take())


def bits(validity: object, count: int) -> list[int]:
    assert isinstance(validity, bytearray)
    return [validity[i >> 3] >> (i & 7) & 1 for i in range(count)]


def test_a_batch_that_fails_leaves_no_trace(twin: ModuleType) -> None:
    decoder = twin.ColumnDecoder(True)
    decoder.append(body_of(b"a"), 1, 0, 0, None)
    with pytest.raises(CorruptionError):
        decoder.append(body_of(*[b"trace"] * 9) + b"\x00", 9, 1, 0, None)
    # Rows that are null where the failed batch had values.
    assert decoder.append(body_of(*[None] * 9), 9, 1, 0, None) == 9
    assert (decoder.rows, decoder.body_bytes) == (
        10,
        len(body_of(b"a")) + len(body_of(*[None] * 9)),
    )
    columns = decoder.finish()
    assert columns.key.null_count == columns.headers.values.null_count == 9
    assert bits(columns.key.validity, 10) == [1] + [0] * 9
    assert bits(columns.headers.values.validity, 10) == [1] + [0] * 9
    assert bytes(columns.key.data[:1]) == b"a"


def test_a_column_without_nulls_has_no_bitmap(twin: ModuleType) -> None:
    decoder = twin.ColumnDecoder(False)
    decoder.append(body_of(b"a", b""), 2, 0, 0, None)
    columns = decoder.finish()
    assert (columns.key.validity, columns.key.null_count) == (None, 0)
    assert columns.headers is None


def test_a_finished_decoder_takes_no_more(twin: ModuleType) -> None:
    decoder = twin.ColumnDecoder(False)
    decoder.finish()
    with pytest.raises(ValueError):
        decoder.append(b"", 0, 0, 0, None)
    with pytest.raises(ValueError):
        decoder.finish()


def test_columns_grow_in_the_memory_they_are_given(twin: ModuleType) -> None:
    given: list[bytearray] = []

    def allocate(size: int) -> bytearray:
        given.append(bytearray(size))
        return given[-1]

    decoder = twin.ColumnDecoder(False, allocate)
    body = body_of(*[b"key"] * 100)
    for _ in range(10):
        decoder.append(body, 100, 0, 0, None)
    columns = decoder.finish()
    assert any(columns.key.data is buffer for buffer in given)
    assert bytes(columns.key.data[:3000]) == b"key" * 1000
    ends = struct.unpack_from("=1001i", columns.key.offsets)
    assert ends == tuple(range(0, 3001, 3))
    columns.key.data.extend(b"x")  # nobody holds on to it


def test_a_stingy_allocator_is_noticed() -> None:
    compiled = pytest.importorskip("odradek.records._compiled")
    with pytest.raises(ValueError):
        compiled.ColumnDecoder(False, lambda size: bytearray(size - 1))


def test_columns_that_would_overflow_are_full(twin: ModuleType) -> None:
    decoder = twin.ColumnDecoder(False)
    with mmap.mmap(-1, 2**31) as never_touched, pytest.raises(ValueError, match="full"):
        decoder.append(memoryview(never_touched), 0, 0, 0, None)


def encode(twin: ModuleType, rows: int, **columns: object) -> list[bytes]:
    arguments = {"keys": None, "values": None, "headers": None, "timestamps": None, **columns}
    encoder = twin.ColumnEncoder(rows, *arguments.values(), 0)
    out, row = [], 0
    while row < rows:
        encoded = encoder.encode(row, 1000, 0)
        out.append(bytes(encoded.buffer))
        row = encoded.next_row
    return out


def test_sound_columns_are_encoded(twin: ModuleType) -> None:
    headers = HeaderColumn(struct.pack("=3q", 0, 2, 2), None, 0, SOUND, SOUND, 2)
    (body,) = encode(twin, 2, keys=SOUND, values=SOUND, headers=headers)
    records = list(codec.iter_records(body, 2, 0, 0, None))
    assert [(r.key, r.value, r.headers) for r in records] == [
        (b"a", b"a", (("a", b"a"), ("b", b"b"))),
        (b"b", b"b", ()),
    ]


@pytest.mark.parametrize("ends", [(0, 1, 3), (0, 2, 1), (-1, 0, 1), (3, 3, 3), (0, 1, 2**62)])
def test_ends_are_held_against_the_data(twin: ModuleType, ends: tuple[int, ...]) -> None:
    packed = struct.pack("=3q", *ends)
    column = SOUND._replace(offsets=packed)
    headers = HeaderColumn(packed, None, 0, SOUND, SOUND, 2)
    for columns in ({"keys": column}, {"values": column}, {"headers": headers}):
        with pytest.raises(ValueError, match="ends do not fit"):
            encode(twin, 2, **columns)


@pytest.mark.parametrize(
    "column",
    [
        SOUND._replace(first=1),
        SOUND._replace(first=-1),
        SOUND._replace(offsets=SOUND.offsets[:-1]),
        SOUND._replace(validity=b""),
    ],
)
def test_a_column_must_reach_to_its_last_row(twin: ModuleType, column: BinaryColumn) -> None:
    with pytest.raises(ValueError, match="shorter than its rows"):
        encode(twin, 2, keys=column)
    headers = HeaderColumn(column.offsets, column.validity, column.first, SOUND, SOUND, 2)
    with pytest.raises(ValueError, match="shorter than its rows"):
        encode(twin, 2, headers=headers)
    with pytest.raises(ValueError, match="shorter than its rows"):
        encode(twin, 2, timestamps=bytes(15))
