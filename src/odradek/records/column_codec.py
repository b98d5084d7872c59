"""Batches to columns and back in plain Python: the reference for the second half of ``_compiled``.

``ColumnDecoder`` takes the bodies of batches and grows Arrow-shaped buffers; ``ColumnEncoder``
takes Arrow-shaped buffers and cuts record bodies of a bounded size from them. The compiled twins
make no object per record; these make some, and are here to be read and to be compared with.
"""

from array import array
from typing import Final

from odradek.records.codec import (
    check_count,
    place_field,
    place_record,
    size_of_varint,
    to_int64,
    write_varint,
)
from odradek.records.columns import (
    INT32_MAX,
    OFFSET_MAX,
    Allocate,
    AnyBuffer,
    BinaryColumn,
    DecodedBinary,
    DecodedColumns,
    DecodedHeaders,
    EncodedRows,
    HeaderColumn,
)
from odradek.records.record import FAULT_BATCH_REST, RECORDS_BYTES_MAX, Buffer, corruption

_MILLIS_MAX: Final = (2**63 - 1) // 1000


def _to_micros(timestamp: int) -> int:
    """Saturate: no producer means the year 290000, and a poisoned record must stay readable."""
    return max(-_MILLIS_MAX, min(_MILLIS_MAX, timestamp)) * 1000


class _BinaryGrower:
    def __init__(self) -> None:
        self.ends = array("i", [0])
        self.data = bytearray()
        self.valid: list[bool] = []

    def append(self, body: memoryview, start: int, end: int) -> None:
        if start >= 0:
            self.data += body[start:end]
        self.ends.append(len(self.data))
        self.valid.append(start >= 0)

    def truncate(self, rows: int) -> None:
        del self.ends[rows + 1 :], self.valid[rows:]
        del self.data[self.ends[-1] :]

    def finish(self, allocate: Allocate) -> DecodedBinary:
        ends, data = _allocated(allocate, self.ends), _allocated(allocate, self.data)
        return DecodedBinary(ends, data, *_bitmap(allocate, self.valid))


def _allocated(allocate: Allocate, column: "bytearray | array[int]") -> AnyBuffer:
    source = memoryview(column).cast("B")
    buffer = allocate(max(len(source), 1))
    memoryview(buffer).cast("B")[: len(source)] = source
    return buffer


def _bitmap(allocate: Allocate, valid: list[bool]) -> tuple[AnyBuffer | None, int]:
    null_count = valid.count(False)
    if null_count == 0:
        return None, 0
    bits = bytearray((len(valid) + 7) // 8)
    for row, is_valid in enumerate(valid):
        bits[row >> 3] |= is_valid << (row & 7)
    return _allocated(allocate, bits), null_count


class ColumnDecoder:
    """Grows columns batch by batch.

    ``body_bytes`` is the sum of the bodies taken so far. The ends of byte strings have 32 bits, so
    that sum may not pass 2 GiB: the caller finishes and starts another decoder before it does.
    """

    def __init__(
        self, include_headers: bool, allocate: Allocate = bytearray, value_bytes_hint: int = 0
    ) -> None:
        del value_bytes_hint  # saves the twin some moves
        self.rows = 0
        self.body_bytes = 0
        self._allocate = allocate
        self._finished = False
        self._key = _BinaryGrower()
        self._value = _BinaryGrower()
        self._offset = array("q")
        self._timestamp_us = array("q")
        self._timestamp_type = array("i")
        self._header_ends = array("i", [0]) if include_headers else None
        self._header_key = _BinaryGrower()
        self._header_value = _BinaryGrower()

    def append(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time: int | None,
        start_offset: int = 0,
        end_offset: int = OFFSET_MAX,
    ) -> int:
        """Add the records with ``start_offset <= offset < end_offset``; return how many.

        On CorruptionError the columns are as they were before the call.
        """
        view = memoryview(body)
        if self._finished:
            raise ValueError("the columns are finished")
        if self.body_bytes + len(view) > INT32_MAX:
            raise ValueError("the columns are full: finish them and start another decoder")
        check_count(count, len(view))
        rows = self.rows
        try:
            position = 0
            for _ in range(count):
                place, position = place_record(view, position)
                offset = to_int64(base_offset + place[0])
                if start_offset <= offset < end_offset:
                    timestamp = to_int64(base_timestamp + place[1])
                    self._append_row(view, place[2:], offset, timestamp, log_append_time)
            if position != len(view):
                raise corruption(FAULT_BATCH_REST)
        except Exception:
            self._truncate(rows)
            raise
        self.body_bytes += len(view)
        return self.rows - rows

    def _append_row(
        self,
        body: memoryview,
        place: tuple[int, ...],
        offset: int,
        timestamp: int,
        log_append_time: int | None,
    ) -> None:
        key_start, key_end, value_start, value_end, header_count, position = place
        self._key.append(body, key_start, key_end)
        self._value.append(body, value_start, value_end)
        self._offset.append(offset)
        self._timestamp_us.append(
            _to_micros(timestamp if log_append_time is None else log_append_time)
        )
        self._timestamp_type.append(log_append_time is not None)
        if self._header_ends is not None:
            for _ in range(header_count):
                start, end, position = place_field(body, position, len(body))
                self._header_key.append(body, start, end)
                start, end, position = place_field(body, position, len(body))
                self._header_value.append(body, start, end)
            self._header_ends.append(self._header_ends[-1] + header_count)
        self.rows += 1

    def _truncate(self, rows: int) -> None:
        self.rows = rows
        self._key.truncate(rows)
        self._value.truncate(rows)
        del self._offset[rows:], self._timestamp_us[rows:], self._timestamp_type[rows:]
        if self._header_ends is not None:
            del self._header_ends[rows + 1 :]
            self._header_key.truncate(self._header_ends[-1])
            self._header_value.truncate(self._header_ends[-1])

    def finish(self) -> DecodedColumns:
        """Return the columns. The decoder is used up."""
        if self._finished:
            raise ValueError("the columns are finished")
        self._finished = True
        allocate = self._allocate
        return DecodedColumns(
            self.rows,
            self._key.finish(allocate),
            self._value.finish(allocate),
            _allocated(allocate, self._offset),
            _allocated(allocate, self._timestamp_us),
            _allocated(allocate, self._timestamp_type),
            self._finish_headers(allocate),
        )

    def _finish_headers(self, allocate: Allocate) -> DecodedHeaders | None:
        ends = self._header_ends
        if ends is None:
            return None
        return DecodedHeaders(
            _allocated(allocate, ends),
            *_bitmap(allocate, [ends[i] != ends[i + 1] for i in range(self.rows)]),
            ends[-1],
            self._header_key.finish(allocate),
            self._header_value.finish(allocate),
        )


class BinaryReader:
    """The cells of a column of byte strings, one by one."""

    def __init__(self, column: BinaryColumn, rows: int) -> None:
        self._first = column.first
        self._ends = _int64s(column.offsets, column.first, rows + 1)
        self._data = memoryview(column.data).cast("B")
        self._validity = _bits(column.validity, column.first + rows)

    def cell(self, row: int) -> memoryview | None:
        if not _is_valid(self._validity, self._first + row):
            return None
        start, end = self._ends[row], self._ends[row + 1]
        if not 0 <= start <= end <= len(self._data):
            raise ValueError("column ends do not fit their data")
        return self._data[start:end]


def _int64s(buffer: AnyBuffer, first: int, count: int) -> memoryview:
    view = memoryview(buffer).cast("B")
    if first < 0 or len(view) < (first + count) * 8:
        raise ValueError("a column is shorter than its rows")
    return view[first * 8 : (first + count) * 8].cast("q")


def _bits(buffer: AnyBuffer | None, count: int) -> memoryview | None:
    if buffer is None:
        return None
    view = memoryview(buffer).cast("B")
    if len(view) * 8 < count:
        raise ValueError("a column is shorter than its rows")
    return view


def _is_valid(bits: memoryview | None, row: int) -> bool:
    return bits is None or bool(bits[row >> 3] >> (row & 7) & 1)


class _HeaderReader:
    def __init__(self, column: HeaderColumn, rows: int) -> None:
        self._first = column.first
        self._ends = _int64s(column.offsets, column.first, rows + 1)
        self._validity = _bits(column.validity, column.first + rows)
        self._header_count = column.header_count
        self._keys = BinaryReader(column.keys, column.header_count)
        self._values = BinaryReader(column.values, column.header_count)

    def cells(self, row: int) -> list[tuple[memoryview, memoryview | None]]:
        if not _is_valid(self._validity, self._first + row):
            return []
        start, end = self._ends[row], self._ends[row + 1]
        if not 0 <= start <= end <= self._header_count:
            raise ValueError("column ends do not fit their data")
        headers = []
        for index in range(start, end):
            key = self._keys.cell(index)
            if key is None:
                raise ValueError("a header key is null")
            headers.append((key, self._values.cell(index)))
        return headers


class ColumnEncoder:
    """Cuts the bodies of batches from columns; row numbers count from the start of the columns.

    A missing key or value column is all null. ``timestamps`` holds int64 milliseconds from row 0
    on; without it every row has ``timestamp``. ``order`` holds int64 row numbers: only these rows
    are encoded, in this order, and what ``encode`` counts is places in it.
    """

    def __init__(
        self,
        rows: int,
        keys: BinaryColumn | None,
        values: BinaryColumn | None,
        headers: HeaderColumn | None,
        timestamps: AnyBuffer | None,
        timestamp: int,
        order: AnyBuffer | None = None,
    ) -> None:
        self._column_rows = rows
        self._order: memoryview | None = None
        if order is not None:
            view = memoryview(order).cast("B")
            self._order = view[: len(view) // 8 * 8].cast("q")
            rows = len(self._order)
        self.rows = rows
        held = self._column_rows
        self._keys = None if keys is None else BinaryReader(keys, held)
        self._values = None if values is None else BinaryReader(values, held)
        self._headers = None if headers is None else _HeaderReader(headers, held)
        self._timestamps = None if timestamps is None else _int64s(timestamps, 0, held)
        self._timestamp = timestamp

    def encode(self, row: int, body_bytes_max: int, room_bytes: int) -> EncodedRows:
        """Encode rows from ``row`` on while they fit in ``body_bytes_max``, but at least one.

        Raises:
            ValueError: One row alone is too large for any batch, or the columns are malformed.
        """
        assert 0 <= row < self.rows
        out = bytearray(room_bytes)
        body_bytes_max = min(body_bytes_max, RECORDS_BYTES_MAX)
        base_timestamp = max_timestamp = self._timestamp_at(self._row_at(row))
        next_row = row
        while next_row < self.rows:
            place = self._row_at(next_row)
            timestamp = self._timestamp_at(place)
            fields = self._fields(place, next_row - row, timestamp - base_timestamp)
            size = len(out) - room_bytes + size_of_varint(len(fields)) + len(fields)
            if size > (RECORDS_BYTES_MAX if next_row == row else body_bytes_max):
                break
            write_varint(out, len(fields))
            out += fields
            max_timestamp = max(max_timestamp, timestamp)
            next_row += 1
        if next_row == row:
            raise ValueError("the record makes the batch longer than 2 GiB")
        return EncodedRows(out, next_row, base_timestamp, max_timestamp)

    def _row_at(self, place: int) -> int:
        if self._order is None:
            return place
        row = self._order[place]
        if not 0 <= row < self._column_rows:
            raise ValueError("the order names a row that the columns do not have")
        return row

    def _timestamp_at(self, row: int) -> int:
        return self._timestamp if self._timestamps is None else self._timestamps[row]

    def _fields(self, row: int, offset_delta: int, timestamp_delta: int) -> bytearray:
        fields = bytearray(1)
        write_varint(fields, to_int64(timestamp_delta))
        write_varint(fields, offset_delta)
        _write_cell(fields, None if self._keys is None else self._keys.cell(row))
        _write_cell(fields, None if self._values is None else self._values.cell(row))
        headers = [] if self._headers is None else self._headers.cells(row)
        write_varint(fields, len(headers))
        for key, value in headers:
            _write_cell(fields, key)
            _write_cell(fields, value)
        return fields


def _write_cell(out: bytearray, cell: memoryview | None) -> None:
    if cell is None:
        out.append(1)  # -1
        return
    write_varint(out, len(cell))
    out += cell
