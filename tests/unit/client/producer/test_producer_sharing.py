"""Threads append to a batch that the loop is about to close: it is in it, or was refused."""

import threading
from collections.abc import Callable
from types import TracebackType

from odradek.client.blocking.record_future import RecordFuture
from odradek.client.errors import ClosedError
from odradek.records import parse_header
from tests.unit.client.producer.producer_core import Core

MakeCore = Callable[..., Core]
SECONDS_MAX = 60


class LastMoment:
    """A lock before which somebody else gets in, once."""

    def __init__(self, core: Core) -> None:
        self.late = RecordFuture()
        self._core = core
        self._is_over = False

    def __enter__(self) -> None:
        if not self._is_over:
            self._is_over = True
            queue = self._core.accumulator.topic("t").of(0)
            record = (0, None, b"late", (), self.late, 40)
            assert self._core.accumulator.append(queue, record)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return


def get_in_late(core: Core) -> RecordFuture:
    lock = LastMoment(core)
    core.accumulator._lock = lock  # type: ignore[assignment]
    return lock.late


def test_a_record_that_came_just_before_a_batch_is_sent_goes_with_it(make_core: MakeCore) -> None:
    core = make_core()
    core.send()
    late = get_in_late(core)
    (batch,) = core.drain()
    assert parse_header(batch.build()).records_count == 2
    core.send()
    assert core.sequences is not None
    assert core.sequences.of(batch.partition).next_sequence == 2
    core.delivery.on_delivered(batch, 7, -1)
    assert late.result(0).offset == 8


def test_a_record_that_came_just_before_a_batch_is_given_up_is_told(make_core: MakeCore) -> None:
    core = make_core()
    core.send().add_done_callback(lambda done: done.exception())
    late = get_in_late(core)
    core.delivery.give_up_all(ClosedError("closed"))
    assert isinstance(late.exception(0), ClosedError)


def test_a_batch_that_was_given_up_takes_no_more(make_core: MakeCore) -> None:
    core = make_core()
    core.send().add_done_callback(lambda done: done.exception())
    queue = core.accumulator.topic("t").of(0)
    (batch,) = queue.batches
    core.delivery.give_up_all(ClosedError("closed"))
    assert batch.is_closed
    assert not core.accumulator.append_shared(queue, (0, None, b"x", (), RecordFuture(), 40))


def test_threads_append_one_after_the_other(make_core: MakeCore) -> None:
    core = make_core()
    core.send()
    queue = core.accumulator.topic("t").of(0)
    record = (0, None, b"x", (), RecordFuture(), 40)
    results: list[bool] = []
    thread = threading.Thread(
        target=lambda: results.append(core.accumulator.append_shared(queue, record))
    )
    with core.accumulator._lock:
        thread.start()
        thread.join(0.05)
        assert thread.is_alive(), "it did not wait for the other"
    thread.join(SECONDS_MAX)
    assert results == [True]
    assert queue.batches[0].count == 2
