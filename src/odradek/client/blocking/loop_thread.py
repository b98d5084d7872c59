"""An event loop on a thread of its own, for callers that have none, or one they cannot give away.

After a fork the child has the loop but not its thread, and shares the kernel's side of it with its
parent: the sockets, and the epoll set. Closing the loop in the child would take the parent's
sockets out of that set. So the child points its copies of the descriptors at /dev/null, which
lets go of the parent's, and forgets the loop.
"""

import asyncio
import os
import selectors
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from odradek.client.errors import ClosedError, KafkaError

T = TypeVar("T")

_STOP_SECONDS_MAX: Final = 5.0
_CANCEL_SECONDS_MAX: Final = 2.0
_forgotten: Final[list["LoopThread"]] = []
"""Loops of a parent process. Collecting them would run what ends their coroutines, here."""


class LoopThread:
    def __init__(self, name: str) -> None:
        # Not uvloop: what is registered has to be known after a fork.
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop."""
        return threading.current_thread() is self._thread

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Have a coroutine run.

        Raises:
            ClosedError: The loop is no more.
            RuntimeError: Called by what runs on the loop: it would wait for itself.
        """
        future: Future[T] = Future()
        self._begin(coroutine, future)
        return future

    def _begin(self, coroutine: Coroutine[Any, Any, T], future: "Future[T]") -> None:
        try:
            self.check_outside()
            self.loop.call_soon_threadsafe(self._start, coroutine, future)
        except (KafkaError, RuntimeError):  # not after an interrupt: it may be running by then
            coroutine.close()
            raise

    def _start(self, coroutine: Coroutine[Any, Any, T], future: "Future[T]") -> None:
        if future.cancelled():
            coroutine.close()
            return
        task = self.loop.create_task(coroutine)
        task.add_done_callback(lambda done: _tell(done, future))
        future.add_done_callback(lambda _: self._cancel(task))

    def _cancel(self, task: "asyncio.Task[T]") -> None:
        if not task.done():
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self.loop.call_soon_threadsafe(task.cancel)

    def check_outside(self) -> None:
        """Raise if the caller runs on the loop, which is to do what he waits for."""
        if self.is_current:
            raise RuntimeError(
                "called on the client's own thread, by a callback: it would never end"
            )
        if self.loop.is_closed():
            raise ClosedError("the client is closed")

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float | None = None) -> T:
        """Return what a coroutine returns; an interrupt, or the end of the time, cancels it.

        Raises:
            ClosedError: The loop was stopped meanwhile.
            TimeoutError: The time is over.
        """
        # Here before the coroutine runs: an interrupt that comes any time later can cancel it.
        future: Future[T] = Future()
        try:
            self._begin(coroutine, future)
            return future.result(timeout_seconds)
        except CancelledError as error:
            raise ClosedError("the client was closed") from error
        finally:
            if not future.done():
                future.cancel()

    def stop(self) -> None:
        """Cancel what runs and end the thread; takes a few seconds at most."""
        self.stop_soon()
        if not self.is_current:
            self._thread.join(_STOP_SECONDS_MAX)

    def stop_soon(self) -> None:
        try:
            self.loop.call_soon_threadsafe(self.loop.stop)
        except RuntimeError:
            return  # closed already

    def forget_after_fork(self) -> None:
        """Let go of the parent's descriptors; in a child, where the thread does not exist."""
        self.loop.set_exception_handler(lambda _, __: None)
        with open(os.devnull, "r+b", buffering=0) as nothing:  # noqa: PTH123
            shared = [key.fd for key in self._selector.get_map().values()]
            if isinstance(self._selector, selectors.EpollSelector):
                shared.append(self._selector.fileno())
            for descriptor in shared:
                os.dup2(nothing.fileno(), descriptor, inheritable=False)
        _forgotten.append(self)

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(_cancel_all())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()


def _tell(task: "asyncio.Task[T]", future: "Future[T]") -> None:
    """Pass on what a coroutine came to, unless nobody waits for it."""
    if task.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return
    error = task.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CANCEL_SECONDS_MAX)
