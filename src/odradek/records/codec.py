"""The record codec in plain Python: the reference, and the fallback where no C compiler was.

Works on the *body* of a batch: the bytes after its header, already decompressed. What is here has
a twin of the same name in ``_compiled.pyx``; callers take whichever ``implementation`` chose. A
property test holds the two to equal results and equal complaints, so a rule changes in both places
or the build goes red.

Every length is checked against the bytes that are left before it is believed; a count is checked
against the smallest size a record or header can have. Benchmark: ``bench/records.py``.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from odradek.records.record import (
    FAULT_BATCH_REST,
    FAULT_FIELD_LENGTH,
    FAULT_HEADER_COUNT,
    FAULT_HEADER_KEY,
    FAULT_RECORD_COUNT,
    FAULT_RECORD_LENGTH,
    FAULT_RECORD_REST,
    FAULT_TRUNCATED,
    FAULT_VARINT,
    HEADER_BYTES_MIN,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    RECORDS_BYTES_MAX,
    Buffer,
    Header,
    Record,
    RecordsSummary,
    RefusedRecords,
    Row,
    corruption,
)

_INT32_MAX: Final = 2**31 - 1
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


def to_int64(value: int) -> int:
    """Wrap as two's complement does: the sum of a hostile base and delta is still an int64."""
    return (value - _INT64_MIN) % 2**64 + _INT64_MIN


def read_varint(body: memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the 32-bit zig-zag varint at ``position`` and the position after it."""
    raw, position = _read_unsigned(body, position, end, 5)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(body: memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the 64-bit zig-zag varint at ``position`` and the position after it."""
    raw, position = _read_unsigned(body, position, end, 10)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def _read_unsigned(body: memoryview, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 7 * bytes_max, 7):
        if position >= end:
            raise corruption(FAULT_TRUNCATED)
        byte = body[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
    raise corruption(FAULT_VARINT)


def write_varint(out: bytearray, value: int) -> None:
    """Append ``value``, an int32 or int64, as a zig-zag varint."""
    raw = (value << 1) if value >= 0 else ((-value << 1) - 1)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def size_of_varint(value: int) -> int:
    """Return how many bytes ``write_varint`` writes for ``value``."""
    raw = (value << 1) if value >= 0 else ((-value << 1) - 1)
    return max(1, (raw.bit_length() + 6) // 7)


def check_count(count: int, body_bytes: int) -> None:
    """Refuse a record count that the body cannot hold, before anything is sized by it."""
    if count < 0 or count * RECORD_BYTES_MIN > body_bytes:
        raise corruption(FAULT_RECORD_COUNT)


# A record still in place: offset delta, timestamp delta, the [start, end) of key and value (start
# is -1 for null), then the header count and where the headers start.
Place = tuple[int, int, int, int, int, int, int, int]


def place_record(body: memoryview, position: int) -> tuple[Place, int]:
    """Find the fields of the record at ``position``; return them and the position after it.

    The headers are walked too, so whoever reads them afterwards reads checked bytes.
    """
    length, position = read_varint(body, position, len(body))
    if length < 0 or length > len(body) - position:
        raise corruption(FAULT_RECORD_LENGTH)
    end = position + length
    if position >= end:
        raise corruption(FAULT_TRUNCATED)
    position += 1  # attributes: no bit of them is in use
    timestamp_delta, position = read_varlong(body, position, end)
    offset_delta, position = read_varint(body, position, end)
    key_start, key_end, position = place_field(body, position, end)
    value_start, value_end, position = place_field(body, position, end)
    header_count, position = read_varint(body, position, end)
    if header_count < 0 or header_count * HEADER_BYTES_MIN > end - position:
        raise corruption(FAULT_HEADER_COUNT)
    headers_start = position
    for _ in range(header_count):
        name_start, _, position = place_field(body, position, end)
        if name_start < 0:
            raise corruption(FAULT_HEADER_KEY)
        _, _, position = place_field(body, position, end)
    if position != end:
        raise corruption(FAULT_RECORD_REST)
    place = (offset_delta, timestamp_delta, key_start, key_end, value_start, value_end)
    return (*place, header_count, headers_start), end


def place_field(body: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """Return start, end and the position after a nullable field; start is -1 for null."""
    length, position = read_varint(body, position, end)
    if length < 0:
        return -1, -1, position
    if length > end - position:
        raise corruption(FAULT_FIELD_LENGTH)
    return position, position + length, position + length


def _bytes_at(body: memoryview, start: int, end: int) -> bytes | None:
    return None if start < 0 else bytes(body[start:end])


def _headers_at(body: memoryview, count: int, position: int) -> tuple[Header, ...]:
    headers: list[Header] = []
    for _ in range(count):
        start, end, position = place_field(body, position, len(body))
        key = str(body[start:end], "utf-8", "surrogateescape")
        start, end, position = place_field(body, position, len(body))
        headers.append((key, _bytes_at(body, start, end)))
    return tuple(headers)


def iter_records(
    body: Buffer, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Iterator[Record]:
    """Return an iterator over the ``count`` records of ``body``, decoded one at a time.

    With ``log_append_time`` every record has that timestamp. Bytes that are left after the last
    record raise where the iterator would have ended.
    """
    view = memoryview(body)
    check_count(count, len(view))
    return _iter_records(view, count, base_offset, base_timestamp, log_append_time)


def _iter_records(
    body: memoryview, count: int, base_offset: int, base_timestamp: int, log_append_time: int | None
) -> Iterator[Record]:
    position = 0
    for _ in range(count):
        place, position = place_record(body, position)
        offset_delta, timestamp_delta, key_start, key_end, value_start, value_end = place[:6]
        timestamp = log_append_time
        if timestamp is None:
            timestamp = to_int64(base_timestamp + timestamp_delta)
        yield Record(
            to_int64(base_offset + offset_delta),
            timestamp,
            _bytes_at(body, key_start, key_end),
            _bytes_at(body, value_start, value_end),
            _headers_at(body, place[6], place[7]) if place[6] else (),
        )
    if position != len(body):
        raise corruption(FAULT_BATCH_REST)


def summarize_records(body: Buffer, count: int, base_timestamp: int) -> RecordsSummary:
    """Check every record of ``body`` and report on them together, keeping none."""
    view = memoryview(body)
    check_count(count, len(view))
    consecutive, null_keys, position = True, 0, 0
    min_timestamp, max_timestamp = _INT64_MAX, _INT64_MIN
    for index in range(count):
        place, position = place_record(view, position)
        consecutive = consecutive and place[0] == index
        null_keys += place[2] < 0
        timestamp = to_int64(base_timestamp + place[1])
        min_timestamp = min(min_timestamp, timestamp)
        max_timestamp = max(max_timestamp, timestamp)
    if position != len(view):
        raise corruption(FAULT_BATCH_REST)
    if count == 0:
        min_timestamp = max_timestamp = -1
    return RecordsSummary(consecutive, null_keys, min_timestamp, max_timestamp)


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
) -> RefusedRecords:
    """Find records without a key, if ``keys`` are asked for, or with a timestamp out of bounds.

    Where ``timestamps`` is set every timestamp is refused; else those which are there and not
    within the two bounds. A record is refused once, for its key first.
    """
    view = memoryview(body)
    check_count(count, len(view))
    named: list[tuple[int, int | None]] = []
    null_keys, bad_timestamps, position = 0, 0, 0
    for index in range(count):
        place, position = place_record(view, position)
        timestamp = to_int64(base_timestamp + place[1])
        is_within = timestamp == NO_TIMESTAMP or first_timestamp <= timestamp <= last_timestamp
        if keys and place[2] < 0:
            null_keys += 1
            refused: tuple[int, int | None] = (index, None)
        elif timestamps or not is_within:
            bad_timestamps += 1
            refused = (index, timestamp)
        else:
            continue
        if len(named) < named_max:
            named.append(refused)
    return RefusedRecords(named, null_keys, bad_timestamps)


class RecordEncoder:
    """Encodes records one after another into one buffer, leaving room for a header in front.

    ``base_timestamp`` is the first record's unless it is given (the cleaner keeps its delete
    horizon there). Offsets run on from ``base_offset`` unless they are given; they may leave gaps
    but never go back. Sizes count the room for the header.
    """

    def __init__(
        self, room_bytes: int, base_offset: int = 0, base_timestamp: int | None = None
    ) -> None:
        self.base_offset = _checked_int64(base_offset)
        self.next_offset = base_offset
        self.base_timestamp = None if base_timestamp is None else _checked_int64(base_timestamp)
        self.max_timestamp = -1
        self.count = 0
        self._out = bytearray(room_bytes)
        self._size_max = room_bytes + RECORDS_BYTES_MAX

    @property
    def size(self) -> int:
        return len(self._out)

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str | bytes, Buffer | None]] = (),
        offset: int | None = None,
    ) -> int:
        """Encode one record and return the size of the buffer after it.

        Raises:
            ValueError: The offset does not follow the last one, or does not fit; the record would
                make the batch too large for its own length field. Nothing was added.
        """
        timestamp = _checked_int64(timestamp)
        offset = self.next_offset if offset is None else _checked_int64(offset)
        offset_delta = offset - self.base_offset
        if offset < self.next_offset or offset_delta > _INT32_MAX or offset == _INT64_MAX:
            raise ValueError(f"offset {offset} cannot follow in a batch at {self.base_offset}")
        base_timestamp = timestamp if self.base_timestamp is None else self.base_timestamp
        fields = bytearray(1)
        write_varint(fields, to_int64(timestamp - base_timestamp))
        write_varint(fields, offset_delta)
        _write_field(fields, key)
        _write_field(fields, value)
        _write_headers(fields, headers)
        size = len(self._out) + size_of_varint(len(fields)) + len(fields)
        if size > self._size_max:
            raise ValueError("the record makes the batch longer than 2 GiB")
        write_varint(self._out, len(fields))
        self._out += fields
        self.base_timestamp = base_timestamp
        self.next_offset = offset + 1
        self.max_timestamp = max(self.max_timestamp, timestamp) if self.count else timestamp
        self.count += 1
        return size

    def extend(self, rows: Iterable[Row]) -> int:
        """Append every row and return the size after them; an error keeps the rows before it."""
        for timestamp, key, value, headers in rows:
            self.append(timestamp, key, value, headers)
        return len(self._out)

    def take(self) -> bytearray:
        """Return the buffer. The encoder is used up."""
        out, self._out = self._out, bytearray()
        self._size_max = -1
        return out


def _checked_int64(value: int) -> int:
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise OverflowError("value does not fit in an int64")
    return value


def _write_field(out: bytearray, field: Buffer | None) -> None:
    if field is None:
        out.append(1)  # -1
        return
    # By way of a memoryview, because bytes(5) is five zeros and bytes([1]) is a byte.
    plain = field if isinstance(field, bytes) else bytes(memoryview(field))
    write_varint(out, len(plain))
    out += plain


def _write_headers(out: bytearray, headers: Iterable[tuple[str | bytes, Buffer | None]]) -> None:
    pairs = tuple(headers)
    write_varint(out, len(pairs))
    for key, value in pairs:
        if key is None:
            raise TypeError("a header key cannot be null")
        _write_field(out, key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key)
        _write_field(out, value)
