"""Batches to pyarrow tables and pyarrow columns to batches, with no Python object per record.

A table has the columns of Spark's Kafka source, by name and type::

    key binary · value binary · topic string · partition int32 · offset int64
    · timestamp timestamp[us, UTC] · timestampType int32 (0 create time, 1 log append time)
    · headers list<struct<key string, value binary>>, null where a record has none (on request)

Kafka's timestamps are milliseconds; the column has microseconds because that is the only unit the
JVM side of Spark reads, and UTC because a timestamp without a zone is another type there. One that
does not fit (a producer may send any int64) is the largest that does. A header key that is not
UTF-8 has its bad bytes replaced, as Java does.

The only module that imports pyarrow; ``odradek.records`` does not import it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.records import implementation
from odradek.records.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    is_partial,
    magic_at,
    parse_header,
    verify_crc,
)
from odradek.records.builder import finish_batch
from odradek.records.columns import (
    INT32_MAX,
    OFFSET_MAX,
    BinaryColumn,
    DecodedBinary,
    DecodedColumns,
    DecodedHeaders,
    HeaderColumn,
)
from odradek.records.compression import DECOMPRESSED_BYTES_MAX, CompressionType
from odradek.records.implementation import ColumnDecoder, ColumnEncoder
from odradek.records.legacy import convert_to_v2
from odradek.records.reader import records_body
from odradek.records.record import Buffer

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP_TYPE),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", pa.list_(HEADER_TYPE)))

_SEQUENCE_COUNT: Final = 2**31
_VALUE_BYTES_HINT_MAX: Final = 64 * 1024 * 1024


class PartitionRecords(NamedTuple):
    """Batches of one partition and the offsets wanted from them, ``end_offset`` exclusive."""

    topic: str
    partition: int
    records: Buffer
    start_offset: int = 0
    end_offset: int = OFFSET_MAX


def to_table(
    parts: Iterable[PartitionRecords],
    *,
    include_headers: bool = False,
    partial_tail: bool = False,
    check_crc: bool = True,
    batch_filter: Callable[[BatchHeader], bool] | None = None,
    output_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> pa.Table:
    """Decode batches of any format into one table, in the order given.

    Control batches never become rows. ``batch_filter`` sees the header of every batch within the
    wanted offsets, control batches too, and says whether it is wanted: that is where a reader of
    committed records leaves out aborted ones.

    Raises:
        CorruptionError: Some batch is malformed; nothing is returned then.
    """
    schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    chunks: list[pa.RecordBatch] = []
    for part in parts:
        decoder = _decoder_for(part, include_headers)
        for buffer, header in _iter_batches(part, partial_tail, check_crc, output_bytes_max):
            wanted = batch_filter is None or batch_filter(header)
            if not wanted or header.attributes & CONTROL_FLAG or not header.records_count:
                continue
            body = records_body(buffer, header, output_bytes_max=min(output_bytes_max, INT32_MAX))
            if decoder.body_bytes + len(body) > INT32_MAX:
                chunks.extend(_to_chunks(decoder.finish(), part, schema))
                decoder = _decoder_for(part, include_headers)
            decoder.append(
                body,
                header.records_count,
                header.base_offset,
                header.base_timestamp,
                header.log_append_time,
                part.start_offset,
                part.end_offset,
            )
        chunks.extend(_to_chunks(decoder.finish(), part, schema))
    return pa.Table.from_batches(chunks, schema)


def _decoder_for(part: PartitionRecords, include_headers: bool) -> ColumnDecoder:
    hint = min(len(part.records), _VALUE_BYTES_HINT_MAX)
    return ColumnDecoder(include_headers, pa.allocate_buffer, hint)


def _iter_batches(
    part: PartitionRecords, partial_tail: bool, check_crc: bool, output_bytes_max: int
) -> Iterator[tuple[Buffer, BatchHeader]]:
    """Iterate over the batches that can hold wanted offsets, messages converted to batches."""
    buffer = memoryview(part.records)
    position, end_position = 0, len(buffer)
    start_offset, end_offset = part.start_offset, part.end_offset
    while position < end_position:
        if partial_tail and is_partial(buffer, position):
            return
        if magic_at(buffer, position) < 2:
            end = _legacy_end(buffer, position)
            for batch in convert_to_v2(buffer[position:end], output_bytes_max=output_bytes_max):
                yield batch, parse_header(batch)
            position = end
            continue
        header = parse_header(buffer, position)
        base_offset = header.base_offset
        if base_offset < end_offset and base_offset + header.last_offset_delta >= start_offset:
            if check_crc:
                verify_crc(buffer, header)
            yield buffer, header
        position += LOG_OVERHEAD + header.batch_length


def _legacy_end(buffer: memoryview, position: int) -> int:
    # Whether the length is sound is for the converter to find out.
    return position + 12 + max(0, int.from_bytes(buffer[position + 8 : position + 12], "big"))


def _to_chunks(
    columns: DecodedColumns, part: PartitionRecords, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    # The topic column has 32-bit ends too, and tiny records with a long topic name pass them.
    rows_max = INT32_MAX // max(1, len(part.topic.encode()))
    arrays = [
        _binary_array(columns.key, columns.rows),
        _binary_array(columns.value, columns.rows),
        _plain_array(pa.int64(), columns.rows, columns.offset),
        _plain_array(TIMESTAMP_TYPE, columns.rows, columns.timestamp_us),
        _plain_array(pa.int32(), columns.rows, columns.timestamp_type),
    ]
    if columns.headers is not None:
        arrays.append(_headers_array(columns.headers, columns.rows))
    for start in range(0, columns.rows, rows_max):
        rows = min(rows_max, columns.rows - start)
        key, value, offset, timestamp, timestamp_type, *headers = (
            array.slice(start, rows) for array in arrays
        )
        topic = pa.repeat(pa.scalar(part.topic, pa.string()), rows)
        partition = pa.repeat(pa.scalar(part.partition, pa.int32()), rows)
        yield pa.RecordBatch.from_arrays(
            [key, value, topic, partition, offset, timestamp, timestamp_type, *headers],
            schema=schema,
        )


def _plain_array(kind: pa.DataType, rows: int, data: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)], 0)


def _binary_array(column: DecodedBinary, rows: int) -> pa.Array:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, column.null_count)


def _headers_array(headers: DecodedHeaders, rows: int) -> pa.Array:
    keys = _to_strings(_binary_array(headers.keys, headers.header_count))
    values = _binary_array(headers.values, headers.header_count)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    validity = None if headers.validity is None else pa.py_buffer(headers.validity)
    return pa.Array.from_buffers(
        pa.list_(HEADER_TYPE),
        rows,
        [validity, pa.py_buffer(headers.offsets)],
        headers.null_count,
        children=[pairs],
    )


def _to_strings(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())  # checks that they are UTF-8, and copies nothing
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def to_batches(
    value: pa.Array | pa.ChunkedArray,
    *,
    key: pa.Array | pa.ChunkedArray | None = None,
    headers: pa.Array | pa.ChunkedArray | None = None,
    timestamp: pa.Array | pa.ChunkedArray | None = None,
    timestamp_ms: int,
    batch_bytes_max: int,
    codec: CompressionType = CompressionType.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> Iterator[bytearray]:
    """Encode columns as batches v2 that a producer can send, in row order.

    ``key`` and ``value`` are of any binary or string type, or null; ``headers`` is a list of
    ``struct<key, value>`` or a map; ``timestamp`` is int64 milliseconds or a timestamp type.
    ``timestamp_ms`` is for rows without one. A batch stays within ``batch_bytes_max`` unless one
    row alone does not; each starts at offset 0, and sequences run on from batch to batch.

    Raises:
        TypeError: A column has a type that is not listed above.
        ValueError: A row is too large for any batch, or a header key is null.
    """
    body_bytes_max = max(1, batch_bytes_max - HEADER_BYTES)
    for rows in align_columns(value, key, headers, timestamp):
        encoder = encoder_for(rows, timestamp_ms)
        row = 0
        while row < len(rows):
            encoded = encoder.encode(row, body_bytes_max, HEADER_BYTES)
            count, row = encoded.next_row - row, encoded.next_row
            yield finish_batch(
                encoded.buffer,
                records_count=count,
                base_timestamp=encoded.base_timestamp,
                max_timestamp=encoded.max_timestamp,
                batch_bytes_max=batch_bytes_max,
                codec=codec,
                level=level,
                transactional=transactional,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
            )
            if base_sequence != NO_SEQUENCE:
                base_sequence = (base_sequence + count) % _SEQUENCE_COUNT


def align_columns(
    value: pa.Array | pa.ChunkedArray,
    key: pa.Array | pa.ChunkedArray | None = None,
    headers: pa.Array | pa.ChunkedArray | None = None,
    timestamp: pa.Array | pa.ChunkedArray | None = None,
) -> list[pa.RecordBatch]:
    """Bring columns to common chunk borders and to the types that ``encoder_for`` takes.

    Usually one chunk, copied only if it was many; bytes of keys and values are not copied then.

    Raises:
        TypeError: A column has a type that ``to_batches`` does not list.
    """
    columns = {"value": _cast(value, pa.large_binary(), "value")}
    if key is not None:
        columns["key"] = _cast(key, pa.large_binary(), "key")
    if headers is not None:
        columns["headers"] = headers
    if timestamp is not None:
        if pa.types.is_timestamp(timestamp.type):
            timestamp = timestamp.cast(pa.timestamp("ms", tz=timestamp.type.tz), safe=False)
        columns["timestamp"] = _cast(timestamp, pa.int64(), "timestamp")
    return [batch for batch in pa.table(columns).combine_chunks().to_batches() if len(batch)]


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return column.cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise TypeError(f"column {name} cannot be of type {column.type}") from error


def encoder_for(
    rows: pa.RecordBatch, timestamp_ms: int, order: pa.Array | None = None
) -> ColumnEncoder:
    """Return what cuts batches from aligned columns: from all rows, or those ``order`` names.

    ``order`` is int64 or uint64, without nulls. ``encode`` leaves the room of a header where it is
    asked to; ``builder.finish_batch`` writes it.
    """
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    timestamps = None
    if "timestamp" in columns:
        filled = pc.fill_null(columns["timestamp"], timestamp_ms)
        timestamps = filled.buffers()[1].slice(filled.offset * 8)
    return ColumnEncoder(
        len(rows),
        _binary_column(columns["key"]) if "key" in columns else None,
        _binary_column(columns["value"]),
        _header_column(columns["headers"]) if "headers" in columns else None,
        timestamps,
        timestamp_ms,
        None if order is None else order.buffers()[1].slice(order.offset * 8, len(order) * 8),
    )


def partitions_of_keys(keys: pa.Array, partitions: int) -> pa.Array:
    """Return the partition of each key as Java's client chooses it, int32; -1 for a null.

    ``keys`` is large_binary.
    """
    numbers = implementation.partitions_of_keys(_binary_column(keys), len(keys), partitions)
    return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(numbers)], 0)


def _binary_column(array: pa.Array) -> BinaryColumn:
    validity, offsets, data = array.buffers()
    return BinaryColumn(offsets, b"" if data is None else data, validity, array.offset)


def _header_column(array: pa.Array) -> HeaderColumn:
    kind = array.type
    if pa.types.is_null(kind):
        array = array.cast(pa.list_(HEADER_TYPE))
    elif not (
        pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    ) or not (pa.types.is_struct(array.values.type) and array.values.type.num_fields == 2):
        raise TypeError(f"column headers cannot be of type {kind}")
    # flatten() makes the fields of a null struct null; the encoder refuses a null key.
    keys, values = array.values.flatten()
    validity, ends = array.buffers()[:2]
    if not pa.types.is_large_list(array.type):
        narrow = [None, ends]
        ends = pa.Array.from_buffers(pa.int32(), array.offset + len(array) + 1, narrow)
        ends = ends.cast(pa.int64()).buffers()[1]
    return HeaderColumn(
        ends,
        validity,
        array.offset,
        _binary_column(_cast(keys, pa.large_binary(), "headers.key")),
        _binary_column(_cast(values, pa.large_binary(), "headers.value")),
        len(array.values),
    )
