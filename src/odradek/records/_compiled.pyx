# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=False
"""The record codec in Cython: the twin of ``codec`` and ``column_codec``, about ten times as fast.

Hostile bytes come through here, so one rule holds everywhere: a length is a local variable that was
compared with the bytes left *after* it was read, and what is copied is copied by that variable.
Nothing is read twice and believed the second time, because the buffer may belong to somebody who
writes into it while the GIL is released. Bounds are pointers: ``at < end`` before every read.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyTypeObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from odradek.records.columns import (
    DecodedBinary,
    DecodedColumns,
    DecodedHeaders,
    EncodedRows,
)
from odradek.records.record import Record, RecordsSummary, RefusedRecords, corruption

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define ODRADEK_BITS(raw) (64 - __builtin_clzll((unsigned long long)(raw) | 1))
    #else
    static int odradek_bits(unsigned long long raw) { int n = 1; while (raw >>= 1) n++; return n; }
    #define ODRADEK_BITS(raw) odradek_bits(raw)
    #endif

    /* A NamedTuple without the detour over its __new__: six times as fast. */
    static PyObject *odradek_record(PyTypeObject *type, PyObject *offset, PyObject *timestamp,
                                    PyObject *key, PyObject *value, PyObject *headers) {
        PyObject *record = type->tp_alloc(type, 5);
        if (record == NULL) return NULL;
        Py_INCREF(offset); Py_INCREF(timestamp); Py_INCREF(key);
        Py_INCREF(value); Py_INCREF(headers);
        PyTuple_SET_ITEM(record, 0, offset);
        PyTuple_SET_ITEM(record, 1, timestamp);
        PyTuple_SET_ITEM(record, 2, key);
        PyTuple_SET_ITEM(record, 3, value);
        PyTuple_SET_ITEM(record, 4, headers);
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *)record)->ob_hash = -1;  /* "not hashed yet" */
    #endif
        return record;
    }

    /* The same with four fields: what a producer is told of a record, the summary of a batch. */
    static PyObject *odradek_result(PyTypeObject *type, PyObject *topic, PyObject *partition,
                                    PyObject *offset, PyObject *timestamp) {
        PyObject *result = type->tp_alloc(type, 4);
        if (result == NULL) return NULL;
        Py_INCREF(topic); Py_INCREF(partition); Py_INCREF(offset); Py_INCREF(timestamp);
        PyTuple_SET_ITEM(result, 0, topic);
        PyTuple_SET_ITEM(result, 1, partition);
        PyTuple_SET_ITEM(result, 2, offset);
        PyTuple_SET_ITEM(result, 3, timestamp);
    #if PY_VERSION_HEX >= 0x030E0000
        ((PyTupleObject *)result)->ob_hash = -1;
    #endif
        return result;
    }
    """
    int ODRADEK_BITS(uint64_t raw) noexcept nogil
    object odradek_record(PyTypeObject *type, object, object, object, object, object)
    object odradek_result(PyTypeObject *type, object, object, object, object)

# The numbers of record.py; a test compares them.
cdef enum:
    FAULT_TRUNCATED = 1
    FAULT_VARINT = 2
    FAULT_RECORD_LENGTH = 3
    FAULT_FIELD_LENGTH = 4
    FAULT_HEADER_COUNT = 5
    FAULT_HEADER_KEY = 6
    FAULT_RECORD_REST = 7
    FAULT_RECORD_COUNT = 8
    FAULT_BATCH_REST = 9

cdef enum:
    RECORD_BYTES_MIN = 7
    RECORD_OVERHEAD_MAX = 36
    HEADER_BYTES_MIN = 2

cdef enum:
    NO_TIMESTAMP = -1

cdef int64_t RECORDS_BYTES_MAX = INT32_MAX - 49
# Milliseconds beyond these do not fit in microseconds.
cdef int64_t MILLIS_MAX = INT64_MAX // 1000
cdef int64_t MILLIS_MIN = -(INT64_MAX // 1000)

cdef PyTypeObject *RECORD_TYPE = <PyTypeObject *>Record
cdef PyTypeObject *SUMMARY_TYPE = <PyTypeObject *>RecordsSummary
cdef tuple NO_HEADERS = ()


cdef inline int read_varint(const uint8_t **cursor, const uint8_t *end, int32_t *value) noexcept nogil:
    cdef const uint8_t *at = cursor[0]
    cdef uint32_t raw = 0
    cdef uint32_t byte
    cdef int shift = 0
    while shift < 35:
        if at >= end:
            return FAULT_TRUNCATED
        byte = at[0]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            cursor[0] = at
            return 0
        shift += 7
    return FAULT_VARINT


cdef inline int read_varlong(const uint8_t **cursor, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef const uint8_t *at = cursor[0]
    cdef uint64_t raw = 0
    cdef uint64_t byte
    cdef int shift = 0
    while shift < 70:
        if at >= end:
            return FAULT_TRUNCATED
        byte = at[0]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            cursor[0] = at
            return 0
        shift += 7
    return FAULT_VARINT


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ (0 - (<uint64_t>value >> 63))


cdef inline int size_of_varint(int64_t value) noexcept nogil:
    return (ODRADEK_BITS(zigzag(value)) + 6) // 7


cdef inline uint8_t *write_varint(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    while raw > 0x7F:
        at[0] = <uint8_t>(raw & 0x7F | 0x80)
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    return at + 1


cdef inline int64_t wrapping_add(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t wrapping_subtract(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef struct Field:
    const uint8_t *start
    int64_t length  # -1 for null


cdef struct Place:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t header_count
    Field key
    Field value
    const uint8_t *headers
    const uint8_t *end


cdef inline int place_field(const uint8_t **cursor, const uint8_t *end, Field *field) noexcept nogil:
    cdef int32_t length = 0
    cdef int fault = read_varint(cursor, end, &length)
    if fault:
        return fault
    if length < 0:
        field.start = NULL
        field.length = -1
        return 0
    if length > end - cursor[0]:
        return FAULT_FIELD_LENGTH
    field.start = cursor[0]
    field.length = length
    cursor[0] += length
    return 0


cdef inline int place_header(const uint8_t **cursor, const uint8_t *end, Field *key, Field *value) noexcept nogil:
    cdef int fault = place_field(cursor, end, key)
    if fault:
        return fault
    if key.length < 0:
        return FAULT_HEADER_KEY
    return place_field(cursor, end, value)


cdef int place_record(const uint8_t **cursor, const uint8_t *limit, Place *place) noexcept nogil:
    """Find the fields of the record at the cursor and move the cursor behind it."""
    cdef int32_t length = 0
    cdef int32_t index
    cdef int fault
    cdef Field key, value
    cdef const uint8_t *end
    fault = read_varint(cursor, limit, &length)
    if fault:
        return fault
    if length < 0 or length > limit - cursor[0]:
        return FAULT_RECORD_LENGTH
    end = cursor[0] + length
    if cursor[0] >= end:
        return FAULT_TRUNCATED
    cursor[0] += 1  # attributes: no bit of them is in use
    fault = read_varlong(cursor, end, &place.timestamp_delta)
    if fault:
        return fault
    fault = read_varint(cursor, end, &place.offset_delta)
    if fault:
        return fault
    fault = place_field(cursor, end, &place.key)
    if fault:
        return fault
    fault = place_field(cursor, end, &place.value)
    if fault:
        return fault
    fault = read_varint(cursor, end, &place.header_count)
    if fault:
        return fault
    if place.header_count < 0 or <int64_t>place.header_count * HEADER_BYTES_MIN > end - cursor[0]:
        return FAULT_HEADER_COUNT
    place.headers = cursor[0]
    place.end = end
    for index in range(place.header_count):
        fault = place_header(cursor, end, &key, &value)
        if fault:
            return fault
    if cursor[0] != end:
        return FAULT_RECORD_REST
    return 0


cdef inline bint walk_plain(const uint8_t **cursor, const uint8_t *limit, Place *place) noexcept nogil:
    """Do as ``place_record`` for a record as most are: no headers, small numbers; else say no.

    A no tells nothing but that the record is to be looked at again, so it is said at every doubt:
    near the end of the bytes, at a long varint. A third of the time is saved. No more than 10
    bytes are read before the key is known to lie within the record, and 16 are there.
    """
    cdef const uint8_t *at = cursor[0]
    cdef const uint8_t *end
    cdef uint32_t raw
    cdef int64_t left
    if limit - at < 16:
        return False
    raw = at[0]
    at += 1
    if raw >= 0x80:
        if at[0] >= 0x80:
            return False
        raw = raw & 0x7F | <uint32_t>at[0] << 7
        at += 1
    left = raw >> 1
    if raw & 1 or left < 7 or left > limit - at:
        return False
    end = at + left
    raw = at[1]  # at[0]: attributes, no bit of them is in use
    at += 2
    if raw >= 0x80:
        if at[0] >= 0x80:
            return False
        raw = raw & 0x7F | <uint32_t>at[0] << 7
        at += 1
    place.timestamp_delta = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    raw = at[0]
    at += 1
    if raw >= 0x80:
        raw = raw & 0x7F | <uint32_t>at[0] << 7
        at += 1
        if raw >= 0x80 << 7:
            if at[0] >= 0x80:
                return False
            raw = raw & 0x3FFF | <uint32_t>at[0] << 14
            at += 1
    place.offset_delta = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    raw = at[0]
    at += 1
    place.key.length = -1
    if raw != 1:
        if raw & 1 or raw >= 0x80:
            return False
        place.key.length = raw >> 1
        at += raw >> 1
    if end - at < 3:
        return False
    raw = at[0]
    at += 1
    if raw >= 0x80:
        if at[0] >= 0x80:
            return False
        raw = raw & 0x7F | <uint32_t>at[0] << 7
        at += 1
    if raw & 1 or (raw >> 1) != end - at - 1 or end[-1] != 0:
        return False
    cursor[0] = end
    return True


cdef inline int count_fault(int64_t count, Py_ssize_t body_bytes) noexcept nogil:
    # Divided, not multiplied: the count is hostile and its product may overflow.
    if count < 0 or count > body_bytes // RECORD_BYTES_MIN:
        return FAULT_RECORD_COUNT
    return 0


cdef inline object field_bytes(Field *field):
    if field.length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>field.start, field.length)


cdef tuple read_headers(Place *place):
    cdef const uint8_t *at = place.headers
    cdef Field key, value
    cdef int32_t index
    cdef int fault
    cdef list headers = []
    for index in range(place.header_count):
        fault = place_header(&at, place.end, &key, &value)
        if fault:  # only if somebody wrote into the buffer meanwhile
            raise corruption(fault)
        name = PyUnicode_DecodeUTF8(<const char *>key.start, key.length, "surrogateescape")
        headers.append((name, field_bytes(&value)))
    return tuple(headers)


@cython.final
cdef class RecordIterator:
    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t left
    cdef int64_t base_offset
    cdef int64_t base_timestamp
    cdef object log_append_time

    def __cinit__(self, body, int64_t count, int64_t base_offset, int64_t base_timestamp, log_append_time):
        cdef int fault
        PyObject_GetBuffer(body, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.at = <const uint8_t *>self.view.buf
        self.end = self.at + self.view.len
        fault = count_fault(count, self.view.len)
        if fault:
            raise corruption(fault)
        self.left = count
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.log_append_time = log_append_time

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Place place
        cdef int fault
        if self.left == 0:
            if self.at != self.end:
                self.at = self.end
                raise corruption(FAULT_BATCH_REST)
            raise StopIteration
        fault = place_record(&self.at, self.end, &place)
        if fault:
            self.left = 0
            self.at = self.end
            raise corruption(fault)
        self.left -= 1
        timestamp = self.log_append_time
        if timestamp is None:
            timestamp = wrapping_add(self.base_timestamp, place.timestamp_delta)
        return odradek_record(
            RECORD_TYPE,
            wrapping_add(self.base_offset, place.offset_delta),
            timestamp,
            field_bytes(&place.key),
            field_bytes(&place.value),
            read_headers(&place) if place.header_count else NO_HEADERS,
        )


def iter_records(body, int64_t count, int64_t base_offset, int64_t base_timestamp, log_append_time):
    return RecordIterator(body, count, base_offset, base_timestamp, log_append_time)


def summarize_records(body, int64_t count, int64_t base_timestamp):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Place place
    cdef int fault
    cdef bint consecutive = True
    cdef int64_t null_keys = 0, index, timestamp
    cdef int64_t min_timestamp = INT64_MAX, max_timestamp = INT64_MIN
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            at = <const uint8_t *>view.buf
            end = at + view.len
            fault = count_fault(count, view.len)
            if not fault:
                for index in range(count):
                    if not walk_plain(&at, end, &place):
                        fault = place_record(&at, end, &place)
                        if fault:
                            break
                    consecutive = consecutive and place.offset_delta == index
                    null_keys += place.key.length < 0
                    timestamp = wrapping_add(base_timestamp, place.timestamp_delta)
                    min_timestamp = min(min_timestamp, timestamp)
                    max_timestamp = max(max_timestamp, timestamp)
            if not fault and at != end:
                fault = FAULT_BATCH_REST
    finally:
        PyBuffer_Release(&view)
    if fault:
        raise corruption(fault)
    if count == 0:
        min_timestamp = max_timestamp = -1
    return odradek_result(SUMMARY_TYPE, consecutive, null_keys, min_timestamp, max_timestamp)


def find_refused(
    body,
    int64_t count,
    int64_t base_timestamp,
    *,
    bint keys,
    bint timestamps,
    int64_t first_timestamp,
    int64_t last_timestamp,
    int64_t named_max,
):
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef Place place
    cdef int fault
    cdef int64_t index, timestamp, null_keys = 0, bad_timestamps = 0
    cdef list named = []
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>view.buf
        end = at + view.len
        fault = count_fault(count, view.len)
        if fault:
            raise corruption(fault)
        for index in range(count):
            fault = place_record(&at, end, &place)
            if fault:
                raise corruption(fault)
            timestamp = wrapping_add(base_timestamp, place.timestamp_delta)
            if keys and place.key.length < 0:
                null_keys += 1
                if null_keys + bad_timestamps <= named_max:
                    named.append((index, None))
            elif timestamps or (
                timestamp != NO_TIMESTAMP and not first_timestamp <= timestamp <= last_timestamp
            ):
                bad_timestamps += 1
                if null_keys + bad_timestamps <= named_max:
                    named.append((index, timestamp))
    finally:
        PyBuffer_Release(&view)
    return RefusedRecords(named, null_keys, bad_timestamps)


cdef inline bytes as_bytes(field):
    # By way of a memoryview, because bytes(5) is five zeros and bytes([1]) is a byte.
    if type(field) is bytes:
        return <bytes>field
    return bytes(memoryview(field))


cdef inline bytes as_header_key(key):
    if isinstance(key, str):
        return key.encode("utf-8", "surrogateescape")
    if key is None:
        raise TypeError("a header key cannot be null")
    return as_bytes(key)


cdef inline int64_t size_of_field(bytes field) noexcept:
    if field is None:
        return 1
    cdef int64_t length = PyBytes_GET_SIZE(field)
    return size_of_varint(length) + length


cdef inline uint8_t *write_field(uint8_t *at, bytes field) noexcept:
    if field is None:
        at[0] = 1  # -1
        return at + 1
    cdef Py_ssize_t length = PyBytes_GET_SIZE(field)
    at = write_varint(at, length)
    memcpy(at, PyBytes_AS_STRING(field), length)
    return at + length


@cython.final
cdef class RecordEncoder:
    cdef readonly int64_t base_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t count
    cdef readonly int64_t size
    cdef int64_t _base_timestamp
    cdef bint _has_base_timestamp
    cdef int64_t _size_max
    cdef bytearray _out
    cdef int64_t _capacity

    def __cinit__(self, Py_ssize_t room_bytes, int64_t base_offset=0, base_timestamp=None):
        self.base_offset = base_offset
        self.next_offset = base_offset
        self._has_base_timestamp = base_timestamp is not None
        if base_timestamp is not None:
            self._base_timestamp = base_timestamp
        self.max_timestamp = -1
        self.count = 0
        self.size = room_bytes
        self._size_max = room_bytes + RECORDS_BYTES_MAX
        self._out = bytearray(room_bytes)
        self._capacity = room_bytes

    @property
    def base_timestamp(self):
        return self._base_timestamp if self._has_base_timestamp else None

    def append(self, int64_t timestamp, key, value, headers=NO_HEADERS, offset=None):
        self._append(timestamp, key, value, headers, self.next_offset if offset is None else <int64_t>offset)
        return self.size

    def extend(self, rows):
        for timestamp, key, value, headers in rows:
            self._append(timestamp, key, value, headers, self.next_offset)
        return self.size

    cdef int _append(self, int64_t timestamp, key, value, headers, int64_t offset) except -1:
        cdef bytes key_bytes = None if key is None else as_bytes(key)
        cdef bytes value_bytes = None if value is None else as_bytes(value)
        cdef list pairs = None
        cdef int64_t offset_delta, timestamp_delta, length, size
        cdef int64_t header_count = 0
        cdef uint8_t *at
        if (
            offset < self.next_offset
            or <uint64_t>offset - <uint64_t>self.base_offset > INT32_MAX
            or offset == INT64_MAX
        ):
            raise ValueError(f"offset {offset} cannot follow in a batch at {self.base_offset}")
        offset_delta = offset - self.base_offset
        timestamp_delta = 0
        if self._has_base_timestamp:
            timestamp_delta = wrapping_subtract(timestamp, self._base_timestamp)
        length = 1 + size_of_varint(timestamp_delta) + size_of_varint(offset_delta)
        length += size_of_field(key_bytes) + size_of_field(value_bytes)
        if headers is not NO_HEADERS:
            pairs = [
                (as_header_key(name), None if content is None else as_bytes(content))
                for name, content in headers
            ]
            header_count = len(pairs)
            for name, content in pairs:
                length += size_of_field(<bytes>name) + size_of_field(<bytes>content)
        length += size_of_varint(header_count)
        size = self.size + size_of_varint(length) + length
        if size > self._size_max:
            raise ValueError("the record makes the batch longer than 2 GiB")
        if size > self._capacity:
            self._grow(size)
        at = <uint8_t *>PyByteArray_AS_STRING(self._out) + self.size
        at = write_varint(at, length)
        at[0] = 0
        at = write_varint(at + 1, timestamp_delta)
        at = write_varint(at, offset_delta)
        at = write_field(at, key_bytes)
        at = write_field(at, value_bytes)
        at = write_varint(at, header_count)
        if header_count:
            for name, content in pairs:
                at = write_field(at, <bytes>name)
                at = write_field(at, <bytes>content)
        self.size = size
        if not self._has_base_timestamp:
            self._base_timestamp = timestamp
            self._has_base_timestamp = True
        self.next_offset = offset + 1
        if self.count == 0 or timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return 0

    cdef int _grow(self, int64_t size) except -1:
        cdef int64_t capacity = min(max(2 * self._capacity, size, 1024), self._size_max)
        PyByteArray_Resize(self._out, capacity)
        self._capacity = capacity
        return 0

    def take(self):
        cdef bytearray out = self._out
        PyByteArray_Resize(out, self.size)
        self._out = bytearray()
        self._capacity = 0
        self._size_max = -1
        self.size = 0
        return out


cdef class OpenBatch:
    cdef public bint is_closed
    cdef public bint is_full
    cdef public int64_t count
    cdef public int64_t size
    cdef public list futures
    cdef public list timestamps
    cdef RecordEncoder _encoder
    cdef int64_t _size_max
    cdef int64_t _record_size_max

    def __init__(self, RecordEncoder encoder not None, int64_t size_max, int64_t record_size_max):
        self.is_closed = self.is_full = False
        self.count = 0
        self.size = encoder.size
        self.futures = []
        self.timestamps = []
        self._encoder = encoder
        self._size_max = size_max
        self._record_size_max = record_size_max

    def append(self, timestamp, key, value, headers, future):
        self._append(timestamp, key, value, headers, future)

    def try_append(self, timestamp, key, value, headers, future, int64_t record_size=0):
        if self.is_closed:
            return False
        if record_size == 0:
            if headers is not NO_HEADERS and headers:
                return False
            headers = NO_HEADERS
            record_size = RECORD_OVERHEAD_MAX
            if value is not None:
                if type(value) is not bytes:
                    return False
                record_size += PyBytes_GET_SIZE(value)
            if key is not None:
                if type(key) is not bytes:
                    return False
                record_size += PyBytes_GET_SIZE(key)
            if record_size > self._record_size_max:
                return False
        if self.size + record_size > self._size_max:
            self.is_closed = self.is_full = True
            return False
        self._append(timestamp, key, value, headers, future)
        return True

    def reopen(self, int64_t size_max):
        self._size_max = size_max
        self.is_closed = False

    cdef int _append(self, timestamp, key, value, headers, future) except -1:
        cdef RecordEncoder encoder = self._encoder
        encoder._append(timestamp, key, value, headers, encoder.next_offset)
        self.size = encoder.size
        self.count += 1
        self.futures.append(future)
        self.timestamps.append(timestamp)
        return 0

    def tell_all(self, type result_type, topic, partition, int64_t base_offset, log_append_time):
        cdef list futures = self.futures
        cdef list timestamps = self.timestamps
        cdef Py_ssize_t index
        cdef int64_t offset = base_offset
        if not issubclass(result_type, tuple):
            raise TypeError(f"{result_type} is not a NamedTuple")
        for index in range(len(futures)):
            if index >= len(futures) or index >= len(timestamps):
                break  # only if one who was told has taken others away
            future = futures[index]
            if not future.done():
                timestamp = timestamps[index] if log_append_time is None else log_append_time
                future.set_result(
                    odradek_result(<PyTypeObject *>result_type, topic, partition, offset, timestamp)
                )
            if base_offset >= 0:
                offset += 1


@cython.final
cdef class ColumnBuffer:
    """Memory from the caller's allocator, exchanged for more as a column grows."""

    cdef object allocate
    cdef object owner
    cdef Py_buffer view
    cdef bint held
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self, allocate):
        self.allocate = allocate
        self._move(64)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef inline int reserve(self, Py_ssize_t extra) except -1:
        if self.size + extra > self.capacity:
            self._move(max(2 * self.capacity, self.size + extra))
        return 0

    cdef int _move(self, Py_ssize_t capacity) except -1:
        cdef Py_buffer view
        owner = self.allocate(capacity)
        PyObject_GetBuffer(owner, &view, PyBUF_WRITABLE)
        if view.len < capacity:
            PyBuffer_Release(&view)
            raise ValueError("the allocator gave less than it was asked for")
        if self.size:
            memcpy(view.buf, self.data, self.size)
        if self.held:
            PyBuffer_Release(&self.view)
        self.view = view
        self.held = True
        self.owner = owner
        self.data = <uint8_t *>view.buf
        self.capacity = capacity
        return 0

    cdef object finish(self):
        if self.size < self.capacity // 2:  # a small result must not hold on to a large guess
            self._move(max(self.size, 1))
        PyBuffer_Release(&self.view)
        self.held = False
        self.data = NULL
        self.size = self.capacity = 0
        return self.owner


@cython.final
cdef class BinaryGrower:
    """A column of byte strings: ends, bytes and validity, written at ``rows`` and committed later."""

    cdef ColumnBuffer ends
    cdef ColumnBuffer data
    cdef ColumnBuffer validity
    cdef int64_t null_count

    def __cinit__(self, allocate):
        self.ends = ColumnBuffer(allocate)
        self.data = ColumnBuffer(allocate)
        self.validity = ColumnBuffer(allocate)
        (<int32_t *>self.ends.data)[0] = 0
        self.ends.size = 4

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1:
        self.ends.reserve(4 * rows)
        # The bitmap's size is that of the committed rows; one spare byte for the one begun.
        self.validity.reserve(rows // 8 + 2)
        return self.data.reserve(data_bytes)

    cdef inline void write(self, int64_t row, Field *field, int32_t *end, int64_t *nulls) noexcept nogil:
        cdef uint8_t bit = <uint8_t>(1 << (row & 7))
        cdef uint8_t *bits = self.validity.data + (row >> 3)
        if row & 7 == 0:
            bits[0] = 0
        if field.length < 0:
            bits[0] &= <uint8_t>~bit
            nulls[0] += 1
        else:
            bits[0] |= bit
            memcpy(self.data.data + end[0], field.start, field.length)
            end[0] += <int32_t>field.length
        (<int32_t *>self.ends.data)[row + 1] = end[0]

    cdef inline int32_t end_at(self, int64_t rows) noexcept nogil:
        return (<int32_t *>self.ends.data)[rows]

    cdef inline void commit(self, int64_t rows, int32_t end, int64_t nulls) noexcept nogil:
        self.ends.size = 4 * (rows + 1)
        self.data.size = end
        self.validity.size = (rows + 7) // 8
        self.null_count += nulls

    cdef finish(self):
        validity = self.validity.finish()
        return DecodedBinary(
            self.ends.finish(), self.data.finish(), validity if self.null_count else None, self.null_count
        )


@cython.final
cdef class ColumnDecoder:
    cdef readonly int64_t rows
    cdef readonly int64_t body_bytes
    cdef int64_t header_count
    cdef bint include_headers
    cdef bint finished
    cdef object allocate
    cdef BinaryGrower key
    cdef BinaryGrower value
    cdef BinaryGrower header_key
    cdef BinaryGrower header_value
    cdef ColumnBuffer offset
    cdef ColumnBuffer timestamp_us
    cdef ColumnBuffer timestamp_type
    cdef ColumnBuffer header_ends

    def __cinit__(self, bint include_headers, allocate=bytearray, Py_ssize_t value_bytes_hint=0):
        self.include_headers = include_headers
        self.allocate = allocate
        self.key = BinaryGrower(allocate)
        self.value = BinaryGrower(allocate)
        self.header_key = BinaryGrower(allocate)
        self.header_value = BinaryGrower(allocate)
        self.offset = ColumnBuffer(allocate)
        self.timestamp_us = ColumnBuffer(allocate)
        self.timestamp_type = ColumnBuffer(allocate)
        self.header_ends = ColumnBuffer(allocate)
        self.value.data.reserve(value_bytes_hint)
        (<int32_t *>self.header_ends.data)[0] = 0
        self.header_ends.size = 4

    def append(
        self,
        body,
        int64_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        log_append_time,
        int64_t start_offset=0,
        int64_t end_offset=INT64_MAX,
    ):
        cdef Py_buffer view
        cdef int fault
        cdef int64_t rows = self.rows
        cdef bint appended = log_append_time is not None
        cdef int64_t append_time = log_append_time if appended else 0
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            if self.finished:
                raise ValueError("the columns are finished")
            if self.body_bytes + view.len > INT32_MAX:
                raise ValueError("the columns are full: finish them and start another decoder")
            fault = count_fault(count, view.len)
            if not fault:
                self._reserve(count, view.len)
                with nogil:
                    fault = self._decode(
                        <const uint8_t *>view.buf, view.len, count, base_offset,
                        append_time if appended else base_timestamp, appended, start_offset, end_offset,
                    )
            if fault:
                raise corruption(fault)
            self.body_bytes += view.len
        finally:
            PyBuffer_Release(&view)
        return self.rows - rows

    cdef int _reserve(self, Py_ssize_t count, Py_ssize_t body_bytes) except -1:
        # Keys and values are disjoint parts of the body, so its length is room enough for each.
        self.key.reserve(count, body_bytes)
        self.value.reserve(count, body_bytes)
        self.offset.reserve(8 * count)
        self.timestamp_us.reserve(8 * count)
        self.timestamp_type.reserve(4 * count)
        if self.include_headers:
            self.header_ends.reserve(4 * count)
            self.header_key.reserve(body_bytes // HEADER_BYTES_MIN, body_bytes)
            self.header_value.reserve(body_bytes // HEADER_BYTES_MIN, body_bytes)
        return 0

    cdef int _decode(
        self,
        const uint8_t *at,
        Py_ssize_t body_bytes,
        int64_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        bint appended,
        int64_t start_offset,
        int64_t end_offset,
    ) noexcept nogil:
        """Write rows behind the committed ones and commit them if all went well."""
        cdef const uint8_t *end = at + body_bytes
        cdef const uint8_t *header_at
        cdef Place place
        cdef Field header_key, header_value
        cdef int fault
        cdef int64_t index, header_index, offset, timestamp
        cdef int64_t row = self.rows, headers = self.header_count
        cdef int64_t key_nulls = 0, value_nulls = 0, header_key_nulls = 0, header_value_nulls = 0
        cdef int32_t key_end = self.key.end_at(row), value_end = self.value.end_at(row)
        cdef int32_t header_key_end = self.header_key.end_at(headers)
        cdef int32_t header_value_end = self.header_value.end_at(headers)
        for index in range(count):
            fault = place_record(&at, end, &place)
            if fault:
                return fault
            offset = wrapping_add(base_offset, place.offset_delta)
            if offset < start_offset or offset >= end_offset:
                continue
            timestamp = base_timestamp
            if not appended:
                timestamp = wrapping_add(base_timestamp, place.timestamp_delta)
            self.key.write(row, &place.key, &key_end, &key_nulls)
            self.value.write(row, &place.value, &value_end, &value_nulls)
            (<int64_t *>self.offset.data)[row] = offset
            (<int64_t *>self.timestamp_us.data)[row] = max(MILLIS_MIN, min(MILLIS_MAX, timestamp)) * 1000
            (<int32_t *>self.timestamp_type.data)[row] = appended
            if self.include_headers:
                header_at = place.headers
                for header_index in range(place.header_count):
                    fault = place_header(&header_at, place.end, &header_key, &header_value)
                    if fault:
                        return fault
                    self.header_key.write(headers, &header_key, &header_key_end, &header_key_nulls)
                    self.header_value.write(headers, &header_value, &header_value_end, &header_value_nulls)
                    headers += 1
                (<int32_t *>self.header_ends.data)[row + 1] = <int32_t>headers
            row += 1
        if at != end:
            return FAULT_BATCH_REST
        self.key.commit(row, key_end, key_nulls)
        self.value.commit(row, value_end, value_nulls)
        self.header_key.commit(headers, header_key_end, 0)
        self.header_value.commit(headers, header_value_end, header_value_nulls)
        self.offset.size = 8 * row
        self.timestamp_us.size = 8 * row
        self.timestamp_type.size = 4 * row
        self.header_ends.size = 4 * (row + 1)
        self.header_count = headers
        self.rows = row
        return 0

    def finish(self):
        if self.finished:
            raise ValueError("the columns are finished")
        self.finished = True
        return DecodedColumns(
            self.rows,
            self.key.finish(),
            self.value.finish(),
            self.offset.finish(),
            self.timestamp_us.finish(),
            self.timestamp_type.finish(),
            self._finish_headers() if self.include_headers else None,
        )

    cdef _finish_headers(self):
        cdef ColumnBuffer validity = ColumnBuffer(self.allocate)
        cdef const int32_t *ends = <const int32_t *>self.header_ends.data
        cdef int64_t row, null_count = 0
        validity.reserve((self.rows + 7) // 8)
        validity.size = (self.rows + 7) // 8
        for row in range(self.rows):
            if row & 7 == 0:
                validity.data[row >> 3] = 0
            if ends[row] == ends[row + 1]:
                null_count += 1
            else:
                validity.data[row >> 3] |= <uint8_t>(1 << (row & 7))
        return DecodedHeaders(
            self.header_ends.finish(),
            validity.finish() if null_count else None,
            null_count,
            self.header_count,
            self.header_key.finish(),
            self.header_value.finish(),
        )


cdef enum:
    ROW_MALFORMED = -1
    ROW_NULL_HEADER_KEY = -2
    ROW_UNKNOWN = -3


cdef str complaint(int problem):
    if problem == ROW_NULL_HEADER_KEY:
        return "a header key is null"
    if problem == ROW_UNKNOWN:
        return "the order names a row that the columns do not have"
    return "column ends do not fit their data"


@cython.final
cdef class HeldBuffer:
    """A borrowed buffer, given back when this object goes."""

    cdef Py_buffer view
    cdef bint held
    cdef const uint8_t *data
    cdef Py_ssize_t size

    def __cinit__(self, buffer):
        if buffer is not None:
            PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
            self.held = True
            self.data = <const uint8_t *>self.view.buf
            self.size = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef HeldBuffer hold(buffer, Py_ssize_t first, int64_t bits, int64_t bits_each):
    """Borrow a buffer that must reach to the end of its rows."""
    cdef HeldBuffer held = HeldBuffer(buffer)
    if first < 0 or (buffer is not None and held.size < (bits * bits_each + 7) // 8):
        raise ValueError("a column is shorter than its rows")
    return held


@cython.final
cdef class BinaryReader:
    cdef HeldBuffer _ends
    cdef HeldBuffer _data
    cdef HeldBuffer _validity
    cdef int64_t first

    def __cinit__(self, column, int64_t rows):
        self.first = column.first
        self._ends = hold(column.offsets, self.first, self.first + rows + 1, 64)
        self._data = HeldBuffer(column.data)
        self._validity = hold(column.validity, self.first, self.first + rows, 1)

    cdef inline int cell(self, int64_t row, Field *field) noexcept nogil:
        cdef int64_t start, end
        row += self.first
        if self._validity.data != NULL and not self._validity.data[row >> 3] >> (row & 7) & 1:
            field.start = NULL
            field.length = -1
            return 0
        start = (<const int64_t *>self._ends.data)[row]
        end = (<const int64_t *>self._ends.data)[row + 1]
        if start < 0 or end < start or end > self._data.size:
            return ROW_MALFORMED
        field.start = self._data.data + start
        field.length = end - start
        return 0


cdef inline int64_t size_of_cell(Field *field) noexcept nogil:
    if field.length < 0:
        return 1
    return size_of_varint(field.length) + field.length


cdef inline uint8_t *write_cell(uint8_t *at, Field *field) noexcept nogil:
    if field.length < 0:
        at[0] = 1  # -1
        return at + 1
    at = write_varint(at, field.length)
    memcpy(at, field.start, field.length)
    return at + field.length


cdef struct EncodedPlace:
    Field key
    Field value
    int64_t timestamp
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t header_start
    int64_t header_count
    int64_t length  # of the fields, without the varint that says so


@cython.final
cdef class ColumnEncoder:
    cdef readonly int64_t rows
    cdef BinaryReader _keys
    cdef BinaryReader _values
    cdef BinaryReader _header_keys
    cdef BinaryReader _header_values
    cdef HeldBuffer _header_ends
    cdef HeldBuffer _header_validity
    cdef int64_t _header_first
    cdef int64_t _header_rows
    cdef HeldBuffer _timestamps
    cdef int64_t _timestamp
    cdef HeldBuffer _order
    cdef int64_t _column_rows

    def __cinit__(
        self, int64_t rows, keys, values, headers, timestamps, int64_t timestamp, order=None
    ):
        self.rows = self._column_rows = rows
        if order is not None:
            self._order = HeldBuffer(order)
            self.rows = self._order.size // 8
        self._keys = None if keys is None else BinaryReader(keys, rows)
        self._values = None if values is None else BinaryReader(values, rows)
        self._timestamps = None if timestamps is None else hold(timestamps, 0, rows, 64)
        self._timestamp = timestamp
        if headers is not None:
            self._header_first = headers.first
            self._header_rows = headers.header_count
            self._header_ends = hold(headers.offsets, headers.first, headers.first + rows + 1, 64)
            self._header_validity = hold(headers.validity, headers.first, headers.first + rows, 1)
            self._header_keys = BinaryReader(headers.keys, headers.header_count)
            self._header_values = BinaryReader(headers.values, headers.header_count)

    def encode(self, int64_t row, int64_t body_bytes_max, int64_t room_bytes):
        cdef int64_t next_row, total, max_timestamp
        cdef int64_t base_timestamp
        cdef int problem
        cdef bytearray out
        cdef uint8_t *at
        assert 0 <= row < self.rows
        base_timestamp = max_timestamp = self._timestamp_at(self._row_at(row))
        with nogil:
            problem = self._measure(
                row, min(body_bytes_max, RECORDS_BYTES_MAX), base_timestamp, &next_row, &total, &max_timestamp
            )
        if problem:
            raise ValueError(complaint(problem))
        if next_row == row:
            raise ValueError("the record makes the batch longer than 2 GiB")
        out = bytearray()
        PyByteArray_Resize(out, room_bytes + total)
        at = <uint8_t *>PyByteArray_AS_STRING(out)
        with nogil:
            memset(at, 0, room_bytes)
            problem = self._write(row, next_row, base_timestamp, at + room_bytes, at + room_bytes + total)
        if problem:
            raise ValueError("the columns changed while they were encoded")
        return EncodedRows(out, next_row, base_timestamp, max_timestamp)

    cdef inline int64_t _row_at(self, int64_t place) noexcept nogil:
        """Return the row at a place of the order, -1 for one that is not there."""
        cdef int64_t row
        if self._order is None:
            return place
        row = (<const int64_t *>self._order.data)[place]
        return row if 0 <= row < self._column_rows else -1

    cdef inline int64_t _timestamp_at(self, int64_t row) noexcept nogil:
        if self._timestamps is None or row < 0:
            return self._timestamp
        return (<const int64_t *>self._timestamps.data)[row]

    cdef int _place(self, int64_t row, int64_t first_row, int64_t base_timestamp, EncodedPlace *place) noexcept nogil:
        cdef Field key, value
        cdef int problem
        cdef int64_t index, start, end
        place.offset_delta = row - first_row
        row = self._row_at(row)
        if row < 0:
            return ROW_UNKNOWN
        place.timestamp = self._timestamp_at(row)
        place.timestamp_delta = wrapping_subtract(place.timestamp, base_timestamp)
        place.key.length = place.value.length = -1
        if self._keys is not None:
            problem = self._keys.cell(row, &place.key)
            if problem:
                return problem
        if self._values is not None:
            problem = self._values.cell(row, &place.value)
            if problem:
                return problem
        place.length = 1 + size_of_varint(place.timestamp_delta) + size_of_varint(place.offset_delta)
        place.length += size_of_cell(&place.key) + size_of_cell(&place.value)
        place.header_start = place.header_count = 0
        if self._header_ends is not None:
            problem = self._place_headers(row, place)
            if problem:
                return problem
            for index in range(place.header_start, place.header_start + place.header_count):
                problem = self._header_cell(index, &key, &value)
                if problem:
                    return problem
                place.length += size_of_cell(&key) + size_of_cell(&value)
        place.length += size_of_varint(place.header_count)
        return 0

    cdef int _place_headers(self, int64_t row, EncodedPlace *place) noexcept nogil:
        cdef int64_t start, end
        row += self._header_first
        if self._header_validity.data != NULL and not self._header_validity.data[row >> 3] >> (row & 7) & 1:
            return 0
        start = (<const int64_t *>self._header_ends.data)[row]
        end = (<const int64_t *>self._header_ends.data)[row + 1]
        if start < 0 or end < start or end > self._header_rows:
            return ROW_MALFORMED
        place.header_start = start
        place.header_count = end - start
        return 0

    cdef int _header_cell(self, int64_t index, Field *key, Field *value) noexcept nogil:
        cdef int problem = self._header_keys.cell(index, key)
        if problem:
            return problem
        if key.length < 0:
            return ROW_NULL_HEADER_KEY
        return self._header_values.cell(index, value)

    cdef int _measure(
        self,
        int64_t row,
        int64_t body_bytes_max,
        int64_t base_timestamp,
        int64_t *next_row,
        int64_t *total,
        int64_t *max_timestamp,
    ) noexcept nogil:
        """Find how many rows fit and how many bytes they take."""
        cdef EncodedPlace place
        cdef int64_t size
        cdef int problem
        next_row[0] = row
        total[0] = 0
        while next_row[0] < self.rows:
            problem = self._place(next_row[0], row, base_timestamp, &place)
            if problem:
                return problem
            size = total[0] + size_of_varint(place.length) + place.length
            if size > (RECORDS_BYTES_MAX if next_row[0] == row else body_bytes_max):
                break
            total[0] = size
            max_timestamp[0] = max(max_timestamp[0], place.timestamp)
            next_row[0] += 1
        return 0

    cdef int _write(
        self, int64_t row, int64_t next_row, int64_t base_timestamp, uint8_t *at, uint8_t *end
    ) noexcept nogil:
        cdef EncodedPlace place
        cdef Field key, value
        cdef int64_t current, index, header_bytes
        cdef int problem
        for current in range(row, next_row):
            problem = self._place(current, row, base_timestamp, &place)
            if problem:
                return problem
            # Measured again, so that columns which changed meanwhile cannot write past the end.
            if size_of_varint(place.length) + place.length > end - at:
                return ROW_MALFORMED
            at = write_varint(at, place.length)
            at[0] = 0
            at = write_varint(at + 1, place.timestamp_delta)
            at = write_varint(at, place.offset_delta)
            at = write_cell(at, &place.key)
            at = write_cell(at, &place.value)
            at = write_varint(at, place.header_count)
            for index in range(place.header_start, place.header_start + place.header_count):
                problem = self._header_cell(index, &key, &value)
                if problem:
                    return problem
                if size_of_cell(&key) + size_of_cell(&value) > end - at:
                    return ROW_MALFORMED
                at = write_cell(write_cell(at, &key), &value)
        return ROW_MALFORMED if at != end else 0


cdef enum:
    MURMUR2_SEED = 0x9747B28C
    MURMUR2_MULTIPLIER = 0x5BD1E995


cdef uint32_t hash_of(const uint8_t *at, int64_t length) noexcept nogil:
    """Return Kafka's murmur2; words are read byte by byte, which compilers make one load."""
    cdef uint32_t multiplier = <uint32_t>MURMUR2_MULTIPLIER
    cdef uint32_t state = <uint32_t>MURMUR2_SEED ^ <uint32_t>length
    cdef uint32_t word
    cdef int64_t left = length
    while left >= 4:
        word = <uint32_t>at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        word = word * multiplier
        word = (word ^ word >> 24) * multiplier
        state = state * multiplier ^ word
        at += 4
        left -= 4
    if left:
        word = at[0]
        if left > 1:
            word |= <uint32_t>at[1] << 8
        if left > 2:
            word |= <uint32_t>at[2] << 16
        state = (state ^ word) * multiplier
    state = (state ^ state >> 13) * multiplier
    return state ^ state >> 15


def murmur2(bytes data not None):
    return hash_of(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def partitions_of_keys(keys, int64_t rows, int64_t partitions):
    cdef BinaryReader reader
    cdef Field key
    cdef bytearray out
    cdef int32_t *numbers
    cdef int64_t row
    cdef int problem = 0
    if partitions < 1:
        raise ValueError("a topic has one partition at least")
    reader = BinaryReader(keys, rows)
    out = bytearray(4 * rows)
    numbers = <int32_t *>PyByteArray_AS_STRING(out)
    with nogil:
        for row in range(rows):
            problem = reader.cell(row, &key)
            if problem:
                break
            if key.length < 0:
                numbers[row] = -1
            else:
                numbers[row] = <int32_t>((hash_of(key.start, key.length) & 0x7FFFFFFF) % partitions)
    if problem:
        raise ValueError(complaint(problem))
    return out
