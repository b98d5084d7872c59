"""Numbers out of an OpenTelemetry payload: what clients push with PushTelemetry (KIP-714).

The payload is ``MetricsData`` in protobuf's wire format. It is read by hand, because all that is
wanted is a name, labels and a number of some fields of a fixed nesting; the library for it is a
hundred times the size and bounds only the size of its input, not the work that a peer can make of
it. Here every field costs one of ``FIELDS_MAX``. What is read, by the fields' numbers::

    MetricsData     1 ResourceMetrics
    ResourceMetrics 1 Resource (1 KeyValue)   2 ScopeMetrics (2 Metric)
    Metric          1 name   5 Gauge (1 point)   7 Sum (1 point, 2 temporality)
    point           4 double   6 sfixed64   7 KeyValue   8 flags
    KeyValue        1 key   2 AnyValue (1 string, 2 bool, 3 int, 4 double)

Not read: histograms and summaries, which clients do not push.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError

FIELDS_MAX: Final = 50_000
"""A Java client with two hundred metrics sends four thousand."""

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES_MAX: Final = 10
_DELTA: Final = 1
_NO_VALUE_FLAG: Final = 1
_DOUBLE: Final = Struct("<d")
_SIGNED_64: Final = Struct("<q")

Value = int | memoryview
Labels = dict[str, str]


class Point(NamedTuple):
    name: str
    labels: Labels
    value: float
    is_delta: bool
    """It says how much was added since the last push, not how much there is."""


def read_points(data: bytes | bytearray | memoryview) -> Iterator[Point]:
    """Iterate over the numbers of a payload.

    Raises:
        CorruptionError: It is no such payload, or takes too much work to read.
    """
    reader = _Reader()
    for number, resource_metrics in reader.messages(memoryview(data)):
        if number == 1:
            yield from reader.resource_metrics(resource_metrics)


class _Reader:
    def __init__(self) -> None:
        self._fields_left = FIELDS_MAX

    def resource_metrics(self, data: memoryview) -> Iterator[Point]:
        labels: Labels = {}
        scopes = []
        for number, part in self.messages(data):
            if number == 1:
                self._read_labels(part, 1, labels)
            elif number == 2:
                scopes.append(part)
        for scope in scopes:
            for number, metric in self.messages(scope):
                if number == 2:
                    yield from self._metric(metric, labels)

    def _metric(self, data: memoryview, labels: Labels) -> Iterator[Point]:
        name, points = "", []
        is_delta = False
        for number, value in self.messages(data):
            if number == 1:
                name = _text(value)
            elif number in (5, 7):
                for inner, part in self._fields(value):
                    if inner == 1 and isinstance(part, memoryview):
                        points.append(part)
                    elif inner == 2 and number == 7:
                        is_delta = part == _DELTA
        for point in points:
            found = dict(labels)
            number_read = self._point(point, found)
            if number_read is not None:
                yield Point(name, found, number_read, is_delta)

    def _point(self, data: memoryview, labels: Labels) -> float | None:
        """Return the value, and add the labels to ``labels``; None if there is no value."""
        value: float | None = None
        for number, part in self._fields(data):
            if number == 7 and isinstance(part, memoryview):
                self._read_label(part, labels)
            elif number == 8 and isinstance(part, int) and part & _NO_VALUE_FLAG:
                return None
            elif number in (4, 6) and isinstance(part, memoryview) and len(part) == 8:
                value = (_DOUBLE if number == 4 else _SIGNED_64).unpack(part)[0]
        return value

    def _read_labels(self, data: memoryview, wanted: int, labels: Labels) -> None:
        for number, part in self.messages(data):
            if number == wanted:
                self._read_label(part, labels)

    def _read_label(self, data: memoryview, labels: Labels) -> None:
        key, text = "", ""
        for number, part in self.messages(data):
            if number == 1:
                key = _text(part)
            elif number == 2:
                text = self._any_value(part)
        labels[key] = text

    def _any_value(self, data: memoryview) -> str:
        for number, part in self._fields(data):
            if isinstance(part, int):
                return ("true" if part else "false") if number == 2 else str(_signed(part))
            if number == 1:
                return _text(part)
            if number == 4 and len(part) == 8:
                return str(_DOUBLE.unpack(part)[0])
        return ""

    def messages(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Iterate over the fields that have bytes: messages, strings, fixed numbers."""
        for number, value in self._fields(data):
            if isinstance(value, memoryview):
                yield number, value

    def _fields(self, data: memoryview) -> Iterator[tuple[int, Value]]:
        position, end = 0, len(data)
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise CorruptionError(f"metrics of more than {FIELDS_MAX} fields")
            tag, position = _varint(data, position)
            wire_type = tag & 7
            if tag < 8:
                raise CorruptionError("metrics with a field of number 0")
            if wire_type == VARINT:
                value, position = _varint(data, position)
                yield tag >> 3, value
                continue
            if wire_type == LENGTH:
                size, position = _varint(data, position)
            elif wire_type in _FIXED_BYTES:
                size = _FIXED_BYTES[wire_type]
            else:
                raise CorruptionError(f"metrics with a field of wire type {wire_type}")
            if size > end - position:
                raise CorruptionError("metrics that end within a field")
            yield tag >> 3, data[position : position + size]
            position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if position >= len(data):
            raise CorruptionError("metrics that end within a number")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise CorruptionError("metrics with an endless number")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _text(data: memoryview) -> str:
    return str(data, "utf-8", "replace")
