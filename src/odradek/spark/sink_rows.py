"""Rows as a task gets them, made fit for record batches, and which of them are not. Pure.

``Rows`` carries with each row its number in the task, so that one that is refused, here or much
later by a broker, can be named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from odradek.records import record_size_max
from odradek.records.arrow import HEADER_TYPE

HEADERS: Final = pa.list_(HEADER_TYPE)
_RECORD_OVERHEAD: Final = record_size_max(None, None)
_HEADER_OVERHEAD: Final = record_size_max(None, None, [("", b"")]) - _RECORD_OVERHEAD

Numbers = NDArray[Any]


class BadRow(NamedTuple):
    """A row that cannot be written, and why not."""

    number: int
    reason: str
    topic: str | None
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str | None, bytes | None]]
    is_too_large: bool = False
    code: str | None = None
    """Kafka's name of the error, if it was a broker that refused the row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a task: ``key`` and ``value`` are large_binary, ``number`` is int64."""

    table: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def find(self, name: str) -> pa.Array | None:
        index = self.table.schema.get_field_index(name)
        return None if index < 0 else self.table.column(index)

    @property
    def numbers(self) -> Numbers:
        return np.asarray(self.table.column("number"))

    def take(self, indexes: Numbers) -> "Rows":
        return Rows(self.table.take(pa.array(indexes, pa.int64())))

    def slice(self, start: int, length: int | None = None) -> "Rows":
        return Rows(self.table.slice(start, length))

    def without(self, indexes: Sequence[int]) -> "Rows":
        kept = np.ones(len(self), bool)
        kept[list(indexes)] = False
        return self.take(np.flatnonzero(kept))

    def sizes(self) -> Numbers:
        """Return a bound on the bytes of each row as a record."""
        sizes = np.full(len(self), _RECORD_OVERHEAD, np.int64)
        for name in ("key", "value"):
            column = self.find(name)
            if column is not None:
                sizes += _lengths(column)
        headers = self.find("headers")
        return sizes if headers is None else sizes + _header_sizes(headers)

    def rows_with_null_header_keys(self) -> Numbers:
        headers = self.find("headers")
        if headers is None:
            return np.zeros(0, np.int64)
        keys = pc.struct_field(pc.list_flatten(headers), 0)
        if not keys.null_count:
            return np.zeros(0, np.int64)
        parents = np.asarray(pc.list_parent_indices(headers))
        return np.unique(parents[np.asarray(pc.is_null(keys))])

    def bad(
        self,
        index: int,
        reason: str,
        topic: str | None,
        partition: int | None,
        *,
        is_too_large: bool = False,
    ) -> BadRow:
        """Describe one of the rows as one that cannot be written."""
        row = {name: self.table.column(name)[index].as_py() for name in self.table.schema.names}
        headers = [(each["key"], each["value"]) for each in row.get("headers") or () if each]
        return BadRow(
            row["number"],
            reason,
            topic,
            partition,
            row.get("key"),
            row["value"],
            headers,
            is_too_large,
        )


def rows_from(batch: pa.RecordBatch, first_number: int, *, with_topic: bool) -> Rows:
    """Bring the columns of Spark to those that are written, numbered on from ``first_number``."""
    columns = {name.lower(): batch.column(i) for i, name in enumerate(batch.schema.names)}
    kept = {"value": columns["value"].cast(pa.large_binary())}
    if "key" in columns:
        kept["key"] = columns["key"].cast(pa.large_binary())
    if "headers" in columns:
        kept["headers"] = _headers(columns["headers"])
    for name, kind in (("topic", pa.string()), ("partition", pa.int32())):
        if name in columns and (with_topic or name != "topic"):
            kept[name] = columns[name].cast(kind)
    last = first_number + batch.num_rows
    kept["number"] = pa.array(np.arange(first_number, last, dtype=np.int64))
    return Rows(pa.RecordBatch.from_arrays(list(kept.values()), list(kept)))


def _headers(column: pa.Array) -> pa.Array:
    """Bring headers to the names of ours: fields count by place, as in Spark. Null is empty."""
    flat = pc.list_flatten(column)
    ends = np.zeros(len(column) + 1, np.int32)
    np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(column), 0)), out=ends[1:])
    keys = pc.struct_field(flat, 0).cast(pa.string())
    values = pc.struct_field(flat, 1).cast(pa.binary())
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    return pa.ListArray.from_arrays(pa.array(ends), pairs)


def _lengths(column: pa.Array) -> Numbers:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)


def _header_sizes(headers: pa.Array) -> Numbers:
    flat = pc.list_flatten(headers)
    each = np.full(len(flat), _HEADER_OVERHEAD, np.int64)
    for field in (0, 1):
        each += _lengths(pc.struct_field(flat, field))
    parents = np.asarray(pc.list_parent_indices(headers)).astype(np.int64)
    return np.bincount(parents, each, len(headers)).astype(np.int64)
