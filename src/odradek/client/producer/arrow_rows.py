"""An Arrow table as rows to send: its columns, the widest row, which row goes where. Pure.

Hot path (``bench/client_producer.py``): nothing here is done row by row in Python, but asking a
partitioner of the application's own. A table is worked through in chunks, because what is made of
the rows (ends of 64 bits, partitions, orders) takes up to 40 bytes for each.

The only module of the client that imports pyarrow at once; it is imported when it is needed.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.producer.row_batch import ColumnNames
from odradek.records import record_size_max
from odradek.records.arrow import align_columns, partitions_of_keys
from odradek.records.key_hash import NO_PARTITION

CHUNK_ROWS_MAX: Final = 2**18
CHUNK_BYTES_MIN: Final = 2**20
"""Smaller chunks are put together: each would become a batch of its own, or several."""

_RECORD_OVERHEAD: Final = record_size_max(None, None)
_HEADER_OVERHEAD: Final = record_size_max(None, None, [("", b"")]) - _RECORD_OVERHEAD


class RowGroup(NamedTuple):
    """Rows of a chunk that go together: to one partition, or to any if it is None."""

    partition: int | None
    order: pa.Array | None
    """Numbers of the rows; None: all of the chunk."""
    rows: int


class RowChunk(NamedTuple):
    first_row: int
    columns: pa.RecordBatch
    """As ``odradek.records.arrow.align_columns`` gives them."""
    partitions: pa.Array | None
    """The column that says where rows go, int32."""

    @property
    def keys(self) -> pa.Array | None:
        return _find(self.columns, "key")

    def widest_row(self) -> tuple[int, int]:
        """Return a bound on the bytes of the largest row, and its number in the table."""
        sizes = _lengths(self.columns.column("value"))
        keys, headers = self.keys, _find(self.columns, "headers")
        if keys is not None:
            sizes = pc.add(sizes, _lengths(keys))
        if headers is not None:
            sizes = pc.add(sizes, _header_lengths(headers))
        widest = pc.max(sizes)
        return _RECORD_OVERHEAD + widest.as_py(), self.first_row + pc.index(sizes, widest).as_py()

    def check(self) -> None:
        """Refuse rows that no batch could take.

        Raises:
            ValueError: A header has no key, or a partition is negative.
        """
        if self.partitions is not None and (pc.min(self.partitions).as_py() or 0) < 0:
            raise ValueError("column partition: there are no negative partitions")
        headers = _find(self.columns, "headers")
        # The keys of a map are never null.
        if headers is None or pa.types.is_map(headers.type) or pa.types.is_null(headers.type):
            return
        if pc.struct_field(pc.list_flatten(headers), [0]).null_count:
            raise ValueError("column headers: a header has no key")

    def partition_max(self) -> int:
        """Return the largest partition that a row asks for, -1 if none does."""
        found = None if self.partitions is None else pc.max(self.partitions).as_py()
        return NO_PARTITION if found is None else int(found)

    def groups(
        self,
        partitions: int,
        *,
        ignore_keys: bool = False,
        partitioner: Callable[[bytes | None, bytes | None], int] | None = None,
    ) -> list[RowGroup]:
        """Tell which rows go where, in a topic of so many partitions."""
        numbers, keys = self.partitions, self.keys
        if partitioner is not None:
            numbers = self._ask(partitioner)
        elif keys is not None and not ignore_keys:
            hashed = partitions_of_keys(keys, partitions)
            numbers = hashed if numbers is None else pc.coalesce(numbers, hashed)
        if numbers is None:
            return [RowGroup(None, None, len(self.columns))]
        return list(_grouped(pc.fill_null(numbers, NO_PARTITION)))

    def _ask(self, partitioner: Callable[[bytes | None, bytes | None], int]) -> pa.Array:
        rows = len(self.columns)
        keys = pa.nulls(rows) if self.keys is None else self.keys
        given = pa.nulls(rows, pa.int32()) if self.partitions is None else self.partitions
        values = self.columns.column("value")
        numbers = [
            partitioner(keys[row].as_py(), values[row].as_py()) if number is None else number
            for row, number in enumerate(given.to_pylist())
        ]
        return pa.array(numbers, pa.int32())


def chunks_of(table: pa.Table | pa.RecordBatch, names: ColumnNames) -> list[RowChunk]:
    """Return the rows of a table, chunk by chunk.

    Raises:
        TypeError: It is no table, or a column is of a type that cannot be sent.
        ValueError: A column is missing, or there twice.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise TypeError(f"send_arrow takes a pyarrow Table or RecordBatch, not {type(table)}")
    chosen = _chosen(table, names)
    chunks, first_row = [], 0
    for batch in _batches(table.select(list(chosen.values())).rename_columns(list(chosen))):
        partitions = _find(batch, "partition")
        if partitions is not None:
            partitions = _as_partitions(partitions)
        sent = ("value", "key", "headers", "timestamp")
        (columns,) = align_columns(*(_find(batch, name) for name in sent))
        chunks.append(RowChunk(first_row, columns, partitions))
        first_row += len(batch)
    return chunks


def _chosen(table: pa.Table, names: ColumnNames) -> dict[str, str]:
    """Return the columns of the table by what they are for."""
    usual, chosen = ColumnNames()._asdict(), {}
    for purpose, name in names._asdict().items():
        if name is None:
            continue
        places = table.schema.get_all_field_indices(name)
        if len(places) > 1:
            raise ValueError(f"column {name} is there {len(places)} times")
        if places:
            chosen[purpose] = name
        elif purpose == "value" or name != usual[purpose]:
            raise ValueError(f"there is no column {name}, only {', '.join(table.column_names)}")
    return chosen


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Cut a table into pieces of a fair size, without a copy of those that have it already."""
    small: list[pa.RecordBatch] = []
    for batch in table.to_batches(max_chunksize=CHUNK_ROWS_MAX):
        rows = sum(map(len, small)) + len(batch)
        if small and (rows > CHUNK_ROWS_MAX or batch.nbytes >= CHUNK_BYTES_MIN):
            yield _joined(small)
            small = []
        small.append(batch)
        if sum(each.nbytes for each in small) >= CHUNK_BYTES_MIN:
            yield _joined(small)
            small = []
    if any(map(len, small)):
        yield _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _as_partitions(column: pa.Array) -> pa.Array:
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise TypeError(f"column partition cannot be of type {column.type}")
    try:
        return column.cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise ValueError(f"column partition: {error}") from error


def _find(columns: pa.RecordBatch, name: str) -> pa.Array | None:
    index = columns.schema.get_field_index(name)
    return None if index < 0 else columns.column(index)


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _header_lengths(headers: pa.Array) -> pa.Array:
    """Return a bound on the bytes of each row's headers."""
    if pa.types.is_null(headers.type):
        return pa.repeat(pa.scalar(0, pa.int64()), len(headers))
    each = pa.repeat(pa.scalar(_HEADER_OVERHEAD, pa.int64()), len(headers.values))
    for field in headers.values.flatten():
        each = pc.add(each, _lengths(field))
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
    borders = headers.offsets
    return pc.subtract(ends.take(borders.slice(1)), ends.take(borders.slice(0, len(headers))))


def _grouped(numbers: pa.Array) -> Iterator[RowGroup]:
    order = pc.sort_indices(numbers)  # stable: the rows of a partition keep their order
    runs = pc.run_end_encode(numbers.take(order))
    ends = [0, *runs.run_ends.to_pylist()]
    for number, (start, end) in zip(runs.values.to_pylist(), pairwise(ends), strict=True):
        partition = None if number == NO_PARTITION else number
        is_all = end - start == len(numbers)
        yield RowGroup(partition, None if is_all else order.slice(start, end - start), end - start)
