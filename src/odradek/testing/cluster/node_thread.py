"""One life of a node on a thread with an event loop of its own, as a process would live it.

``kill`` is the end of a process: its disk does nothing more for it, its connections break, and none
of its code runs to the end. ``pause`` keeps its thread from running, as SIGSTOP does: the system
still accepts connections for it, and nobody answers.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from odradek.core.config import BrokerConfig
from odradek.net.event_loop import new_event_loop
from odradek.node.node import Node
from odradek.node.ports import real_ports
from odradek.node.work import WorkThreads
from odradek.testing.breakable_disk import BreakableDisk
from odradek.testing.clock import TestClock
from odradek.testing.cluster.wiring import Dialling, GatedNetwork, Wiring

T = TypeVar("T")

END_SECONDS_MAX: Final = 60
ROUNDS_MAX: Final = 10
"""Of cancelling: what is cancelled may begin something else."""


class NodeThread:
    def __init__(
        self,
        config: BrokerConfig,
        wiring: Wiring,
        network: GatedNetwork,
        disk: BreakableDisk,
        clock: TestClock,
    ) -> None:
        self._disk = disk
        self._workers: list[_Workers] = []
        self._resume = threading.Event()
        self._is_killed = self._has_ended = False
        self._loop = new_event_loop()
        self._loop.set_exception_handler(self._on_loop_error)
        self._dialling = Dialling(wiring, config.node_id, self._loop)
        # Whatever connects does it through its loop; loops of asyncio and uvloop both allow it.
        self._loop.create_connection = self._dialling.create_connection  # type: ignore[method-assign,assignment]
        ports = real_ports(disk=disk, clock=clock, network=network)
        self.node = Node(config, ports._replace(make_workers=self._make_workers))
        self.ready: Future[None] = Future()
        """Done when it serves, or with what kept it from that."""
        self.is_over = threading.Event()
        """Set when the thread has ended, for whatever reason."""
        self._thread = threading.Thread(
            target=self._main, name=f"odradek-node-{config.node_id}", daemon=True
        )

    def start(self) -> None:
        """Start; ``ready`` says when it serves."""
        self._thread.start()

    def stop(self) -> None:
        """Stop as on SIGTERM, resumed if it is paused."""
        self.resume()
        self._submit(self._stop()).result(END_SECONDS_MAX)
        self.is_over.wait(END_SECONDS_MAX)

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self._is_killed = True
        self._disk.end()
        self._loop.call_soon_threadsafe(self._end)
        self.resume()
        self.is_over.wait(END_SECONDS_MAX)

    def pause(self) -> None:
        self._resume.clear()
        paused = threading.Event()

        def pause() -> None:
            paused.set()
            self._resume.wait()
            if self._is_killed:
                self._end()

        self._loop.call_soon_threadsafe(pause)
        paused.wait(END_SECONDS_MAX)

    def resume(self) -> None:
        self._resume.set()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Have a coroutine run on the node's loop, and wait for it."""
        return self._submit(coroutine).result(END_SECONDS_MAX)

    async def call_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._submit(coroutine))

    # On its thread.

    def _main(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._living = self._loop.create_task(self._live())
            self._loop.run_forever()
            self._run_out()
            self._loop.close()
        finally:
            if not self.ready.done():
                self.ready.set_exception(RuntimeError("the node ended before it was ready"))
            self.is_over.set()

    async def _live(self) -> None:
        try:
            await self.node.start()
        except Exception as error:
            if not self._is_killed:
                self.ready.set_exception(error)
            self._loop.stop()
            return
        self.ready.set_result(None)
        await self.node.failed.wait()
        await self.node.stop()
        self._loop.stop()

    async def _stop(self) -> None:
        await self.node.stop()
        self._loop.stop()

    def _end(self) -> None:
        if not self._has_ended:  # one that was paused is told twice
            self._has_ended = True
            self._dialling.end()
            self._loop.stop()

    def _run_out(self) -> None:
        """Close what is open, and end what is under way, as the end of a process does.

        The loop must not be closed over a connection: what arrives on it meanwhile would be
        handled without a loop, and uvloop not end.
        """
        self.node._loop_watch.stop()
        if self._is_killed:
            self._loop.run_until_complete(self.node.server.stop(0))
        self._dialling.end()
        for _ in range(ROUNDS_MAX):
            tasks = asyncio.all_tasks(self._loop)
            if not tasks and not self._dialling.is_open:
                break
            for task in tasks:
                task.cancel()
            turn = self._loop.create_task(asyncio.sleep(0))
            self._loop.run_until_complete(asyncio.wait({*tasks, turn}, timeout=1))
        for workers in self._workers:
            workers.give_up()

    def _make_workers(self, threads_max: int, name: str) -> WorkThreads:
        workers = _Workers(threads_max, name)
        self._workers.append(workers)
        return workers

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._is_killed:
            loop.default_exception_handler(context)

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


class _Workers(WorkThreads):
    def give_up(self) -> None:
        """Let the threads end, and wait for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)
