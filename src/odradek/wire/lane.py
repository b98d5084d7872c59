"""A lane: one ordered stream of requests to one address, for one purpose.

A broker answers the requests of a connection one after the other. So a request that may wait for
long, a Fetch say, has a lane of its own, and nothing that matters more waits behind it.

Theory of operation. Requests queue up; at most ``in_flight_max`` of them are with the peer. A
connection is opened when a request needs one; its address is looked up then, and again before each
request. A connection that breaks, or whose answer does not come in time, is dropped, and all that
it carried fails: answers come in order, so nothing behind a missing one can be trusted to come. A
peer that is silent (a cut of the network, a process that is stopped) is noticed by time alone.

After a failure the next connection waits for a back-off that grows until an answer comes. What is
sent meanwhile waits in the queue; when a connection cannot be made, all that waits for it fails.
Nothing is sent twice: retrying is for the owner, who knows what may be repeated. ``was_sent`` of a
``LaneError`` says whether the peer may have carried out the request.

A request goes out in the newest version that both ends know. Callbacks are never called before
``send`` or ``close`` returns. The bytes of an answer, its records among them, are its own.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random
from typing import Final

from odradek.core.errors import ApiError
from odradek.core.event import Event
from odradek.protocol.apis import api_for_key
from odradek.protocol.message import Message
from odradek.wire.backoff import Backoff
from odradek.wire.connection import Connection, Versions
from odradek.wire.errors import KafkaError, UnsupportedError
from odradek.wire.sasl.login import Login

Address = tuple[str, int]
_log: Final = logging.getLogger("odradek.wire")


class LaneFailure(StrEnum):
    UNREACHABLE = "unreachable"
    """No address is known, or no connection could be made."""
    LOST = "lost"
    """The connection broke, or was given up, before the answer came."""
    TIMED_OUT = "timed out"
    UNSUPPORTED = "unsupported"
    """The peer knows no version of the request in which all that it says has a place."""
    FULL = "full"
    CLOSED = "closed"


class LaneError(KafkaError):
    """A request got no answer. ``was_sent``: the peer may have carried it out all the same."""

    def __init__(self, failure: LaneFailure, problem: str, *, was_sent: bool = False) -> None:
        super().__init__(problem)
        self.failure = failure
        self.was_sent = was_sent

    @property
    def retriable(self) -> bool:  # type: ignore[override]  # a class attribute in the base
        return self.failure not in (LaneFailure.UNSUPPORTED, LaneFailure.CLOSED)

    @property
    def is_unsupported(self) -> bool:
        return self.failure is LaneFailure.UNSUPPORTED


Then = Callable[[Message], None]
Failed = Callable[[LaneError], None]


@dataclass(frozen=True, slots=True)
class LaneSettings:
    client_id: str
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    """For the connection and the agreement on versions, and once more for the login."""
    backoff_ms: int = 50
    backoff_max_ms: int = 1_000
    in_flight_max: int = 1
    queued_max: int = 100
    response_bytes_max: int = 100 * 1024 * 1024
    tls: ssl.SSLContext | None = None
    login: Login | None = None


class _Asked:
    """A request that was not answered yet; its connection takes it for the future of its answer."""

    __slots__ = ("_is_done", "_lane", "deadline", "failed", "request", "then", "version_min")

    def __init__(
        self,
        lane: "Lane",
        request: Message,
        then: Then,
        failed: Failed,
        deadline: float,
        version_min: int,
    ) -> None:
        self._lane = lane
        self._is_done = False
        self.request = request
        self.then = then
        self.failed = failed
        self.deadline = deadline
        self.version_min = version_min

    def done(self) -> bool:
        return self._is_done

    def set_result(self, answer: Message) -> None:
        """Take the answer at once: a turn of the loop would be a good part of a round trip."""
        self._is_done = True
        self._lane._on_answer(self, answer)

    def set_exception(self, error: Exception) -> None:
        """Take the end of the connection when it has ended; it is about to."""
        self._is_done = True
        asyncio.get_running_loop().call_soon(self._lane._on_lost, self, error)


class Lane:
    def __init__(
        self,
        name: str,
        find_address: Callable[[], Address | None],
        settings: LaneSettings,
        random: Random,
    ) -> None:
        """``name`` is for the log; ``random`` is for jitter."""
        self.name = name
        self._find_address = find_address
        self._settings = settings
        self._backoff = Backoff(settings.backoff_ms, settings.backoff_max_ms, random)
        self._queue: deque[_Asked] = deque()
        self._in_flight: dict[_Asked, None] = {}
        self._connection: Connection | None = None
        self._address: Address | None = None  # of the connection, or of the last attempt at one
        self._connecting: asyncio.Task[None] | None = None
        self._until_writable: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._wake: asyncio.TimerHandle | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._is_closed = False
        self._is_in_trouble = False

    @property
    def waiting(self) -> int:
        """How many requests have neither an answer nor an error."""
        return len(self._queue) + len(self._in_flight)

    @property
    def versions(self) -> Versions | None:
        """What the peer speaks; None without a connection."""
        return None if self._connection is None else self._connection.versions

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def send(
        self,
        request: Message,
        then: Then,
        failed: Failed,
        timeout_ms: int | None = None,
        *,
        version_min: int = 0,
    ) -> None:
        """Send a request after those before it; either ``then`` or ``failed`` is called, once.

        ``timeout_ms`` counts from now, also while the request waits for its turn. A request that
        makes no sense in old versions of its API has a ``version_min``.
        """
        loop = asyncio.get_running_loop()
        if self._is_closed:
            loop.call_soon(failed, LaneError(LaneFailure.CLOSED, f"{self.name}: closed"))
            return
        if len(self._queue) >= self._settings.queued_max:
            problem = f"{self.name}: {len(self._queue)} requests wait already"
            loop.call_soon(failed, LaneError(LaneFailure.FULL, problem))
            return
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        deadline = loop.time() + timeout_ms / 1000
        self._queue.append(_Asked(self, request, then, failed, deadline, version_min))
        self._set_timer(deadline)
        self._pump()

    def on_address_changed(self) -> None:
        """Look the address up again now: what is with an address that has changed is given up."""
        if self._find_address() == self._address:
            return
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._cancel_wake()
        self._pump()

    def drop(self, problem: str) -> None:
        """Give the connection up, because what the peer says makes no sense."""
        self._lose(LaneFailure.LOST, problem)

    def close(self) -> None:
        """Close the connection; all that waits fails."""
        if self._is_closed:
            return
        self._is_closed = True
        self._cancel_wake()
        for timer in (self._timer, self._connecting, self._until_writable):
            if timer is not None:
                timer.cancel()
        self._timer = None
        self._fail_in_flight(list(self._in_flight), LaneFailure.CLOSED, "closed")
        self._fail_queue(LaneFailure.CLOSED, "closed")

    # Connecting.

    def _connect_soon(self) -> None:
        if self._connecting is not None or self._wake is not None or not self._queue:
            return
        address = self._find_address()
        if address is None:
            self._fail_queue(LaneFailure.UNREACHABLE, "no address is known")
            return
        loop = asyncio.get_running_loop()
        if address != self._address:
            self._address = address
            self._backoff.reset()
        elif self._backoff.failures and loop.time() < self._not_before:
            self._wake = loop.call_at(self._not_before, self._on_wake)
            return
        self._connecting = loop.create_task(self._connect(address))

    def _on_wake(self) -> None:
        self._wake = None
        self._not_before = 0.0
        self._pump()

    def _cancel_wake(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    async def _connect(self, address: Address) -> None:
        settings = self._settings
        try:
            connection = await Connection.open(
                *address,
                client_id=settings.client_id,
                tls=settings.tls,
                login=settings.login,
                timeout_ms=settings.connect_timeout_ms,
                response_bytes_max=settings.response_bytes_max,
            )
        except Exception as error:
            # Peers name addresses, and asyncio raises all kinds of things for a bad one.
            self._connecting = None
            self._back_off(str(error) or repr(error))
            self._fail_queue(LaneFailure.UNREACHABLE, str(error) or repr(error))
            return
        self._connecting = None
        self._connection = connection
        connection.closed.add_done_callback(partial(self._on_closed, connection))
        self._pump()

    def _on_closed(self, connection: Connection, closed: "asyncio.Future[None]") -> None:  # noqa: ARG002
        """Forget a connection that the peer closed while it carried nothing."""
        if connection is self._connection:
            self._connection = None
            self._pump()

    # Requests and answers.

    def _pump(self) -> None:
        """Send what may be sent."""
        connection = self._connection
        if connection is None:
            self._connect_soon()
            return
        if not connection.is_open:
            if not self._in_flight:  # else the first of them reports what happened
                self._connection = None
                self._connect_soon()
            return
        if self._find_address() not in (None, self._address):
            self._lose(LaneFailure.LOST, "the peer has another address now", is_failure=False)
            return
        while self._queue and len(self._in_flight) < self._settings.in_flight_max:
            if not connection.is_writable:
                self._wait_until_writable(connection)
                return
            self._post(connection, self._queue.popleft())

    def _wait_until_writable(self, connection: Connection) -> None:
        if self._until_writable is None:
            task = asyncio.get_running_loop().create_task(connection.wait_writable())
            task.add_done_callback(self._on_writable)
            self._until_writable = task

    def _on_writable(self, task: "asyncio.Task[None]") -> None:
        self._until_writable = None
        if not task.cancelled() and not self._is_closed:
            self._pump()

    def _post(self, connection: Connection, asked: _Asked) -> None:
        api = api_for_key(asked.request.ID)
        try:
            version = connection.versions.newest(api)
            if version < asked.version_min:
                raise UnsupportedError(
                    f"the peer knows {api.name} up to {version}, needed is {asked.version_min}"
                )
            connection.post_for(asked, asked.request, api, version)
        except (UnsupportedError, ApiError) as error:  # ApiError: a field has no place in it
            self._fail(asked, self._error(LaneFailure.UNSUPPORTED, str(error)))
            return
        self._in_flight[asked] = None

    def _on_answer(self, asked: _Asked, answer: Message) -> None:
        if asked not in self._in_flight:
            return  # it failed before
        del self._in_flight[asked]
        self._recover()
        if self._queue and not self._is_closed:
            self._pump()
        try:
            asked.then(answer)
        except Exception as error:  # the owner's, not the connection's, which goes on
            context = {"message": f"an answer was not taken: {self.name}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _on_lost(self, asked: _Asked, error: Exception) -> None:
        if asked in self._in_flight:  # else it failed before
            self._lose(LaneFailure.LOST, str(error))

    # Failures.

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return  # it sets the next one
            self._timer.cancel()
        # Not asked of the timer: uvloop's cannot tell if its time has come already.
        self._timer_at = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        late = [each for each in self._queue if each.deadline <= now]
        for each in late:
            self._queue.remove(each)
            self._fail(each, self._error(LaneFailure.TIMED_OUT, "not sent in time"))
        if any(each.deadline <= now for each in self._in_flight):
            self._lose(LaneFailure.TIMED_OUT, "no answer in time")
        deadlines = [each.deadline for each in (*self._in_flight, *self._queue)]
        if deadlines:
            # Never at once again: the clock that fires timers may run ahead of this one.
            self._set_timer(max(min(deadlines), now + 0.001))

    def _lose(self, failure: LaneFailure, problem: str, *, is_failure: bool = True) -> None:
        if self._connection is None:
            return
        if is_failure:
            self._back_off(problem)
        self._fail_in_flight(list(self._in_flight), failure, problem)
        self._pump()

    def _fail_in_flight(self, lost: list[_Asked], failure: LaneFailure, problem: str) -> None:
        connection, self._connection = self._connection, None
        for each in lost:
            del self._in_flight[each]
            self._fail(each, self._error(failure, problem, was_sent=True))
        if connection is not None:
            connection.close()

    def _fail_queue(self, failure: LaneFailure, problem: str) -> None:
        queue, self._queue = self._queue, deque()
        for each in queue:
            self._fail(each, self._error(failure, problem))

    def _fail(self, asked: _Asked, error: LaneError) -> None:
        asyncio.get_running_loop().call_soon(asked.failed, error)

    def _error(self, failure: LaneFailure, problem: str, *, was_sent: bool = False) -> LaneError:
        return LaneError(failure, f"{self.name}: {problem}", was_sent=was_sent)

    def _back_off(self, problem: str) -> None:
        loop = asyncio.get_running_loop()
        self._not_before = loop.time() + self._backoff.next_ms() / 1000
        if not self._is_in_trouble:
            self._is_in_trouble = True
            host, port = self._address or ("", 0)
            event = Event("peer lost", lane=self.name, peer=f"{host}:{port}", problem=problem)
            _log.warning(event)

    def _recover(self) -> None:
        self._backoff.reset()
        if self._is_in_trouble:
            self._is_in_trouble = False
            _log.info(Event("peer answers again", lane=self.name))
