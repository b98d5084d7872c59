"""A producer's send, which rarely waits for the loop.

A change of threads for each record would cost more than the record. So the caller's thread appends
to the batch that is open, if there is one with room. Only a record that needs a new batch is left
to the loop, and waited for until it has one: then there is room for the next few records, and
whoever sends faster than brokers take is held up, for ``max.block.ms`` at most. The wait does more:
while this thread has nothing to do the loop's thread gets the interpreter at once, and with it what
has arrived from brokers, where else it would get it every five milliseconds.

What becomes of a record, including that it cannot be sent at all, is told by its future. In a
transaction ``send`` raises what keeps a record from being sent: it has to be told of before the
commit.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from odradek.client.blocking.record_future import RecordFuture
from odradek.client.blocking.twin import Place, Twin
from odradek.client.errors import ClosedError
from odradek.client.producer import Producer, RecordMetadata, RowsMetadata
from odradek.client.producer.batch import Headers
from odradek.client.producer.interceptors import ProducerRecord

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

OUTBOX_RECORDS_MAX: Final = 4096
"""How many may wait for the loop. A thread waits with one; callbacks, which cannot, leave more."""


class _Waiting(NamedTuple):
    """A record that waits for the loop, and the thread that waits with it."""

    record: ProducerRecord
    future: RecordFuture
    gate: threading.Lock

    def refuse(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Outbox:
    """Filled by any thread, emptied by the loop."""

    def __init__(self, place: Place[Producer]) -> None:
        self._place = place
        self._records: deque[_Waiting] = deque()
        self._emptying: asyncio.Task[None] | None = None

    def put(self, waiting: _Waiting) -> None:
        """Leave a record and wait until it is in a batch, or cannot be."""
        if len(self._records) >= OUTBOX_RECORDS_MAX:
            raise BufferError(f"{OUTBOX_RECORDS_MAX} records wait already: send less by callbacks")
        gate = waiting.gate
        gate.acquire()
        self._records.append(waiting)
        try:
            self._place.thread.loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            self.refuse_all()  # closed meanwhile
        if not self._place.thread.is_current:
            gate.acquire()  # until whoever deals with the record lets go of it

    # On the loop.

    def _begin(self) -> None:
        if self._emptying is not None and not self._emptying.done():
            return
        if self._place.is_ready:
            while self._records and self._hand_over_now(self._records[0]):
                self._records.popleft().gate.release()
        if self._records:
            self._emptying = asyncio.create_task(self._empty())

    def _hand_over_now(self, waiting: _Waiting) -> bool:
        try:
            return self._place.core.intake.begin_now(waiting.record, waiting.future)
        except Exception as error:
            waiting.refuse(error)
            return True

    async def emptied(self) -> None:
        """Wait until what was left so far was handed to the producer, or could not be."""
        self._begin()
        if self._emptying is not None:
            await asyncio.shield(self._emptying)

    async def _empty(self) -> None:
        try:
            await self._place.start()
            while self._records:
                await self._hand_over(self._records[0])
                self._records.popleft().gate.release()
        except BaseException as error:
            self.refuse_all(error)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _hand_over(self, waiting: _Waiting) -> None:
        topic, value, key, partition, headers, timestamp = waiting.record
        try:
            delivered = await self._place.core.send(
                topic, value, key, partition=partition, headers=headers, timestamp=timestamp
            )
        except Exception as error:
            waiting.refuse(error)
        else:
            delivered.add_done_callback(lambda done: _copy(done, waiting.future))

    def refuse_all(self, error: BaseException | None = None) -> None:
        if not isinstance(error, Exception):
            error = ClosedError("the producer was closed before the record was sent")
        while self._records:
            waiting = self._records.popleft()
            waiting.refuse(error)
            waiting.gate.release()


def _copy(done: "asyncio.Future[T]", future: "Future[T]") -> None:
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
        headers: Headers | None = (),
        timestamp: int | None = None,
    ) -> "Future[RecordMetadata]":
        """Hand over a record; ``result()`` of what is returned waits for its delivery.

        Waits for room in memory, and the first time for the topic, up to ``max.block.ms``. All that
        can go wrong is told by the future. A transactional producer raises at once what keeps a
        record from being sent.
        """
        place = self._place or self._open_place()
        future = RecordFuture()
        if place.is_ready and place.core.intake.append_now(
            topic, value, key, partition, headers, timestamp, future
        ):
            return future
        record = ProducerRecord(topic, value, key, partition, headers or (), timestamp)
        self._outbox.put(_Waiting(record, future, threading.Lock()))
        if self._is_transactional and future.done():
            future.result()
        return future

    def send_arrow(
        self,
        topic: str,
        rows: "pa.Table | pa.RecordBatch",
        *,
        partition: int | None = None,
        value_column: str = "value",
        key_column: str | None = "key",
        headers_column: str | None = "headers",
        timestamp_column: str | None = "timestamp",
        partition_column: str | None = "partition",
    ) -> "Future[RowsMetadata]":
        """Hand over the rows of an Arrow table as records; see ``Producer.send_arrow``.

        Returns when all rows are in memory, and raises what is wrong with them; ``result()`` of
        what is returned waits for their delivery.
        """
        future: Future[RowsMetadata] = Future()

        async def hand_over(core: Producer) -> None:
            delivered = await core.send_arrow(
                topic,
                rows,
                partition=partition,
                value_column=value_column,
                key_column=key_column,
                headers_column=headers_column,
                timestamp_column=timestamp_column,
                partition_column=partition_column,
            )
            delivered.add_done_callback(lambda done: _copy(done, future))

        self._run(hand_over)
        return future

    def _on_place(self, place: Place[Producer]) -> None:
        place.core.intake.share_between_threads()
        self._outbox = Outbox(place)
        self._is_transactional = place.core.options.transactional_id is not None

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
