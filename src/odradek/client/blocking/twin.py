"""What all blocking clients share: an asyncio client, and the thread with the loop it lives on.

The thread comes with the first call, and so does the connection: ``start`` and ``with`` only make
it sooner. Any thread may call; a running event loop in the caller's thread does not matter, so
notebooks are fine. Ctrl-C interrupts what is waited for and leaves the client usable.

A forked child begins anew: its first call makes a thread, a client and connections of its own, and
what the parent has under way stays the parent's. A client that has a place in the cluster which two
cannot share (a member of a group, an open transaction) refuses to work in a child.

At the end of the program clients that are still open are closed, within seconds.
"""

import asyncio
import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from odradek.client.blocking.loop_thread import LoopThread
from odradek.client.errors import ClosedError, KafkaError

T = TypeVar("T")

_EXIT_SECONDS_MAX: Final = 3.0
_CLOSE_SLACK_SECONDS: Final = 150.0
"""Longer than any close by itself: it ends with delivery.timeout.ms, two minutes."""


class Core(Protocol):
    """An asyncio client."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Core)


class Place(Generic[C]):
    """A client in one process, and where it runs."""

    def __init__(self, core: C) -> None:
        self.core = core
        self.thread = LoopThread(f"odradek-{type(core).__name__.lower()}")
        self._process_id = os.getpid()
        self._starting: asyncio.Task[None] | None = None
        self.is_ready = False
        """Whether the client has been started, and nothing was wrong."""

    @property
    def is_started(self) -> bool:
        return self._starting is not None

    async def start(self) -> None:
        """Start the client once; if that failed, the next call tries again."""
        if self._starting is None:
            self._starting = asyncio.create_task(self.core.start())
            # Whoever waits may be interrupted before it fails.
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        starting = self._starting
        try:
            await asyncio.shield(starting)
            self.is_ready = True
        except BaseException:
            # Who is interrupted leaves it to go on; one that failed is not waited for again.
            if starting.done() and starting is self._starting:
                self._starting = None
            raise

    async def call(self, work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        await self.start()
        return await work(self.core)

    def leave(self, name: str) -> None:
        """End without waiting; for clients that nobody has closed nor refers to any more."""
        if os.getpid() == self._process_id and not self.thread.loop.is_closed():
            warnings.warn(f"{name} was not closed", ResourceWarning, stacklevel=2)
            self.thread.loop.call_soon_threadsafe(self._leave_soon)

    def _leave_soon(self) -> None:
        closing = asyncio.create_task(asyncio.wait_for(self.core.close(), _EXIT_SECONDS_MAX))
        closing.add_done_callback(self._left)

    def _left(self, closing: "asyncio.Task[None]") -> None:
        if not closing.cancelled():
            closing.exception()  # told to nobody: there is nobody any more
        self.thread.stop_soon()


class Twin(Generic[C]):
    """Base of the blocking clients."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._core = make()  # now, so that wrong settings are told of at once
        self._place: Place[C] | None = None
        self._refusal: KafkaError | None = None
        self._is_closing = False
        self._lock = threading.Lock()
        _twins.add(self)

    # For generated methods.

    def _run(self, work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        """Return what a coroutine of the client returns."""
        place = self._open_place()
        return place.thread.run(self._in_turn(place, work))

    def _call(self, work: Callable[[C], T]) -> T:
        """Return what a plain method of the client returns; it belongs on the loop's thread too."""

        async def called(core: C) -> T:
            return work(core)

        return self._run(called)

    @contextmanager
    def _entered(self, work: Callable[[C], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        """Be inside an asynchronous context manager of the client."""

        async def enter(core: C) -> tuple[AbstractAsyncContextManager[T], T]:
            manager = work(core)
            return manager, await manager.__aenter__()

        manager, value = self._run(enter)
        try:
            yield value
        except BaseException as error:
            raised = error  # as a name of its own: that of an except clause goes with it
            if not self._run(lambda _: _exit(manager, raised)):
                raise
        else:
            self._run(lambda _: _exit(manager, None))

    def _close(
        self, work: Callable[[C], Coroutine[Any, Any, None]], seconds: float = _CLOSE_SLACK_SECONDS
    ) -> None:
        """Close the client and end its thread; nothing happens the second time."""
        if self._place is not None:
            self._place.thread.check_outside()
        with self._lock:
            place = None if self._is_closing else self._place
            if place is None:
                self._refusal = self._refusal or ClosedError("the client is closed")
                return
            self._is_closing = True
        # Calls go on to be passed on meanwhile: a listener may have something to commit.
        self._finalizer.detach()
        try:
            place.thread.run(self._closing(place, work), seconds)
        finally:
            self._refusal, self._place = ClosedError("the client is closed"), None
            place.thread.stop()
            self._on_closed()

    # For kinds of clients.

    async def _in_turn(self, place: Place[C], work: Callable[[C], Coroutine[Any, Any, T]]) -> T:
        return await place.call(work)

    async def _closing(
        self, place: Place[C], work: Callable[[C], Coroutine[Any, Any, None]]
    ) -> None:
        await work(place.core)

    def _on_place(self, place: Place[C]) -> None:
        """Prepare what belongs to one process."""

    def _on_closed(self) -> None:
        """Give up what nobody will do any more."""

    def _survives_fork(self) -> bool:
        """Whether a child may go on with a client that its parent had started."""
        return True

    # Places.

    def _open_place(self) -> Place[C]:
        place = self._place
        if place is not None:
            return place
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            if self._place is None:
                place = Place(self._core)
                self._finalizer = weakref.finalize(self, place.leave, type(self).__name__)
                self._finalizer.atexit = False
                self._on_place(place)
                self._place = place
            return self._place

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent's may have held it
        place, self._place = self._place, None
        self._is_closing = False
        if place is None:
            return
        self._finalizer.detach()
        place.thread.forget_after_fork()
        if place.is_started and not self._survives_fork():
            self._refusal = ClosedError(
                f"this {type(self).__name__} was started before a fork; its place in the cluster"
                " cannot be shared: make a new one in each process"
            )
            return
        self._core = self._make()

    # Life.

    def start(self) -> None:
        """Connect to the cluster now, not with the first call."""

        async def nothing(_: C) -> None:
            return None

        self._run(nothing)

    def close(self) -> None:
        self._close(lambda core: core.close())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._close(lambda core: core.close())
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _exit(manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    if error is None:
        return bool(await manager.__aexit__(None, None, None))
    return bool(await manager.__aexit__(type(error), error, error.__traceback__))


_twins: Final["weakref.WeakSet[Twin[Any]]"] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for twin in list(_twins):
        twin._after_fork()


def _at_exit() -> None:
    """Close what is open, all at once: each may need all of the time there is."""
    closing = [
        threading.Thread(target=_close_at_exit, args=(twin,), daemon=True)
        for twin in list(_twins)
        if twin._place is not None
    ]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(_EXIT_SECONDS_MAX * 2)


def _close_at_exit(twin: Twin[Any]) -> None:
    with suppress(Exception):
        twin._close(lambda core: core.close(), _EXIT_SECONDS_MAX)


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
