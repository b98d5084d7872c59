"""Runs cleanings in a process of their own.

One thread that computes inside the broker moves the median of an acknowledgement from 58 µs to
5 ms, because it takes the interpreter's lock in turns with the event loop. So there is a process.
It is spawned, not forked: a fork would inherit the event loop, its descriptors and its locks.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future

from odradek.storage.cleaner.cleaning import clean
from odradek.storage.cleaner.task import CleaningResult, CleaningTask
from odradek.storage.cleaner.throttle import Throttle
from odradek.storage.disk import OsDisk


def run_task(task: CleaningTask) -> CleaningResult:
    """Clean a log of the real disk; the throttle sleeps here and nowhere else."""
    return clean(OsDisk(), task, Throttle(task.settings.io_bytes_per_second_max))


def end_with_parent() -> None:
    """Let this process end when the node that spawned it is gone, however that ended.

    A worker reads tasks from a pipe whose other end it holds as well, so it never sees that end
    close. Without this it would wait forever.
    """
    from multiprocessing import parent_process

    node = parent_process()
    assert node is not None, "called in a process of its own"

    def wait_for_end() -> None:
        node.join()
        os._exit(1)

    threading.Thread(target=wait_for_end, name="parent-watch", daemon=True).start()


class Workers:
    """A pool of processes (``log.cleaner.threads``); the first task starts one."""

    def __init__(self, count: int = 1) -> None:
        self._count = count
        self._pool: Executor | None = None  # made for the first task: most nodes never need it

    def _start(self) -> Executor:
        # With all that processes need, which is much, and nothing to a start.
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        return ProcessPoolExecutor(
            max_workers=self._count,
            mp_context=get_context("spawn"),
            initializer=end_with_parent,
        )

    def submit(self, task: CleaningTask) -> Future[CleaningResult]:
        """Run a task when a process is free."""
        if self._pool is None:
            self._pool = self._start()
        try:
            return self._pool.submit(run_task, task)
        except BrokenExecutor:
            # Somebody killed a worker, which breaks the pool and the tasks it had, not the next.
            self._pool = self._start()
            return self._pool.submit(run_task, task)

    def close(self) -> None:
        """Wait for what is running and drop what is not."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


Submit = Callable[[CleaningTask], Future[CleaningResult]]
