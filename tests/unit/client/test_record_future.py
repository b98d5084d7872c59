"""Futures of records: all that the standard library and programs do with futures."""

import asyncio
import concurrent.futures
import threading

import pytest

from odradek.client.blocking.record_future import RecordFuture
from odradek.client.producer import RecordMetadata

SECONDS_MAX = 60
TOLD = RecordMetadata("t", 0, 1, 2)


def test_who_asks_later_is_told_at_once() -> None:
    future = RecordFuture()
    assert not future.done()
    assert future.running()
    future.set_result(TOLD)
    assert future.done()
    assert future.result() == future.result(0) == TOLD
    assert future.exception() is None


def test_what_went_wrong_is_raised() -> None:
    future = RecordFuture()
    future.set_exception(ZeroDivisionError("wrong"))
    assert isinstance(future.exception(), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match="wrong"):
        future.result()


def test_a_wait_has_an_end() -> None:
    future = RecordFuture()
    with pytest.raises(TimeoutError):
        future.result(0.001)
    with pytest.raises(TimeoutError):
        future.exception(0.001)
    future.set_result(TOLD)
    assert future.result(0) == TOLD


def test_it_cannot_be_cancelled() -> None:
    future = RecordFuture()
    assert not future.cancel()
    assert not future.cancelled()
    future.set_result(TOLD)
    assert not future.cancel()


@pytest.mark.parametrize("error", [None, ZeroDivisionError()])
def test_callbacks_are_called_once_before_or_after(error: Exception | None) -> None:
    future, called = RecordFuture(), list[object]()
    future.add_done_callback(called.append)
    if error is None:
        future.set_result(TOLD)
    else:
        future.set_exception(error)
    future.add_done_callback(called.append)
    assert called == [future, future]


def test_the_library_waits_for_many() -> None:
    done, late, failed = RecordFuture(), RecordFuture(), RecordFuture()
    done.set_result(TOLD)
    found = concurrent.futures.wait([done, late], 0.001)
    assert (found.done, found.not_done) == ({done}, {late})
    threading.Timer(0.01, late.set_result, [TOLD]).start()
    threading.Timer(0.02, failed.set_exception, [ZeroDivisionError()]).start()
    everything = [done, late, failed]
    assert set(concurrent.futures.as_completed(everything, SECONDS_MAX)) == set(everything)
    assert isinstance(failed.exception(0), ZeroDivisionError)


def test_a_loop_can_await_it() -> None:
    async def main() -> RecordMetadata:
        future = RecordFuture()
        threading.Timer(0.01, future.set_result, [TOLD]).start()
        async with asyncio.timeout(SECONDS_MAX):
            return await asyncio.wrap_future(future)

    assert asyncio.run(main()) == TOLD


@pytest.mark.parametrize("is_before", [True, False])
def test_who_begins_to_wait_in_the_last_moment_is_told_once(is_before: bool) -> None:
    called: list[object] = []

    class Watched(RecordFuture):
        def __setattr__(self, name: str, value: object) -> None:
            is_telling = name in ("_metadata", "_error")
            if is_telling and is_before:
                self.add_done_callback(called.append)
            super().__setattr__(name, value)
            if is_telling and not is_before:
                self.add_done_callback(called.append)

    done, failed = Watched(), Watched()
    done.set_result(TOLD)
    failed.set_exception(ZeroDivisionError())
    assert called == [done, failed]
    assert concurrent.futures.wait([done, failed], 0).not_done == set()


def test_nobody_who_waits_is_forgotten() -> None:
    """A thread begins to wait in the very moment in which another tells."""
    futures = [RecordFuture() for _ in range(3000)]
    called: list[object] = []

    def wait() -> int:
        for future in futures:
            future.add_done_callback(called.append)
            assert future.result(SECONDS_MAX) == TOLD
        return len(futures)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(wait) for _ in range(2)]
        for future in futures:
            future.set_result(TOLD)
        assert [each.result(SECONDS_MAX) for each in waiting] == [3000, 3000]
    assert len(called) == 6000
