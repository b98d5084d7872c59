"""Where waiting work goes: fsync, checkpoints and removals, on threads; results come back here.

The event loop's thread owns all state. A piece of work is run on another thread and its end is
announced on the loop; threads are for waiting, or for computing that holds no GIL (``opening``).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class WorkThreads:
    def __init__(self, threads_max: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._under_way: set[asyncio.Future[None]] = set()

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run ``work`` on a thread; call ``done`` on the loop with what it raised, or None."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.run_in_executor(self._threads, work)
        self._under_way.add(future)

        def finished(ended: asyncio.Future[None]) -> None:
            self._under_way.discard(ended)
            if not ended.cancelled():
                done(ended.exception())

        future.add_done_callback(finished)

    async def wait_until_idle(self) -> None:
        """Wait for what is under way, and for what comes of it."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def stop(self) -> None:
        await self.wait_until_idle()
        self._threads.shutdown()
