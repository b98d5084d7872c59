"""We read what librdkafka, aiokafka, kafka-python and Kafka wrote; those in Python read ours."""

from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from odradek.records import (
    BatchBuilder,
    CompressionType,
    Record,
    iter_headers,
    read_records,
    summarize,
    verify_crc,
)
from odradek.records.arrow import PartitionRecords, to_table
from odradek.records.batch import TimestampType
from odradek.records.legacy import build_message_set, convert_to_v2, iter_legacy
from tests.golden.records.cases import (
    CODECS,
    LEGACY_CODECS,
    RECORDS,
    T0,
    path_of,
    records_of,
)

LIBRARIES = ("librdkafka", "aiokafka", "kafka-python", "java")
READERS = {"aiokafka": AiokafkaRecords, "kafka-python": KafkaPythonRecords}
# Neither library writes or reads LZ4 in v0, with its wrong checksum, without more packages.
LEGACY = [
    (library, magic, codec)
    for library in READERS
    for magic in (0, 1)
    for codec in LEGACY_CODECS
    if (magic, codec) != (0, "lz4")
]
LEGACY_WRITTEN = LEGACY + [("java", magic, codec) for magic in (0, 1) for codec in LEGACY_CODECS]


@pytest.mark.seed_row("1.10")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_we_read_their_batches(library: str, codec: str) -> None:
    blob = path_of(library, codec).read_bytes()
    (header,) = iter_headers(blob)
    verify_crc(blob, header)
    assert header.codec == CompressionType[codec.upper()]
    assert header.timestamp_type == TimestampType.CREATE_TIME
    assert (header.base_timestamp, header.max_timestamp) == (T0, T0 + 10)
    assert header.records_count == header.last_offset_delta + 1 == len(records_of(codec))
    assert tuple(read_records(blob, header)) == records_of(codec)
    summary = summarize(blob, header)
    assert summary == (True, 1, T0, T0 + 10)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_their_batches_become_a_table(library: str, codec: str) -> None:
    blob = path_of(library, codec).read_bytes()
    table = to_table([PartitionRecords("t", 7, blob)], include_headers=True)
    table.validate(full=True)
    records = records_of(codec)
    assert table["offset"].to_pylist() == [record.offset for record in records]
    assert table["key"].to_pylist() == [record.key for record in records]
    assert table["value"].to_pylist() == [record.value for record in records]
    headers = table["headers"].to_pylist()
    assert [(h["key"], h["value"]) for h in headers[0]] == list(records[0].headers)
    assert headers[1:] == [None] * (len(records) - 1)


@pytest.mark.seed_row("1.10")
@pytest.mark.parametrize(("library", "magic", "codec"), LEGACY_WRITTEN)
def test_we_read_their_message_sets(library: str, magic: int, codec: str) -> None:
    blob = path_of(library, codec, magic).read_bytes()
    batches = list(iter_legacy(blob))
    assert {batch.codec for batch in batches} == {CompressionType[codec.upper()]}
    assert {batch.magic for batch in batches} == {magic}
    records = tuple(record for batch in batches for record in batch.records)
    assert records == records_of(codec, magic)


@pytest.mark.parametrize(("library", "magic", "codec"), LEGACY_WRITTEN)
def test_their_message_sets_become_one_batch(library: str, magic: int, codec: str) -> None:
    blob = path_of(library, codec, magic).read_bytes()
    (batch,) = convert_to_v2(blob)
    (header,) = iter_headers(batch)
    verify_crc(batch, header)
    assert header.codec == CompressionType[codec.upper()]
    assert tuple(read_records(batch, header)) == records_of(codec, magic)


def test_we_write_lz4_in_v0_as_kafka_does() -> None:
    """Up to the wrong checksum; how hard the blocks are packed is the library's affair."""
    theirs = path_of("java", "lz4", 0).read_bytes()
    ours = build_message_set(records_of("lz4", 0), magic=0, codec=CompressionType.LZ4)
    start = 12 + 14
    assert ours[start : start + 7] == theirs[start : start + 7]


def read_theirs(library: str, blob: bytes) -> list[Record]:
    seen: list[Record] = []
    records: Any = READERS[library](blob)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for r in batch:
            timestamp = -1 if r.timestamp is None else r.timestamp
            headers = tuple((key, value) for key, value in r.headers)
            seen.append(Record(r.offset, timestamp, r.key, r.value, headers))
    return seen


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", READERS)
def test_they_read_our_batches(library: str, codec: str) -> None:
    builder = BatchBuilder(codec=CompressionType[codec.upper()], base_offset=100)
    builder.append_records(record._replace(offset=100 + record.offset) for record in RECORDS)
    seen = read_theirs(library, bytes(builder.build()))
    assert seen == [record._replace(offset=100 + record.offset) for record in RECORDS]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", READERS)
def test_they_read_offsets_with_gaps(library: str, codec: str) -> None:
    builder = BatchBuilder(codec=CompressionType[codec.upper()], base_offset=10)
    builder.append(T0, b"a", b"1", offset=12)
    builder.append(T0, b"b", b"2", offset=1012)
    seen = read_theirs(library, bytes(builder.build(last_offset=2000)))
    assert [record.offset for record in seen] == [12, 1012]


@pytest.mark.parametrize(("library", "magic", "codec"), LEGACY)
def test_they_read_our_message_sets(library: str, magic: int, codec: str) -> None:
    records = [record._replace(offset=50 + record.offset) for record in records_of(codec, magic)]
    blob = build_message_set(records, magic=magic, codec=CompressionType[codec.upper()])
    assert read_theirs(library, blob) == records


@pytest.mark.parametrize("library", READERS)
def test_they_take_the_time_of_our_wrapper_if_it_is_the_logs(library: str) -> None:
    codec = CompressionType.GZIP
    blob = build_message_set(records_of("gzip", 1), magic=1, codec=codec, log_append_time=T0 + 99)
    assert {record.timestamp for record in read_theirs(library, blob)} == {T0 + 99}
    (batch,) = iter_legacy(blob)
    assert {record.timestamp for record in batch.records} == {T0 + 99}
