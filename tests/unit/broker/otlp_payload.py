"""OpenTelemetry payloads for tests, written field by field."""

from collections.abc import Mapping
from struct import pack

Labels = Mapping[str, str | int | bool | float]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def message(number: int, data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fixed64(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 1) + data


def attributes(number: int, labels: Labels) -> bytes:
    return b"".join(
        message(number, message(1, key) + message(2, _any_value(value)))
        for key, value in labels.items()
    )


def _any_value(value: str | int | bool | float) -> bytes:
    if isinstance(value, str):
        return message(1, value)
    if isinstance(value, bool):
        return integer(2, value)
    if isinstance(value, int):
        return integer(3, value)
    return fixed64(4, pack("<d", value))


def point(value: float, labels: Labels, *, flags: int = 0) -> bytes:
    number = (
        fixed64(6, pack("<q", value)) if isinstance(value, int) else fixed64(4, pack("<d", value))
    )
    times = fixed64(2, pack("<q", 1)) + fixed64(3, pack("<q", 2))
    return times + number + attributes(7, labels) + integer(8, flags)


def gauge(name: str, value: float, labels: Labels | None = None, *, flags: int = 0) -> bytes:
    points = message(1, point(value, labels or {}, flags=flags))
    return message(1, name) + message(2, "what it is") + message(5, points)


def total(
    name: str, value: float, labels: Labels | None = None, *, is_delta: bool = False
) -> bytes:
    data = message(1, point(value, labels or {})) + integer(2, 1 if is_delta else 2) + integer(3, 1)
    return message(1, name) + message(7, data)


def payload(*metrics: bytes, resource: Labels | None = None) -> bytes:
    scope = b"".join(message(2, metric) for metric in metrics)
    return message(1, message(1, attributes(1, resource or {})) + message(2, scope))
