from collections.abc import Iterable, Iterator
from typing import Any

from odradek.records.columns import (
    Allocate,
    AnyBuffer,
    BinaryColumn,
    DecodedColumns,
    EncodedRows,
    HeaderColumn,
)
from odradek.records.open_batch import Headers, RecordOutcome
from odradek.records.record import Buffer, Record, RecordsSummary, RefusedRecords, Row

def iter_records(
    body: Buffer, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Iterator[Record]: ...
def summarize_records(body: Buffer, count: int, base_timestamp: int) -> RecordsSummary: ...
def find_refused(
    body: Buffer,
    count: int,
    base_timestamp: int,
    *,
    keys: bool,
    timestamps: bool,
    first_timestamp: int,
    last_timestamp: int,
    named_max: int,
) -> RefusedRecords: ...
def murmur2(data: bytes) -> int: ...
def partitions_of_keys(keys: BinaryColumn, rows: int, partitions: int) -> bytearray: ...

class RecordEncoder:
    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def base_timestamp(self) -> int | None: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __init__(
        self, room_bytes: int, base_offset: int = 0, base_timestamp: int | None = None
    ) -> None: ...
    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str | bytes, Buffer | None]] = (),
        offset: int | None = None,
    ) -> int: ...
    def extend(self, rows: Iterable[Row]) -> int: ...
    def take(self) -> bytearray: ...

class OpenBatch:
    is_closed: bool
    is_full: bool
    count: int
    size: int
    futures: list[RecordOutcome]
    timestamps: list[int]
    def __init__(self, encoder: RecordEncoder, size_max: int, record_size_max: int) -> None: ...
    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers,
        future: RecordOutcome,
    ) -> None: ...
    def try_append(
        self,
        timestamp: int,
        key: Any,
        value: Any,
        headers: Headers,
        future: RecordOutcome,
        record_size: int = 0,
    ) -> bool: ...
    def reopen(self, size_max: int) -> None: ...
    def tell_all(
        self,
        result_type: type[tuple[Any, ...]],
        topic: str,
        partition: int,
        base_offset: int,
        log_append_time: int | None,
    ) -> None: ...

class ColumnDecoder:
    @property
    def rows(self) -> int: ...
    @property
    def body_bytes(self) -> int: ...
    def __init__(
        self, include_headers: bool, allocate: Allocate = ..., value_bytes_hint: int = 0
    ) -> None: ...
    def append(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time: int | None,
        start_offset: int = 0,
        end_offset: int = ...,
    ) -> int: ...
    def finish(self) -> DecodedColumns: ...

class ColumnEncoder:
    @property
    def rows(self) -> int: ...
    def __init__(
        self,
        rows: int,
        keys: BinaryColumn | None,
        values: BinaryColumn | None,
        headers: HeaderColumn | None,
        timestamps: AnyBuffer | None,
        timestamp: int,
        order: AnyBuffer | None = None,
    ) -> None: ...
    def encode(self, row: int, body_bytes_max: int, room_bytes: int) -> EncodedRows: ...
