"""A producer's send, which does not wait for the loop.

A change of threads for each record would cost more than the record. So records are left in an
outbox, which wakes the loop once for as many as it finds there; what becomes of a record, including
that it cannot be sent at all, is told by its future. Whatever else is asked of the producer waits
until the outbox is empty, so that ``flush`` and ``close`` mean every record sent before.

In a transaction a record that cannot be sent has to be told of before the commit: there ``send``
does wait for the loop, and raises.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from odradek.client.blocking.twin import Place, Twin
from odradek.client.errors import ClosedError
from odradek.client.producer import Producer, RecordMetadata
from odradek.client.producer.batch import Headers

T = TypeVar("T")

OUTBOX_RECORDS_MAX: Final = 4096
"""How many may wait for the loop; what it has taken counts against buffer.memory."""

_MANY: Final = 16
_MORE_SECONDS: Final = 0.001
"""After that many at once the loop looks again by itself: to be woken costs a system call."""

Send = Callable[[Producer], Coroutine[Any, Any, "asyncio.Future[RecordMetadata]"]]


class Outbox:
    """Filled by any thread, emptied by the loop.

    No lock on the way, only where it is full: the threads would take turns at it. A record is
    put in before ``_is_awake`` is looked at, and the loop looks for records after it has taken
    that back, so one of the two notices.
    """

    def __init__(self, place: Place[Producer]) -> None:
        self._place = place
        self._records: deque[tuple[Send, Future[RecordMetadata]]] = deque()
        self._room = threading.Condition()
        self._is_awake = False
        self._emptying: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def put(self, send: Send) -> "Future[RecordMetadata]":
        """Leave a record; wait only while there are too many."""
        future: Future[RecordMetadata] = Future()
        if len(self._records) >= OUTBOX_RECORDS_MAX:
            with self._room:
                self._room.wait_for(lambda: len(self._records) < OUTBOX_RECORDS_MAX)
        self._records.append((send, future))
        if not self._is_awake:
            self._is_awake = True
            try:
                self._place.thread.loop.call_soon_threadsafe(self._begin)
            except RuntimeError:
                self.refuse_all()  # closed meanwhile
        return future

    # On the loop.

    def _begin(self) -> None:
        if self._emptying is None or self._emptying.done():
            self._emptying = asyncio.create_task(self._empty())

    async def emptied(self) -> None:
        """Wait until what was left so far was handed to the producer, or could not be."""
        if self._records:
            self._begin()  # another thread has not got round to waking the loop yet
        self._hurry.set()
        if self._emptying is not None:
            await asyncio.shield(self._emptying)

    async def _empty(self) -> None:
        try:
            await self._place.start()
            while True:
                if await self._hand_over_all() >= _MANY:
                    await self._wait_for_more()
                    continue
                self._is_awake = False
                if not self._records:
                    return
                self._is_awake = True
        except BaseException as error:
            self.refuse_all(error)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _hand_over_all(self) -> int:
        records, count = self._records, 0
        while records:
            await self._hand_over(*records.popleft())
            count += 1
            if len(records) == OUTBOX_RECORDS_MAX // 2:
                with self._room:
                    self._room.notify_all()
        return count

    async def _wait_for_more(self) -> None:
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_MORE_SECONDS):
                await self._hurry.wait()

    async def _hand_over(self, send: Send, future: "Future[RecordMetadata]") -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            delivered = await send(self._place.core)
        except Exception as error:
            future.set_exception(error)
        except BaseException:
            future.set_exception(ClosedError("the producer was closed before the record was sent"))
            raise
        else:
            delivered.add_done_callback(lambda done: _copy(done, future))

    def refuse_all(self, error: BaseException | None = None) -> None:
        if not isinstance(error, Exception):
            error = ClosedError("the producer was closed before the record was sent")
        self._is_awake = False
        while self._records:
            _, future = self._records.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        with self._room:
            self._room.notify_all()


def _copy(done: "asyncio.Future[RecordMetadata]", future: "Future[RecordMetadata]") -> None:
    if done.cancelled():
        future.set_exception(ClosedError("the producer was closed before the record was delivered"))
    elif (error := done.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(done.result())


class Sending(Twin[Producer]):
    """The part of a blocking producer that is not generated."""

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> "Future[RecordMetadata]":
        """Hand over a record; ``result()`` of what is returned waits for its delivery.

        All that can go wrong with it is told there. A transactional producer raises at once what
        keeps a record from being sent.
        """

        def work(core: Producer) -> Coroutine[Any, Any, "asyncio.Future[RecordMetadata]"]:
            return core.send(
                topic, value, key, partition=partition, headers=headers, timestamp=timestamp
            )

        self._open_place()
        if self._core.options.transactional_id is None:
            return self._outbox.put(work)
        future: Future[RecordMetadata] = Future()

        async def send_now(core: Producer) -> None:
            delivered = await work(core)
            delivered.add_done_callback(lambda done: _copy(done, future))

        self._run(send_now)
        return future

    def _on_place(self, place: Place[Producer]) -> None:
        self._outbox = Outbox(place)

    async def _in_turn(
        self, place: Place[Producer], work: Callable[[Producer], Coroutine[Any, Any, T]]
    ) -> T:
        await self._outbox.emptied()
        return await super()._in_turn(place, work)

    async def _closing(
        self, place: Place[Producer], work: Callable[[Producer], Coroutine[Any, Any, None]]
    ) -> None:
        await self._outbox.emptied()
        await super()._closing(place, work)

    def _on_closed(self) -> None:
        self._outbox.refuse_all()

    def _survives_fork(self) -> bool:
        return self._core.options.transactional_id is None
