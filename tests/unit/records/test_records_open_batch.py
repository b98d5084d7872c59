"""Batches that take records with their futures, both twins: what fits, what is told to whom."""

from asyncio import AbstractEventLoop, Future, new_event_loop
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from odradek.records import codec, open_batch, record_size_max

ROOM = 61
PLAIN = SimpleNamespace(RecordEncoder=codec.RecordEncoder, OpenBatch=open_batch.OpenBatch)
TWINS: dict[str, SimpleNamespace | ModuleType] = {"plain": PLAIN}
try:
    from odradek.records import _compiled

    TWINS["compiled"] = _compiled
except ImportError:
    pass


class Told(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return TWINS[request.param]


@pytest.fixture
def loop() -> Iterator[AbstractEventLoop]:
    made = new_event_loop()
    yield made
    made.close()


def opened(twin: Any, size_max: int = 1000, record_size_max: int = 1000) -> Any:
    return twin.OpenBatch(twin.RecordEncoder(ROOM), size_max, record_size_max)


def state(batch: Any) -> tuple[int, bool, bool]:
    return batch.count, batch.is_closed, batch.is_full


@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_a_record_fits_by_the_bound_on_its_size(
    twin: Any, key: bytes | None, value: bytes | None
) -> None:
    bound = ROOM + record_size_max(key, value)
    batch = opened(twin, bound)
    assert batch.try_append(5, key, value, (), None)
    assert state(batch) == (1, False, False)
    tight = opened(twin, bound - 1)
    assert not tight.try_append(5, key, value, (), None)
    assert state(tight) == (0, True, True)


def test_bytes_are_those_of_the_encoder(twin: Any) -> None:
    reference, encoder = twin.RecordEncoder(ROOM), twin.RecordEncoder(ROOM)
    batch = twin.OpenBatch(encoder, 10_000, 10_000)
    headers: list[tuple[str | bytes, bytes | None]] = [("name", b"content"), (b"other", None)]
    for number in range(20):
        given = headers if number % 3 == 0 else []
        size = record_size_max(b"k", b"v" * number, given) if given else 0
        assert batch.try_append(1000 - number, b"k", b"v" * number, given, None, size)
        assert batch.size == reference.append(1000 - number, b"k", b"v" * number, given)
    assert batch.timestamps == [1000 - number for number in range(20)]
    assert encoder.take() == reference.take()


def test_what_it_cannot_measure_it_leaves_to_others(twin: Any) -> None:
    batch = opened(twin)
    for value in (bytearray(b"x"), memoryview(b"x"), "text", 5):
        assert not batch.try_append(0, None, value, (), None)
        assert not batch.try_append(0, value, None, (), None)
    assert not batch.try_append(0, None, b"x", [("h", b"")], None)
    assert state(batch) == (0, False, False)
    assert batch.try_append(0, memoryview(b"k"), bytearray(b"x"), [("h", b"")], None, 100)
    assert batch.try_append(0, None, b"x", [], None)
    assert state(batch) == (2, False, False)


def test_a_record_that_is_too_large_for_any_batch_closes_none(twin: Any) -> None:
    batch = opened(twin, record_size_max=100)
    assert not batch.try_append(0, None, b"x" * 65, (), None)
    assert state(batch) == (0, False, False)
    assert batch.try_append(0, None, b"x" * 64, (), None)


def test_the_first_may_be_larger_than_the_batch(twin: Any) -> None:
    batch = opened(twin, 100)
    batch.append(0, None, b"x" * 5000, (), None)
    assert batch.count == 1
    assert batch.size > 5000


def test_a_closed_one_takes_nothing_until_it_is_opened_again(twin: Any) -> None:
    batch = opened(twin, 200)
    while batch.try_append(0, None, b"x" * 20, (), None):
        pass
    count = batch.count
    assert state(batch) == (count, True, True)
    assert not batch.try_append(0, None, b"", (), None)
    batch.reopen(400)
    assert state(batch) == (count, False, True)
    assert batch.try_append(0, None, b"x" * 20, (), None)
    batch.is_closed = True
    assert not batch.try_append(0, None, b"", (), None)


@pytest.mark.parametrize("timestamp", [2**63, "soon"])
def test_a_timestamp_that_is_none_changes_nothing(twin: Any, timestamp: Any) -> None:
    batch = opened(twin)
    with pytest.raises((OverflowError, TypeError)):
        batch.try_append(timestamp, None, b"x", (), None)
    assert (batch.count, batch.size, batch.futures, batch.timestamps) == (0, ROOM, [], [])


def told(batch: Any, loop: AbstractEventLoop, base_offset: int, time: int | None) -> list[Any]:
    futures: list[Future[Told]] = [loop.create_future() for _ in range(3)]
    for number, future in enumerate(futures):
        batch.append(100 + number, None, b"x", (), future)
    futures[1].cancel()
    batch.tell_all(Told, "t", 7, base_offset, time)
    return [None if each.cancelled() else each.result() for each in futures]


def test_all_who_still_wait_are_told(twin: Any, loop: AbstractEventLoop) -> None:
    first, cancelled, last = told(opened(twin), loop, 40, None)
    assert (first, cancelled, last) == (Told("t", 7, 40, 100), None, Told("t", 7, 42, 102))
    assert type(first) is Told
    assert hash(first) == hash(("t", 7, 40, 100))


def test_the_brokers_time_stands_for_all(twin: Any, loop: AbstractEventLoop) -> None:
    assert told(opened(twin), loop, 0, 9)[2] == Told("t", 7, 2, 9)


def test_an_offset_that_is_not_known_is_that_of_all(twin: Any, loop: AbstractEventLoop) -> None:
    first, _, last = told(opened(twin), loop, -1, None)
    assert (first.offset, last.offset) == (-1, -1)
