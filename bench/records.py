"""How fast the record codec is, beside aiokafka's Cython codec and kafka-python's plain one.

Records of 100 bytes (no key, no headers), about 16 KiB to a batch, as a producer with default
settings makes them. Each figure is the best of a few short runs, in records per second: on a busy
machine the best run is the one least disturbed. The whole takes well under 20 seconds.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from odradek.records import _compiled, codec, column_codec
from odradek.records.arrow import PartitionRecords, to_batches, to_table
from odradek.records.batch import HEADER_BYTES, iter_headers, parse_header, verify_crc
from odradek.records.builder import BatchBuilder, write_header
from odradek.records.reader import read_records, records_body

Row = tuple[str, str, float, str]

_BATCH_RECORDS = 150
_BATCH_BYTES = 16 * 1024
_VALUE = bytes(range(100))
_TIMESTAMP = 1_700_000_000_000
_SECONDS_PER_FIGURE = 0.5


def run() -> list[Row]:
    """Return (operation, implementation, value, unit) rows."""
    batch = _ours_append()
    return [
        *_rows("encode 100 B records", _encoders()),
        *_rows("decode to objects", _decoders(bytes(batch))),
        *_rows("decode to Arrow", _arrow_decoders(bytes(batch))),
        *_rows("Arrow columns to batches", _column_encoders()),
        *_header_rows(batch),
    ]


def _rows(operation: str, subjects: dict[str, tuple[Callable[[], object], int]]) -> Iterable[Row]:
    for name, (work, records) in subjects.items():
        yield operation, name, records / _best_seconds(work), "records/s"


def _best_seconds(work: Callable[[], object]) -> float:
    best = float("inf")
    deadline = time.perf_counter() + _SECONDS_PER_FIGURE
    while True:
        start = time.perf_counter()
        work()
        end = time.perf_counter()
        best = min(best, end - start)
        if end > deadline:
            return best


def _repeat(work: Callable[[], object], times: int = 20) -> tuple[Callable[[], object], int]:
    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated, times * _BATCH_RECORDS


def _ours_append() -> bytearray:
    builder = BatchBuilder()
    append = builder.append
    for i in range(_BATCH_RECORDS):
        append(_TIMESTAMP + i, None, _VALUE)
    return builder.build()


_LIST: list[tuple[int, None, bytes, tuple[()]]] = [
    (_TIMESTAMP + i, None, _VALUE, ()) for i in range(_BATCH_RECORDS)
]


def _ours_extend(encoder_class: Any) -> bytearray:
    encoder = encoder_class(HEADER_BYTES)
    encoder.extend(_LIST)
    count, base, latest = encoder.count, encoder.base_timestamp, encoder.max_timestamp
    return write_header(
        encoder.take(),
        last_offset_delta=count - 1,
        base_timestamp=base,
        max_timestamp=latest,
        records_count=count,
    )


def _theirs_encode(builder_class: Any) -> object:
    builder = builder_class(2, 0, False, -1, -1, -1, 1 << 20)
    append = builder.append
    for i in range(_BATCH_RECORDS):
        append(i, _TIMESTAMP + i, None, _VALUE, [])
    return builder.build()


def _encoders() -> dict[str, tuple[Callable[[], object], int]]:
    return {
        "odradek, append one by one": _repeat(_ours_append),
        "odradek, extend from a list": _repeat(lambda: _ours_extend(_compiled.RecordEncoder)),
        "odradek pure, extend": _repeat(lambda: _ours_extend(codec.RecordEncoder)),
        "aiokafka": _repeat(lambda: _theirs_encode(AiokafkaBuilder)),
        "kafka-python": _repeat(lambda: _theirs_encode(KafkaPythonBuilder), 4),
    }


def _drain(records: Iterable[object]) -> None:
    for _ in records:
        pass


def _ours_decode(batch: bytes, module: Any) -> None:
    header = parse_header(batch)
    verify_crc(batch, header)
    body = records_body(batch, header)
    _drain(module.iter_records(body, header.records_count, 0, header.base_timestamp, None))


def _theirs_decode(batch: bytes, batch_class: Any) -> None:
    theirs = batch_class(batch)
    assert theirs.validate_crc()
    _drain(theirs)


def _decoders(batch: bytes) -> dict[str, tuple[Callable[[], object], int]]:
    return {
        "odradek": _repeat(lambda: _ours_decode(batch, _compiled)),
        "odradek pure": _repeat(lambda: _ours_decode(batch, codec), 4),
        "aiokafka": _repeat(lambda: _theirs_decode(batch, AiokafkaBatch)),
        "kafka-python": _repeat(lambda: _theirs_decode(batch, KafkaPythonBatch), 4),
    }


def _arrow_decoders(batch: bytes) -> dict[str, tuple[Callable[[], object], int]]:
    many = 64  # about 1 MiB: what a fetch brings of one partition by default
    blob = batch * many
    parts = [blob[start : start + len(batch)] for start in range(0, len(blob), len(batch))]
    few = batch * 4

    def objects() -> None:
        for part in parts:
            _theirs_decode(part, AiokafkaBatch)

    def pure() -> None:
        decoder = column_codec.ColumnDecoder(False)
        for header in iter_headers(few):
            verify_crc(few, header)
            body = records_body(few, header)
            decoder.append(body, header.records_count, 0, header.base_timestamp, None)
        decoder.finish()

    return {
        "odradek": (lambda: to_table([PartitionRecords("t", 0, blob)]), many * _BATCH_RECORDS),
        "odradek pure": (pure, 4 * _BATCH_RECORDS),
        "aiokafka, only its objects": (objects, many * _BATCH_RECORDS),
        # What one would write without us: their objects, then pyarrow.
        "aiokafka + pyarrow": (lambda: _objects_to_arrow(batch), _BATCH_RECORDS),
    }


def _objects_to_arrow(batch: bytes) -> pa.Table:
    theirs = AiokafkaBatch(batch)
    assert theirs.validate_crc()
    records = list(theirs)
    return pa.table(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "timestamp": pa.array([r.timestamp for r in records], pa.timestamp("ms")),
        }
    )


def _column_encoders() -> dict[str, tuple[Callable[[], object], int]]:
    rows = 150_000
    values = pa.array([_VALUE] * rows, pa.binary())

    def ours() -> None:
        for _ in to_batches(values, timestamp_ms=_TIMESTAMP, batch_bytes_max=_BATCH_BYTES):
            pass

    def theirs() -> None:
        _theirs_encode_list(values.slice(0, _BATCH_RECORDS).to_pylist())

    return {"odradek": (ours, rows), "to_pylist + aiokafka": (theirs, _BATCH_RECORDS)}


def _theirs_encode_list(values: list[bytes]) -> None:
    builder = AiokafkaBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for i, value in enumerate(values):
        builder.append(i, _TIMESTAMP, None, value, [])
    builder.build()


def _header_rows(batch: bytearray) -> Iterable[Row]:
    times = 1000

    def parse() -> None:
        for _ in range(times):
            parse_header(batch)

    def verify() -> None:
        header = parse_header(batch)
        for _ in range(times):
            verify_crc(batch, header)

    def read_first() -> None:
        header = parse_header(batch)
        for _ in range(times):
            next(read_records(batch, header))

    for name, work in (
        ("parse a batch header", parse),
        ("verify CRC-32C of 16 KiB", verify),
        ("read the first record", read_first),
    ):
        yield name, "odradek", _best_seconds(work) / times * 1e6, "µs"


if __name__ == "__main__":
    for operation, implementation, value, unit in run():
        print(f"{operation:28} {implementation:30} {value:14,.2f} {unit}")
