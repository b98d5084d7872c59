"""An asyncio event loop on virtual time; each node of a world has one.

It goes by rounds, as asyncio's own: timers that are due join the queue, then what is in the queue
is run, and what that adds waits for the next round. A round takes no time, unless ``round_seconds``
says otherwise. The world calls the rounds of all loops in the order of (time, sequence).

A loop that was killed does nothing more: what is scheduled on it is dropped, its tasks are kept as
they are and never stepped. They are not closed at once, because that runs their ``finally``
blocks, and those write to disks and histories that outlive the node. ``bury`` closes them when
nothing looks any more.

Work for threads (``run_in_executor``) is done between two moments that are drawn: it starts, and
takes effect, at the one, and its result arrives at the other. An executor of one thread does its
work in order; otherwise any order may come.
"""

import asyncio
import sys
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple

if TYPE_CHECKING:
    from odradek.testing.simulation.network import NodeNetwork
    from odradek.testing.simulation.world import World

Ts = TypeVarTuple("Ts")

_CANCELLED_TIMERS_MIN: Final = 100
_TASKS_MIN: Final = 64
_ROUNDS_AT_ONCE_MAX: Final = 100
_ENDS_MAX: Final = 100
"""How often a coroutine that was closed may wait in its end."""


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in every process."""

    def __init__(self, serial: int, coro: Any, **options: Any) -> None:
        self._serial = serial
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._serial


class SimTimer(asyncio.TimerHandle):
    """A timer that knows whether it waits still: only then its cancellation leaves a gap."""

    is_waiting = True


class SimHandle(asyncio.Handle):
    """A handle that does not ask its loop whether it is in debug mode: there are many of them."""

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "SimLoop",
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class SimFuture(asyncio.Future[Any]):
    """A future whose place in a set is the same in every process."""

    def __init__(self, serial: int, loop: asyncio.AbstractEventLoop) -> None:
        self._serial = serial
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class SimLoop(asyncio.BaseEventLoop):
    """One life of one node. What it lacks of asyncio (sockets, signals) raises as in the base."""

    def __init__(self, world: "World", node: str, network: "NodeNetwork", random: Random) -> None:
        self._is_in_round = False  # the base looks at it when it is made
        super().__init__()
        self.node = node
        self.work_seconds_max = 0.002
        """How long a piece of work waits at most for a thread, and how long it takes at most."""
        self.round_seconds = 0.0
        """How long a round takes: more for a machine that has too much to do."""
        self.calls_in_a_round_max = 0
        """The most that was called in one round so far: what others had to wait for."""
        self._world = world
        self._network = network
        self._random = random
        self._queue: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._cancelled_timers = 0
        self._serials = count(1)
        self._tasks: list[SimTask] = []
        self._tasks_max = _TASKS_MIN  # before those that are done are let go
        self._next_round: float | None = None
        self._busy_until = 0.0
        self._round_number = 0
        self._is_dead = False
        self._is_paused = False
        self._free_at: dict[object, float] = {}  # when an executor of one thread is free again

    # What asyncio calls.

    def time(self) -> float:
        return self._world.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        if self._is_dead:
            handle.cancel()
            return handle
        self._queue.append(handle)
        if not self._is_in_round:
            self._arm(self._world.now)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = SimTimer(when, callback, args, self, context)
        if self._is_dead:
            handle.cancel()
            return handle
        heappush(self._timers, (when, next(self._serials), handle))
        if not self._is_in_round:
            self._arm(max(when, self._world.now))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if not (isinstance(handle, SimTimer) and handle.is_waiting):
            return
        self._cancelled_timers += 1
        if self._cancelled_timers < max(_CANCELLED_TIMERS_MIN, len(self._timers) // 2):
            return
        self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
        heapify(self._timers)
        self._cancelled_timers = 0

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(next(self._serials), self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        if len(self._tasks) >= self._tasks_max:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks_max = max(_TASKS_MIN, 2 * len(self._tasks))
        task = SimTask(next(self._serials), coro, loop=self, **options)
        self._tasks.append(task)  # asyncio holds tasks weakly: when one goes would be left to luck
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        is_ordered = isinstance(executor, ThreadPoolExecutor) and executor._max_workers == 1
        return self.run_work(lambda: func(*args), executor if is_ordered else None)

    def run_work(self, work: Callable[[], Any], key: object = None) -> asyncio.Future[Any]:
        """Do ``work`` as a thread would; what has one key is done in order, one at a time."""
        done = self.create_future()
        start = self.time() + self._random.uniform(0, self.work_seconds_max)
        if key is not None:
            start = max(start, self._free_at.get(key, 0))
        end = start + self._random.uniform(0, self.work_seconds_max)
        if key is not None:
            self._free_at[key] = end
        self.call_at(start, self._start_work, work, end, done)
        return done

    def _start_work(self, work: Callable[[], Any], end: float, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            return
        self._world.note(self.node, "work")
        events._set_running_loop(None)  # a thread has none
        try:
            result, error = work(), None
        except Exception as raised:
            result, error = None, raised
        finally:
            events._set_running_loop(self)
        self.call_at(end, _resolve, done, result, error)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **options: Any,
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        _refuse_tls(options)
        return await self._network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int = 0,
        **options: Any,
    ) -> asyncio.AbstractServer:
        _refuse_tls(options)
        return self._network.serve(protocol_factory, host or "", port)

    async def getaddrinfo(  # type: ignore[override]
        self,
        host: str,
        port: int,
        **options: Any,  # noqa: ARG002
    ) -> list[tuple[Any, ...]]:
        return self._network.getaddrinfo(host, port)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._world.fail(self.node, str(context.get("message")), context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_dead:
            super().call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_in_round

    def is_closed(self) -> bool:
        return self._is_dead

    def close(self) -> None:
        self.kill()

    def __del__(self) -> None:
        """Say nothing about a loop that was not closed: it holds nothing."""

    # What the world does to it.

    def kill(self) -> None:
        """Drop all that is scheduled, for good."""
        self._is_dead = True
        self._queue.clear()
        self._timers.clear()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def bury(self) -> None:
        """Close the tasks of a loop that was killed; what they do in the end goes nowhere."""
        assert self._is_dead
        tasks, self._tasks = self._tasks, []
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for task in tasks:
                coroutine = task.get_coro()
                if not task.done() and isinstance(coroutine, CoroutineType):
                    _bury(coroutine)
        finally:
            events._set_running_loop(before)

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._arm_next()

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    @property
    def tasks_pending(self) -> int:
        return sum(not task.done() for task in self._tasks)

    @property
    def timers_pending(self) -> int:
        return len(self._timers) - self._cancelled_timers

    # Rounds.

    def _arm(self, when: float) -> None:
        when = self._busy_until if when < self._busy_until else when
        if self._is_paused or (self._next_round is not None and self._next_round <= when):
            return
        self._next_round = when
        self._round_number += 1
        self._world.call_at(when, self._round, self._round_number)

    def _arm_next(self) -> None:
        if self._is_dead:
            return
        if self._queue:
            self._arm(self._world.now)
            return
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
            self._cancelled_timers -= 1
        if timers:
            self._arm(max(timers[0][0], self._world.now))

    def _round(self, number: int) -> None:
        if number != self._round_number or self._is_dead:
            return  # an earlier one was asked for since
        self._next_round = None
        if self._is_paused:
            return
        world = self._world
        before, hooks = events._get_running_loop(), sys.get_asyncgen_hooks()
        for _ in range(_ROUNDS_AT_ONCE_MAX):
            events._set_running_loop(self)
            sys.set_asyncgen_hooks(finalizer=self._close_generator)
            self._is_in_round = True
            try:
                self._run_queue(world.now)
            finally:
                self._is_in_round = False
                sys.set_asyncgen_hooks(*hooks)
                events._set_running_loop(before)
            self._busy_until = world.now + self.round_seconds
            if not self._is_dead:
                world.after_round(self.node)
            if not self._is_next_round_due():
                break
        self._arm_next()

    def _is_next_round_due(self) -> bool:
        """Whether the next round would come off the world's heap at once: it is spared the way."""
        may_run = not (self._is_paused or self.round_seconds)
        return may_run and bool(self._queue) and self._world.is_idle_now

    def _run_queue(self, now: float) -> None:
        queue, timers = self._queue, self._timers
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[2]
            if timer.cancelled():
                self._cancelled_timers -= 1
            else:
                timer.is_waiting = False
                queue.append(timer)
        count = len(queue)
        if count > self.calls_in_a_round_max:
            self.calls_in_a_round_max = count
        for _ in range(count):
            if self._is_dead or self._is_paused:
                break
            handle = queue.popleft()
            if not handle._cancelled:
                handle._run()

    def _close_generator(self, generator: Any) -> None:
        if not self._is_dead:
            self.create_task(_close(generator))


async def _close(generator: Any) -> None:
    closing: Awaitable[None] = generator.aclose()
    await closing


def _resolve(done: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


def _refuse_tls(options: dict[str, Any]) -> None:
    if options.get("ssl") is not None:
        raise NotImplementedError("a simulated network speaks no TLS")


def _bury(coroutine: "CoroutineType[Any, Any, Any]") -> None:
    """Close a coroutine and those that it waits for.

    In its end each may wait once more, in an ``async with`` say. Closing ends that wait only, and
    the outer ones go on to theirs.
    """
    chain = [coroutine]
    while isinstance(inner := chain[-1].cr_await, CoroutineType):
        chain.append(inner)
    for each in chain:
        for _ in range(_ENDS_MAX):
            with suppress(BaseException):  # it may fail in its end
                each.close()
            if each.cr_frame is None:
                break
