"""Rows of which nothing is wanted but what the headers of batches tell (hot path).

That is so where ``columns`` names no more than ``HEADER_COLUMNS``: to count records, or to see how
far partitions go. A header says how many records there are and, where none is missing, which
offsets they have, so batches are neither decompressed nor decoded. Those with gaps, as compaction
leaves them, those of older formats and those that a range cuts are decoded as always. Checksums are
not looked at: they cover what is not read.

Benchmark: ``bench/spark_reading.py``.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from odradek.client.consumer.chunk import AbortedFilter
from odradek.records import BatchHeader
from odradek.records.arrow import SCHEMA
from odradek.spark.formats import has_formats
from odradek.spark.offsets import OffsetRange
from odradek.spark.options import SourceOptions
from odradek.storage.scan import iter_batches

HEADER_COLUMNS: Final = frozenset({"topic", "partition", "offset", "timestampType"})
_MAGIC_V2: Final = 2
_NOTHING: Final = memoryview(b"")


class HeldBatch(NamedTuple):
    """The header of a batch, at position 0 of what ``load`` gets."""

    header: BatchHeader
    load: Callable[[], memoryview]


Decode = Callable[[memoryview], Iterator[pa.RecordBatch]]


def are_headers_enough(options: SourceOptions) -> bool:
    return HEADER_COLUMNS.issuperset(options.columns or ("value",)) and not has_formats(options)


def batches_of(pieces: Iterable[memoryview]) -> Iterator[HeldBatch]:
    for piece in pieces:
        for header in iter_batches(piece):
            load = partial(_cut_out, piece, header)
            yield HeldBatch(header._replace(position=0), load)


def _cut_out(piece: memoryview, header: BatchHeader) -> memoryview:
    return piece[header.position : header.end_position]


def header_rows(
    wanted: OffsetRange,
    columns: tuple[str, ...],
    batches: Iterable[HeldBatch],
    aborted: Iterable[tuple[int, int]] | None,
    decode: Decode,
    rows_max: int,
) -> Iterator[pa.RecordBatch]:
    """Iterate over rows with these columns; ``decode`` is for batches that have to be opened."""
    committed = None if aborted is None else AbortedFilter(aborted)
    spans = _Spans(wanted, columns)
    for header, load in batches:
        if not _is_near(header, wanted):
            continue
        if committed is not None:
            data = load() if header.is_control else _NOTHING
            if not committed.is_wanted(data, header):
                continue
        if header.is_control:
            continue
        if _is_told(header, wanted):
            spans.add(header)
        else:
            # Offsets stay in their order.
            yield from spans.take(rows_max)
            yield from (batch.select(columns) for batch in decode(load()))
        if spans.rows >= rows_max:
            yield from spans.take(rows_max)
    yield from spans.take(rows_max)


def _is_near(header: BatchHeader, wanted: OffsetRange) -> bool:
    """Whether it may have wanted records; which offsets are in older formats they do not tell."""
    is_old = header.magic < _MAGIC_V2
    return is_old or (header.base_offset < wanted.end and header.last_offset >= wanted.start)


def _is_told(header: BatchHeader, wanted: OffsetRange) -> bool:
    is_whole = wanted.start <= header.base_offset and header.next_offset <= wanted.end
    has_all = header.records_count == header.last_offset_delta + 1
    return header.magic == _MAGIC_V2 and is_whole and has_all


class _Spans:
    """Offsets without gaps, until there are enough for a batch."""

    def __init__(self, wanted: OffsetRange, columns: tuple[str, ...]) -> None:
        self._partition = wanted.partition
        self._columns = columns
        self._begins: list[int] = []
        self._counts: list[int] = []
        self._types: list[int] = []
        self.rows = 0

    def add(self, header: BatchHeader) -> None:
        self._begins.append(header.base_offset)
        self._counts.append(header.records_count)
        self._types.append(int(header.timestamp_type))
        self.rows += header.records_count

    def take(self, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Return what there is, in batches of at most so many rows, and begin anew."""
        if not self.rows:
            return
        arrays = [self._array(name) for name in self._columns]
        schema = pa.schema([SCHEMA.field(name) for name in self._columns])
        batch, rows = pa.RecordBatch.from_arrays(arrays, schema=schema), self.rows
        self._begins, self._counts, self._types, self.rows = [], [], [], 0
        for start in range(0, rows, rows_max):
            yield batch.slice(start, rows_max)

    def _array(self, name: str) -> pa.Array:
        counts = np.array(self._counts, np.int64)
        match name:
            case "topic":
                return pa.repeat(pa.scalar(self._partition.topic, pa.string()), self.rows)
            case "partition":
                return pa.repeat(pa.scalar(self._partition.partition, pa.int32()), self.rows)
            case "timestampType":
                return pa.array(np.repeat(np.array(self._types, np.int32), counts))
        behind = np.cumsum(counts) - counts
        begins = np.array(self._begins, np.int64)
        return pa.array(np.repeat(begins - behind, counts) + np.arange(self.rows))
