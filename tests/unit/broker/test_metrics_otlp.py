"""Pushed payloads are read as far as they are wanted, and refused if they are nonsense."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.metrics.otlp import FIELDS_MAX, Point, read_points
from odradek.core.errors import CorruptionError
from tests.unit.broker.otlp_payload import (
    fixed64,
    gauge,
    integer,
    message,
    payload,
    total,
    varint,
)


def points(data: bytes) -> list[Point]:
    return list(read_points(data))


def test_gauges_and_sums_are_read() -> None:
    labels: dict[str, str | int | bool | float] = {
        "node": "7",
        "is_up": True,
        "n": -3,
        "share": 0.5,
    }
    data = payload(
        gauge("a.gauge", 1.25, labels),
        total("a.total", 42),
        total("a.delta", -7, is_delta=True),
        resource={"client_rack": "r1"},
    )
    of_resource = {"client_rack": "r1"}
    shown = {"node": "7", "is_up": "true", "n": "-3", "share": "0.5", **of_resource}
    assert points(data) == [
        Point("a.gauge", shown, 1.25, is_delta=False),
        Point("a.total", of_resource, 42, is_delta=False),
        Point("a.delta", of_resource, -7, is_delta=True),
    ]


def test_what_is_not_known_is_skipped() -> None:
    unknown = message(99, b"x") + integer(98, 5) + fixed64(97, bytes(8))
    unknown += varint(96 << 3 | 5) + bytes(4)
    histogram = message(1, "h") + message(9, message(1, b""))
    data = unknown + payload(unknown + gauge("a", 1.0) + unknown, histogram) + unknown
    assert [point.name for point in points(data)] == ["a"]


def test_a_point_without_a_value_is_none() -> None:
    assert points(payload(gauge("a", 1.0, flags=1), message(1, "b") + message(5, b""))) == []


def test_a_name_that_is_no_utf8_is_read_all_the_same() -> None:
    (point,) = points(payload(gauge("a", 1.0).replace(b"a", b"\xff", 1)))
    assert point.name == "\ufffd"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",  # field number 0
        b"\x0a\x05abc",  # shorter than it says
        b"\x0b",  # a group, which nobody uses any more
        b"\x80" * 11,  # a number without end
        b"\x80",  # a number cut short
        b"\x09\x01",  # a fixed number cut short
        payload(gauge("a", 1.0))[:-1],
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        points(data)


def test_the_work_of_reading_has_a_limit() -> None:
    with pytest.raises(CorruptionError, match=str(FIELDS_MAX)):
        points(integer(9, 1) * (FIELDS_MAX + 1))
    with pytest.raises(CorruptionError, match=str(FIELDS_MAX)):
        points(payload(*[gauge("a", 1.0)] * FIELDS_MAX))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(CorruptionError):
        points(data)


@given(st.data())
def test_damaged_payloads_are_read_or_refused(data: st.DataObject) -> None:
    good = bytearray(
        payload(gauge("a", 1.0, {"k": "v", "n": 3}), total("b", 2), resource={"r": "s"})
    )
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptionError):
        points(bytes(good))
