"""Bytes from outside end in records or in a CorruptionError, never in anything else.

The checksums are made right after the damage, or nothing behind them would ever be reached.
"""

import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.core.errors import CorruptionError
from odradek.records import BatchBuilder, CompressionType, Record, iter_headers, read_records
from odradek.records.arrow import PartitionRecords, to_table
from odradek.records.batch import seal
from odradek.records.compression import compress, decompress
from odradek.records.legacy import build_message_set, convert_to_v2, iter_legacy

OUTPUT_BYTES_MAX = 100_000
RECORDS = [
    Record(5, 1000, b"key", b"value " * 20, (("h", b"x"), ("n", None))),
    Record(6, 1001, None, b""),
    Record(9, 999, b"", None),
]
CODECS = list(CompressionType)
EDITS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.sampled_from([0, 1, 2, 4, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255),
        st.sampled_from(["set", "set", "flip", "cut", "add"]),
    ),
    min_size=1,
    max_size=5,
)


def damaged(sound: bytes, edits: Any) -> bytearray:
    out = bytearray(sound)
    for at, byte, kind in edits:
        if not out:
            break
        at %= len(out)
        if kind == "set":
            out[at] = byte
        elif kind == "flip":
            out[at] ^= 1 << (byte & 7)
        elif kind == "cut":
            del out[at : at + 1 + (byte & 7)]
        else:
            out[at:at] = bytes([byte]) * (1 + (byte & 3))
    return out


def make(codec: CompressionType) -> bytes:
    builder = BatchBuilder(codec=codec, base_offset=5)
    builder.append_records(RECORDS)
    return bytes(builder.build())


BATCHES = {codec: make(codec) for codec in CODECS}
MESSAGE_SETS = [
    build_message_set([record._replace(headers=()) for record in RECORDS], magic=magic, codec=codec)
    for magic in (0, 1)
    for codec in CODECS[:4]
]


def read_everything(blob: bytes | bytearray, partial_tail: bool) -> None:
    for header in iter_headers(blob, partial_tail=partial_tail):
        records = list(read_records(blob, header, output_bytes_max=OUTPUT_BYTES_MAX))
        assert len(records) == header.records_count


@given(st.sampled_from(CODECS), EDITS, st.booleans(), st.booleans())
def test_batches(codec: CompressionType, edits: Any, mend: bool, partial_tail: bool) -> None:
    blob = damaged(BATCHES[codec], edits)
    try:
        for header in iter_headers(blob):
            if mend:
                seal(blob, header)
        read_everything(blob, partial_tail)
    except CorruptionError:
        pass
    for check_crc in (True, False):
        try:
            table = to_table(
                [PartitionRecords("t", 0, blob)],
                include_headers=True,
                partial_tail=partial_tail,
                check_crc=check_crc,
                output_bytes_max=OUTPUT_BYTES_MAX,
            )
        except CorruptionError:
            continue
        table.validate(full=True)


@given(st.binary(max_size=300), st.booleans())
def test_noise(blob: bytes, partial_tail: bool) -> None:
    for work in (
        lambda: read_everything(blob, partial_tail),
        lambda: to_table([PartitionRecords("t", 0, blob)], partial_tail=partial_tail),
        lambda: list(iter_legacy(blob, partial_tail=partial_tail)),
    ):
        try:
            work()
        except CorruptionError:
            continue


def mend_messages(blob: bytearray) -> None:
    """Make the checksum of each message right, as far as lengths lead."""
    position = 0
    while len(blob) - position > 16:
        size = int.from_bytes(blob[position + 8 : position + 12], "big", signed=True)
        end = position + 12 + size
        if size < 5 or end > len(blob):
            return
        crc = zlib.crc32(blob[position + 16 : end])
        blob[position + 12 : position + 16] = crc.to_bytes(4, "big")
        position = end


@given(st.sampled_from(MESSAGE_SETS), EDITS, st.booleans())
def test_message_sets(sound: bytes, edits: Any, partial_tail: bool) -> None:
    blob = damaged(sound, edits)
    mend_messages(blob)
    for base_offset in (None, 7):
        try:
            batches = convert_to_v2(
                blob,
                base_offset=base_offset,
                partial_tail=partial_tail,
                output_bytes_max=OUTPUT_BYTES_MAX,
            )
        except CorruptionError:
            continue
        for batch in batches:
            read_everything(batch, partial_tail=False)


PACKED = [(codec, compress(codec, b"some text, some more text; " * 9)) for codec in CODECS[1:]]
DENSE = [(codec, compress(codec, bytes(50_000))) for codec in CODECS[1:]]


@given(st.sampled_from(PACKED + DENSE), EDITS, st.booleans())
def test_compressed_data(sound: tuple[CompressionType, bytes], edits: Any, broken: bool) -> None:
    codec, packed = sound
    blob = damaged(packed, edits)
    try:
        out = decompress(codec, blob, output_bytes_max=OUTPUT_BYTES_MAX, lz4_broken_checksum=broken)
    except CorruptionError:
        return
    assert len(out) <= OUTPUT_BYTES_MAX
