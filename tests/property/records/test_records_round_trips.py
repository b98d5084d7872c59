"""Whatever is written is read back: every codec, every format, and through a table."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from odradek.records import BatchBuilder, CompressionType, Record, iter_headers, read_all
from odradek.records.arrow import PartitionRecords, to_batches, to_table
from odradek.records.compression import compress, decompress
from odradek.records.legacy import build_message_set, convert_to_v2

CODECS = st.sampled_from(CompressionType)
FIELD = st.none() | st.binary(max_size=50)
HEADERS = st.lists(
    st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3
).map(tuple)


@st.composite
def records(draw: st.DrawFn, headers: Any = HEADERS) -> list[Record]:
    """Records with increasing offsets, as they are in a log."""
    steps = draw(st.lists(st.integers(1, 1000) | st.just(1), min_size=1, max_size=20))
    offset = draw(st.integers(0, 2**40))
    out = []
    for step in steps:
        offset += step
        timestamp = draw(st.integers(-1, 2**43))
        out.append(Record(offset, timestamp, draw(FIELD), draw(FIELD), draw(headers)))
    return out


@given(CODECS, st.binary(max_size=300), st.integers(1, 500))
def test_compression(codec: CompressionType, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times)) == data * times


@given(CODECS, records(), st.integers(0, 5))
def test_batches(codec: CompressionType, written: list[Record], gap: int) -> None:
    builder = BatchBuilder(codec=codec, base_offset=written[0].offset - gap)
    builder.append_records(written)
    batch = builder.build(last_offset=written[-1].offset + gap)
    assert list(read_all(batch)) == written
    (header,) = iter_headers(batch)
    assert header.base_offset == written[0].offset - gap
    assert header.last_offset == written[-1].offset + gap
    assert header.max_timestamp == max(record.timestamp for record in written)


@given(
    st.sampled_from([0, 1]),
    st.sampled_from([c for c in CompressionType if c != CompressionType.ZSTD]),
    records(headers=st.just(())),
)
def test_message_sets_through_conversion(
    magic: int, codec: CompressionType, written: list[Record]
) -> None:
    batches = convert_to_v2(build_message_set(written, magic=magic, codec=codec))
    seen = [record for batch in batches for record in read_all(batch)]
    assert seen == (written if magic else [r._replace(timestamp=-1) for r in written])


@given(CODECS, records(), st.integers(60, 400))
def test_tables(codec: CompressionType, written: list[Record], batch_bytes_max: int) -> None:
    builder = BatchBuilder(codec=codec, base_offset=written[0].offset)
    builder.append_records(written)
    part = PartitionRecords("t", 0, bytes(builder.build()))
    table = to_table([part], include_headers=True)
    table.validate(full=True)
    assert table["offset"].to_pylist() == [record.offset for record in written]
    batches = to_batches(
        table["value"],
        key=table["key"],
        headers=table["headers"],
        timestamp=table["timestamp"].cast(pa.timestamp("ms", tz="UTC")),
        timestamp_ms=0,
        batch_bytes_max=batch_bytes_max,
        codec=codec,
    )
    seen = [record for batch in batches for record in read_all(batch)]
    assert [record[1:] for record in seen] == [record[1:] for record in written]
